"""A seeded loss curve that refactors must not change. It depends on data, masks, initial weights, optimizer and schedule.

The text is generated here, so that it depends on no version of Python or a package. To accept an intended change, run
`python tests/golden/test_curve.py`, which rewrites curve.json, and give the reason in the commit message.
"""

import json
import random
import sys
from pathlib import Path

import pytest

from unmask import api
from unmask.train.run import Run

GOLDEN = Path(__file__).with_name("curve.json")
RANDOM_EMBEDDINGS = [
    "train.embedding_init=random"
]  # a factorization of counts differs between CPUs if factors are equally strong
CASES = {
    "bert": {
        "preset": "bert-tiny",
        "overrides": [
            "model.layers=2",
            "model.hidden=32",
            "model.heads=2",
            "model.intermediate=64",
            *RANDOM_EMBEDDINGS,
        ],
    },
    "modernbert": {
        "preset": "modernbert-mini",
        "overrides": ["model.layers=2", "model.hidden=32", "model.heads=2", *RANDOM_EMBEDDINGS],
    },
}


def text() -> str:
    """Return documents with sentences of a small grammar."""
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
def test_loss_curve_is_unchanged(name: str, tmp_path: Path) -> None:
    assert curve(name, tmp_path) == pytest.approx(json.loads(GOLDEN.read_text())[name], rel=2e-4)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        values = {name: curve(name, Path(folder)) for name in CASES}
    GOLDEN.write_text(json.dumps(values, indent=1) + "\n")
    sys.stdout.write(f"{GOLDEN} written\n")
