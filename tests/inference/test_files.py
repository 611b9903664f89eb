"""A fine-tuned model on files: order and IDs are kept, labels are not needed, and training starts with the checks of `doctor`."""

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
    """An untrained classifier, which is enough here."""
    folder = tmp_path_factory.mktemp("judge") / "model"
    tokenizer = Tokenizer.train([*TEXTS, "Seen from 0123456789"] * 3, TokenizerRecipe(type="char"))
    shape = {"hidden": 32, "heads": 2, "layers": 1, "intermediate": 64, "max_positions": 64, "labels": ("neg", "pos")}
    hf.save(Model(preset("bert-tiny", vocab_size=tokenizer.size, **shape), ("classify",)).init(0), folder, tokenizer)
    return str(folder)


def write_table(path: Path, head: str, *rows: tuple[str, ...]) -> str:
    lines = [head, *(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_predict_keeps_order_and_ids_and_needs_no_labels(model: str, tmp_path: Path) -> None:
    file = write_table(tmp_path / "new.csv", "id,text", *[(f"r{9 - n}", text) for n, text in enumerate(TEXTS)])
    answers = api.predict(model, file)
    assert [a["id"] for a in answers] == [f"r{9 - n}" for n in range(len(TEXTS))]
    assert [a["text"] for a in answers] == TEXTS
    assert [int(a["location"].rpartition(":")[2]) for a in answers] == [2, 3, 4, 5, 6, 8, 9]
    alone = [api.predict(model, text)[0] for text in TEXTS[:2]]
    assert [a["scores"]["pos"] for a in answers[:2]] == near([a["scores"]["pos"] for a in alone], 1e-5)
    half = write_table(tmp_path / "half.csv", "text,label", ("a joy", "pos"), ("no", ""))
    assert len(api.predict(model, half)) == 2, "missing labels are not an error here"
    with pytest.raises(UserError, match=r"half\.csv:3: no label"):
        api.evaluate(model, half)
    with pytest.raises(UserError, match="no column for 'text'"):
        api.predict(model, write_table(tmp_path / "other.csv", "id,body_of_it", ("1", "a")))
    assert len(api.predict(model, tmp_path / "other.csv", columns={"text": "body_of_it"})) == 1


def test_large_file_is_predicted_in_chunks(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p, sizes = api.load(model), []
    records = [{"text": f"{text} {n}"} for n in range(3) for text in TEXTS]
    whole = p.predict(records)
    compute = type(p.task).compute_outputs

    def recording_compute(self: Any, model: Any, part: Any, update: Any = None) -> Any:
        sizes.append(len(part))
        return compute(self, model, part, update)

    monkeypatch.setattr(type(p.task), "compute_outputs", recording_compute)
    monkeypatch.setattr("unmask.tasks.task.CHUNK_SIZE", 8)
    progress: list[tuple[float, float]] = []
    parts = p.predict(records, lambda done, total, message: progress.append((done, total)))
    assert sizes == [8, 8, 5]
    assert [a["label"] for a in parts] == [a["label"] for a in whole]
    assert [a["scores"]["pos"] for a in parts] == near([a["scores"]["pos"] for a in whole], 1e-5)
    assert progress[-1] == (21, 21) and progress == sorted(progress) and {total for _, total in progress} == {21}
    assert p.predict([]) == []


def test_predict_reads_text_files_and_standard_input(model: str, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("a joy\n\nno\n")
    answers = api.predict(model, tmp_path / "new.txt")
    assert [(a["text"], a["location"].rpartition(":")[2]) for a in answers] == [("a joy", "1"), ("no", "3")]
    result = CliRunner().invoke(app, ["predict", model, "-", "--json"], input="\ufeffa joy\r\n\r\nno\r\n")
    assert [a["text"] for a in json.loads(result.stdout)] == ["a joy", "no"]
    assert [a["scores"] for a in json.loads(result.stdout)] == [a["scores"] for a in answers]


def test_missing_file_name_is_not_predicted_as_text(model: str) -> None:
    for name in ("nwe.csv", "folder/new.jsonl.gz"):
        with pytest.raises(UserError, match="no such file"):
            api.predict(model, name)
    assert api.predict(model, "open new.csv")[0]["text"] == "open new.csv"
    assert len(api.predict(model, ["a.csv", "b.csv"])) == 2


def test_prediction_of_a_pair_contains_both_texts(model: str, tmp_path: Path) -> None:
    file = write_table(tmp_path / "pairs.csv", "premise,hypothesis,label", ("a joy", "no", "pos"))
    (answer,) = api.predict(model, file)
    assert (answer["text"], answer["pair"]) == ("a joy", "no")


def test_training_runs_the_data_checks_first(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    good = [(f"Seen from {n}", "pos" if n % 2 else "neg") for n in range(12)]
    test = write_table(tmp_path / "test.csv", "text,label", ("new", "pos"), ("Seen from  3", "pos"), ("x", "never"))
    train = write_table(tmp_path / "train.csv", "text,label", *good, ("", "pos"), (good[0][0], "pos"))
    steps: dict[str, Any] = {"task": "classify", "overrides": ["train.steps=1"]}
    with pytest.raises(UserError) as caught:
        api.finetune(model, train=train, test=test, out=tmp_path / "run", **steps)
    assert not (tmp_path / "run").exists(), "an empty run directory was left behind"
    for words in ("2 problems", "train.csv:14: no text", "test.csv:4: the label 'never'"):
        assert words in str(caught.value)
    test = write_table(tmp_path / "test.csv", "text,label", ("new", "pos"), ("Seen from  3", "pos"))
    train = write_table(tmp_path / "train.csv", "text,label", *good, (good[0][0], "pos"), ("so " * 40, "pos"))
    run = api.finetune(model, train=train, test=test, out=tmp_path / "good", **steps)
    findings = {f["kind"]: f for f in run.read_json("findings.json")}
    assert set(findings) == {"contradiction", "leakage", "length"}
    assert findings["leakage"]["location"].endswith("test.csv:3") and "train.csv:5" in findings["leakage"]["message"]
    assert "read in windows" in findings["length"]["message"]
    report = api.doctor(train=[train], test=[test], task="classify", model=model)
    assert {f["kind"] for f in report["findings"]} == set(findings)


def test_file_with_only_a_header_is_reported_once(model: str, tmp_path: Path) -> None:
    file = write_table(tmp_path / "head.csv", "text,label")
    for task in ("classify", "auto"):
        try:
            messages = [row["message"] for row in api.doctor(file, task=task)["findings"]]
        except UserError as error:  # the task cannot be detected
            messages = error.message.splitlines()[1:]
        assert len(messages) == 1 and "no rows below its header (text,label)" in messages[0]
    for function in (api.evaluate, api.predict):
        with pytest.raises(UserError, match=r"1 problem .*\n.*no rows below"):
            function(model, file)


def test_empty_text_and_missing_column_raise(model: str, tmp_path: Path) -> None:
    for text in ("", "  \n"):
        with pytest.raises(UserError, match="an empty text"):
            api.predict(model, text)
    file = write_table(tmp_path / "train.csv", "review,stars", ("a joy", "pos"), ("no", "neg"))
    with pytest.raises(UserError, match="no column 'reviw'") as caught:
        api.doctor(file, columns={"text": "reviw"})
    assert "did you mean review" in caught.value.message and caught.value.expected == "review, stars"


def test_truncated_texts_are_reported_and_overflow_is_respected(model: str, tmp_path: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text("a joy\n" + "so long " * 40 + "\n")
    words = ["predict", model, str(long)]
    assert "longer than a row" not in CliRunner().invoke(app, words).output  # read completely, in windows
    truncated = CliRunner().invoke(app, [*words, "--overflow", "truncate"])
    assert truncated.exit_code == 0 and "1 of 2 are longer than a row of 64: cut" in truncated.output
    rejected = CliRunner().invoke(app, [*words, "--overflow", "error"])
    assert rejected.exit_code == 2 and "long.txt:2: " in rejected.output and "--overflow window" in rejected.output
