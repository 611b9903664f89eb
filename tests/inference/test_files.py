"""A fine-tuned model on files: order and ids are kept, labels are not needed, and the doctor stands before training."""

import json
from pathlib import Path
from typing import Any

import pytest
from near import near
from typer.testing import CliRunner

from unmask import UserError, api
from unmask.cli import app
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.text.tokenizer import Tokenizer

TEXTS = ["what a film", "so dull, so long", "a joy", "no", "two\nlines", "again", "x"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A classifier that was never trained: it answers, which is enough here."""
    folder = tmp_path_factory.mktemp("judge") / "model"
    tokenizer = Tokenizer.train([*TEXTS, "Seen from 0123456789"] * 3, TokenizerRecipe(type="char"))
    shape = {"hidden": 32, "heads": 2, "layers": 1, "intermediate": 64, "max_positions": 64, "labels": ("neg", "pos")}
    hf.save(Model(preset("bert-tiny", vocab_size=tokenizer.size, **shape), ("classify",)).init(0), folder, tokenizer)
    return str(folder)


def table(path: Path, head: str, *rows: tuple[str, ...]) -> str:
    lines = [head, *(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_file_keeps_order_and_ids_and_needs_no_labels(model: str, tmp_path: Path) -> None:
    file = table(tmp_path / "new.csv", "id,text", *[(f"r{9 - n}", text) for n, text in enumerate(TEXTS)])
    answers = api.predict(model, file)
    assert [a["id"] for a in answers] == [f"r{9 - n}" for n in range(len(TEXTS))]
    assert [a["text"] for a in answers] == TEXTS
    assert [int(a["location"].rpartition(":")[2]) for a in answers] == [2, 3, 4, 5, 6, 8, 9]
    alone = [api.predict(model, text)[0] for text in TEXTS[:2]]
    assert [a["scores"]["pos"] for a in answers[:2]] == near([a["scores"]["pos"] for a in alone], 1e-5)
    half = table(tmp_path / "half.csv", "text,label", ("a joy", "pos"), ("no", ""))
    assert len(api.predict(model, half)) == 2, "labels that are missing are no fault here"
    with pytest.raises(UserError, match=r"half\.csv:3: no label"):
        api.evaluate(model, half)
    with pytest.raises(UserError, match="no column for 'text'"):
        api.predict(model, table(tmp_path / "other.csv", "id,body_of_it", ("1", "a")))
    assert len(api.predict(model, tmp_path / "other.csv", columns={"text": "body_of_it"})) == 1


def test_a_large_file_is_answered_in_parts(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p, sizes = api.load(model), []
    records = [{"text": f"{text} {n}"} for n in range(3) for text in TEXTS]
    whole = p.predict(records)
    compute = type(p.task).compute_outputs

    def watched(self: Any, model: Any, part: Any, update: Any = None) -> Any:
        sizes.append(len(part))
        return compute(self, model, part, update)

    monkeypatch.setattr(type(p.task), "compute_outputs", watched)
    monkeypatch.setattr("unmask.tasks.task.CHUNK_SIZE", 8)
    told: list[tuple[float, float]] = []
    parts = p.predict(records, lambda done, total, what: told.append((done, total)))
    assert sizes == [8, 8, 5]
    assert [a["label"] for a in parts] == [a["label"] for a in whole]
    assert [a["scores"]["pos"] for a in parts] == near([a["scores"]["pos"] for a in whole], 1e-5)
    assert told[-1] == (21, 21) and told == sorted(told) and {total for _, total in told} == {21}
    assert p.predict([]) == []


def test_lines_of_a_text_file_and_of_standard_input(model: str, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("a joy\n\nno\n")
    answers = api.predict(model, tmp_path / "new.txt")
    assert [(a["text"], a["location"].rpartition(":")[2]) for a in answers] == [("a joy", "1"), ("no", "3")]
    result = CliRunner().invoke(app, ["predict", model, "-", "--json"], input="\ufeffa joy\r\n\r\nno\r\n")
    assert [a["text"] for a in json.loads(result.stdout)] == ["a joy", "no"]
    assert [a["scores"] for a in json.loads(result.stdout)] == [a["scores"] for a in answers]


def test_a_name_of_no_file_is_not_taken_for_a_text(model: str) -> None:
    for name in ("nwe.csv", "folder/new.jsonl.gz"):
        with pytest.raises(UserError, match="no such file"):
            api.predict(model, name)
    assert api.predict(model, "open new.csv")[0]["text"] == "open new.csv"
    assert len(api.predict(model, ["a.csv", "b.csv"])) == 2


def test_a_pair_is_shown_whole(model: str, tmp_path: Path) -> None:
    file = table(tmp_path / "pairs.csv", "premise,hypothesis,label", ("a joy", "no", "pos"))
    (answer,) = api.predict(model, file)
    assert (answer["text"], answer["pair"]) == ("a joy", "no")


def test_the_doctor_stands_before_training(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    good = [(f"Seen from {n}", "pos" if n % 2 else "neg") for n in range(12)]
    test = table(tmp_path / "test.csv", "text,label", ("new", "pos"), ("Seen from  3", "pos"), ("x", "never"))
    train = table(tmp_path / "train.csv", "text,label", *good, ("", "pos"), (good[0][0], "pos"))
    steps: dict[str, Any] = {"task": "classify", "overrides": ["train.steps=1"]}
    with pytest.raises(UserError) as caught:
        api.finetune(model, train=train, test=test, out=tmp_path / "run", **steps)
    assert not (tmp_path / "run").exists(), "an empty folder helps nobody"
    for words in ("2 problems", "train.csv:14: no text", "test.csv:4: the label 'never'"):
        assert words in str(caught.value)
    test = table(tmp_path / "test.csv", "text,label", ("new", "pos"), ("Seen from  3", "pos"))
    train = table(tmp_path / "train.csv", "text,label", *good, (good[0][0], "pos"), ("so " * 40, "pos"))
    run = api.finetune(model, train=train, test=test, out=tmp_path / "good", **steps)
    found = {f["kind"]: f for f in run.read_json("findings.json")}
    assert set(found) == {"contradiction", "leakage", "length"}
    assert found["leakage"]["location"].endswith("test.csv:3") and "train.csv:5" in found["leakage"]["message"]
    assert "read in windows" in found["length"]["message"]
    found_by_doctor = api.doctor(train=[train], test=[test], task="classify", model=model)
    assert {f["kind"] for f in found_by_doctor["findings"]} == set(found)


def test_a_file_of_a_header_alone_is_said_once(model: str, tmp_path: Path) -> None:
    file = table(tmp_path / "head.csv", "text,label")
    for task in ("classify", "auto"):
        try:
            found = [row["message"] for row in api.doctor(file, task=task)["findings"]]
        except UserError as error:  # no task can be told
            found = error.message.splitlines()[1:]
        assert len(found) == 1 and "no rows below its header (text,label)" in found[0]
    for verb in (api.evaluate, api.predict):
        with pytest.raises(UserError, match=r"1 problem .*\n.*no rows below"):
            verb(model, file)


def test_an_empty_text_and_a_column_that_is_not_there(model: str, tmp_path: Path) -> None:
    for nothing in ("", "  \n"):
        with pytest.raises(UserError, match="an empty text"):
            api.predict(model, nothing)
    file = table(tmp_path / "train.csv", "review,stars", ("a joy", "pos"), ("no", "neg"))
    with pytest.raises(UserError, match="no column 'reviw'") as caught:
        api.doctor(file, columns={"text": "reviw"})
    assert "did you mean review" in caught.value.message and caught.value.expected == "review, stars"


def test_what_is_cut_is_said_and_long_decides(model: str, tmp_path: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text("a joy\n" + "so long " * 40 + "\n")
    words = ["predict", model, str(long)]
    assert "longer than a row" not in CliRunner().invoke(app, words).output  # read whole, in windows
    cut = CliRunner().invoke(app, [*words, "--overflow", "truncate"])
    assert cut.exit_code == 0 and "1 of 2 are longer than a row of 64: cut" in cut.output
    refused = CliRunner().invoke(app, [*words, "--overflow", "error"])
    assert refused.exit_code == 2 and "long.txt:2: " in refused.output and "--overflow window" in refused.output
