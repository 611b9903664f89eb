"""A seeded loss curve that refactors may not move: data, masks, first weights, optimizer and schedule all stand behind it.

The text is made here, so that neither Python's nor a package's version changes it. To accept a wanted change:
`python tests/golden/test_curve.py` writes curve.json anew; say why in the commit.
"""

import json
import random
import sys
from pathlib import Path

import pytest

from unmask import api
from unmask.train.run import Run

GOLDEN = Path(__file__).with_name("curve.json")
DRAWN = [
    "train.embedding_init=random"
]  # a factorisation of counts differs between processors where factors are equally strong
CASES = {
    "bert": {
        "preset": "bert-tiny",
        "overrides": ["model.layers=2", "model.hidden=32", "model.heads=2", "model.intermediate=64", *DRAWN],
    },
    "modernbert": {
        "preset": "modernbert-mini",
        "overrides": ["model.layers=2", "model.hidden=32", "model.heads=2", *DRAWN],
    },
}


def text() -> str:
    """Sentences of a small grammar, in documents."""
    rng = random.Random(7)
    nouns, verbs = ["cat", "dog", "judge", "river", "letter", "ship"], ["sees", "reads", "crosses", "signs"]
    documents = []
    for _ in range(120):
        topic = rng.choice(nouns)
        lines = [
            f"the {topic} {rng.choice(verbs)} a {rng.choice(nouns)} near the {rng.choice(nouns)} ." for _ in range(9)
        ]
        documents.append(" ".join(lines))
    return "\n\n".join(documents)


def curve(name: str, folder: Path) -> list[float]:
    path = folder / "text.txt"
    path.write_text(text())
    run = api.pretrain(
        path,
        steps=20,
        batch_size=16,
        max_length=32,
        tokenizer_type="char",
        seed=11,
        out=folder / name,
        mask_rate="0.3:0.15",
        **CASES[name],
    )
    return [e["loss"] for e in Run(run.path).events() if e["event"] == "train"]


@pytest.mark.parametrize("name", CASES)
def test_the_curve_has_not_moved(name: str, tmp_path: Path) -> None:
    assert curve(name, tmp_path) == pytest.approx(json.loads(GOLDEN.read_text())[name], rel=2e-4)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        values = {name: curve(name, Path(folder)) for name in CASES}
    GOLDEN.write_text(json.dumps(values, indent=1) + "\n")
    sys.stdout.write(f"{GOLDEN} written\n")
