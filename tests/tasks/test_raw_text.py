"""The reported score of a tagger is that on raw text: word boundaries are learned from the file, and both scores are
reported."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unmask import api
from unmask.cli import app
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.text.tokenizer import Tokenizer

FIRMS, PLACES = ("Bre-X", "Wal-Mart", "Acme"), ("U.S.", "U.K.", "Oslo")


def conll(verbs: tuple[str, ...]) -> str:
    parts = [
        f"{firm} B-org|{verb} O|in O|the O|{location} B-loc|. O\nthe O|{location} B-loc|, O|and O|{firm} B-org|{verb} O|. O"
        for firm in FIRMS
        for location in PLACES
        for verb in verbs
    ]
    return "\n\n".join(part.replace("|", "\n") for part in "\n".join(parts).split("\n")) + "\n"


TRAIN, TEST = conll(("fell", "rose")), conll(("left",))
TEXTS = [" ".join(line.split()[0] for line in (TRAIN + TEST).split("\n") if line)] * 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    tokenizer = Tokenizer.train(TEXTS, TokenizerRecipe(type="wordpiece"))
    shape = {"hidden": 32, "layers": 2, "intermediate": 64, "vocab_size": tokenizer.size, "dropout": 0.0}
    hf.save(Model(preset("bert-tiny", **shape), ("mlm",)).init(0), folder / "start", tokenizer)
    for name, text in (("train.conll", TRAIN), ("test.conll", TEST)):
        (folder / name).write_text(text)
    files = {"train": [str(folder / "train.conll")], "test": [str(folder / "test.conll")]}
    api.finetune(str(folder / "start"), out=folder / "run", steps=120, batch_size=4, lr=5e-3, seed=0, **files)
    return folder / "run"


def entities(model: Path, text: str) -> list[tuple[str, str]]:
    return [(e["text"], e["label"]) for e in api.load(model).tag(text)["entities"]]


def test_entities_follow_the_word_boundaries_of_the_file(run: Path) -> None:
    assert entities(run / "model", "Bre-X fell in the U.S.") == [("Bre-X", "org"), ("U.S.", "loc")]
    assert entities(run / "model", "the U.S., and Bre-X fell.") == [("U.S.", "loc"), ("Bre-X", "org")]


def test_both_scores_are_reported_raw_text_first(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    keys = [key for key in results["test"] if key != "records"]
    assert keys[:2] == ["raw_text_f1", "f1"] and results["metric"] == "f1"
    assert results["test"]["raw_text_f1"] == results["test"]["f1"] == 1.0
    file = str(run.parent / "test.conll")
    scores = api.evaluate(run / "model", file)
    assert [key for key in scores if key.endswith("f1")][:2] == ["raw_text_f1", "f1"] and scores["raw_text_f1"] == 1.0
    shown = CliRunner().invoke(app, ["evaluate", str(run / "model"), file]).output
    assert 0 <= shown.index("raw text f1") < shown.index("\nf1")
    assert "raw text f1 1.0000" in CliRunner().invoke(app, ["info", str(run)]).output
    for page in (run / "report.html", run / "model" / "README.md"):
        text = page.read_text("utf-8")
        assert 0 <= text.index("raw text f1") < text.index("macro f1") and "as `unmask predict` is" in text


def test_old_model_folder_loads_and_reports_its_raw_text_gap(run: Path, tmp_path: Path) -> None:
    """Without learned boundaries, words are split at all punctuation as in older versions, and the raw-text score
    shows it."""
    old = tmp_path / "old"
    old.mkdir()
    for file in (run / "model").iterdir():
        (old / file.name).write_bytes(file.read_bytes())
    values = json.loads((old / "unmask.json").read_text())
    assert values["task_state"].pop("boundaries")["contexts"]
    (old / "unmask.json").write_text(json.dumps(values))
    assert entities(old, "Bre-X fell in the U.S.") != [("Bre-X", "org"), ("U.S.", "loc")]
    scores = api.evaluate(old, str(run.parent / "test.conll"))
    assert scores["f1"] == 1.0 and scores["raw_text_f1"] < 0.7


def test_parts_of_speech_on_raw_text(run: Path, tmp_path: Path) -> None:
    """A word with different boundaries in raw text is wrong, whatever its tag."""
    rows = [("I", "PRON"), ("did", "AUX"), ("n't", "PART"), ("go", "VERB"), (".", "PUNCT")]
    lines = [
        f"{n}\t{w}\t{w}\t{t}\t_\t_\t0\troot\t_\t{'SpaceAfter=No' if w in ('did', 'go') else '_'}"
        for n, (w, t) in enumerate(rows, 1)
    ]
    file = tmp_path / "train.conllu"
    file.write_text("# text = I didn't go.\n" + "\n".join(lines) + "\n\n")
    done = api.finetune(
        str(run.parent / "start"), train=[str(file)], out=tmp_path / "pos", steps=40, lr=5e-3, batch_size=1
    )
    scores = api.evaluate(done.model, str(file))
    assert scores["raw_text_f1"] == scores["token_accuracy"] == 1.0 and "f1" not in scores
    assert [key for key in scores if isinstance(scores[key], float)] == ["raw_text_f1", "token_accuracy"]
    answer = api.load(done.model).tag("I didn't go.")
    assert list(zip(["I", "did", "n't", "go", "."], answer["tags"])) == rows
