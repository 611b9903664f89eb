"""`predict` does not check labels, which it does not need, and `evaluate --bad-rows skip` skips invalid rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from unmask import UserError, api
from unmask.cli import app
from unmask.labels.records import Finding, open_source
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TaskRecipe, TokenizerRecipe
from unmask.registry import TASKS
from unmask.text.tokenizer import Tokenizer

SHAPE = {"hidden": 32, "heads": 2, "layers": 1, "intermediate": 64, "max_positions": 64}
LABELS = {"classify": ("neg", "pos"), "tag": ("O", "B-PER", "I-PER"), "answer": ()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Untrained models, which is enough here."""
    folder = tmp_path_factory.mktemp("bad")
    tokenizer = Tokenizer.train(["what a film so dull, a joy Ann ran who?"] * 3, TokenizerRecipe(type="char"))
    for task, labels in LABELS.items():
        config = preset("bert-tiny", vocab_size=tokenizer.size, **SHAPE, **({"labels": labels} if labels else {}))
        hf.save(Model(config, (task,)).init(0), folder / task, tokenizer)
    return {task: str(folder / task) for task in LABELS}


def jsonl(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


SQUAD = {"id": "1", "question": "who?", "context": "Ann ran"}
WRONG: dict[str, dict[str, str]] = {  # task → files with invalid or missing labels
    "classify": {
        "none.csv": "text\na joy\nno\n",
        "empty.csv": "text,label\na joy,\nno,pos\n",
        "lists.jsonl": jsonl({"text": "a joy", "label": ["a", {}]}, {"text": "no", "label": None}),
    },
    "tag": {
        "mixed.conll": "Ann\tB-PER\nran\n\nso\tE-X\n.\tnever\n",
        "one.conll": "Ann\nran\n",
        "universal.conllu": "1\tAnn\tAnn\t_\t_\t_\t_\t_\t_\t_\n",
        "spans.jsonl": jsonl({"text": "Ann ran", "spans": [{"start": 5, "end": 2}]}, {"text": "so", "spans": "x"}),
        "words.jsonl": jsonl({"tokens": ["Ann", "ran"], "tags": ["B-PER"]}, {"tokens": ["so"], "tags": [7]}),
    },
    "answer": {
        "places.jsonl": jsonl(SQUAD | {"answers": [{"text": "Oslo", "answer_start": 3}]}),
        "both.jsonl": jsonl(SQUAD | {"answers": [{"text": "Ann", "answer_start": 0}], "is_impossible": True}),
        "squad.json": json.dumps({"data": [{"paragraphs": [{"context": "Ann ran", "qas": [{"question": "who?", "answers": "?"}]}]}]}),
    },
    "choose": {"beyond.jsonl": jsonl({"text": "a", "choices": ["b", "c"], "label": 7}, {"text": "d", "choices": ["b", "c"]})},
    "generate": {"numbers.jsonl": jsonl({"text": "a", "target": {"x": 1}}, {"text": "c", "target": [None]})},
    "embed": {"score.jsonl": jsonl({"sentence1": "a", "sentence2": "b", "score": "much", "negatives": [7]})},
    "rank": {
        "pairs.csv": "query,passage,relevance\nq,p,much\nq,r,\n",
        "whole.jsonl": jsonl({"query": "q", "passages": ["p", "r"], "relevance": ["much"]}),
        "lists.jsonl": jsonl({"query": "q", "positives": ["p"]}),
    },
}  # fmt: skip


@pytest.mark.parametrize(("task", "file"), [(task, file) for task, files in WRONG.items() for file in files])
def test_reading_without_labels_ignores_invalid_labels(task: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(WRONG[task][file])
    findings: list[Finding] = []
    data_format = TASKS[task].SPEC.data_format
    records = data_format.read(open_source(str(tmp_path / file), findings), TaskRecipe(), findings, labeled=False)
    assert records and not findings
    for record in records:
        assert not {"label", "tags", "spans", "answers", "target", "score", "negatives"} & set(record)
        assert not any(record.get("relevance", ()))


def test_predict_ignores_labels_in_files(models: dict[str, str], tmp_path: Path) -> None:
    """The label column of the training file had another name; here it is missing, unknown or truncated."""
    model = tmp_path / "model"
    model.mkdir()
    for file in Path(models["classify"]).iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    settings = {"columns": {"text": "review", "label": "stars"}}
    task_state = {"length": 64, "labels": ["neg", "pos"], "target": "single_label"}
    values = {"version": 2, "task": "classify", "settings": settings, "task_state": task_state}
    (model / "unmask.json").write_text(json.dumps(values))
    expected = [answer["label"] for answer in api.predict(model, ["a joy", "no"])]
    for text in (
        "review\na joy\nno\n",
        "review,stars\na joy,never\nno,\n",
        "review,mood\na joy,5\nno,4\n",
        "review,stars\na joy\nno,pos\n",  # a row without its label field
    ):
        (tmp_path / "new.csv").write_text(text)
        answers = api.predict(model, tmp_path / "new.csv")
        assert [a["text"] for a in answers] == ["a joy", "no"] and [a["label"] for a in answers] == expected
        assert not any("stars" in a or "mood" in a for a in answers)
    (tmp_path / "new.csv").write_text("id,review,stars\n1\n2,no,pos\n")  # the text is missing too
    with pytest.raises(UserError, match="1 field"):
        api.predict(model, tmp_path / "new.csv")


def test_txt_file_with_words_and_tags_is_recognized(models: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("Ann B-PER\nran O\n\nso O\nran O\n")
    assert [a["text"] for a in api.predict(models["tag"], tmp_path / "new.txt")] == ["Ann ran", "so ran"]
    (tmp_path / "new.txt").write_text("Ann ran so\nwhat a film\n")
    assert [a["text"] for a in api.predict(models["tag"], tmp_path / "new.txt")] == ["Ann ran so", "what a film"]


@pytest.mark.parametrize("name", ["new.txt", "new.md", "new", "new.txt.gz"])
def test_text_lines_are_predicted_for_any_file_name(name: str, models: dict[str, str], tmp_path: Path) -> None:
    content = b"a joy\nso dull\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert [a["text"] for a in api.predict(models["classify"], tmp_path / name)] == ["a joy", "so dull"]


def test_classifier_rejects_files_of_words_and_tags(models: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "new.conll").write_text("Ann B-PER\nran O\n")
    with pytest.raises(UserError, match="not a table") as caught:
        api.predict(models["classify"], tmp_path / "new.conll")
    assert "--column" not in (caught.value.hint or "")  # naming a column would not help


# ---------------------------------------------------------------------------------------------------------- --bad-rows skip

GOOD = ["what a film,pos", "so dull,neg", "a joy,pos", "no,neg"]
BAD = {3: ",pos", 5: "a film,", 6: "a film,-", 8: "joy"}  # line → no text, no label, unknown label, too few fields


def scores(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if not key.startswith("skipped") and key != "details"}


def test_bad_rows_are_skipped_counted_and_listed(models: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("\n".join(["text,label", *GOOD]))
    lines = ["text,label", *GOOD]
    for number, line in BAD.items():
        lines.insert(number - 1, line)
    (tmp_path / "bad.csv").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"bad\.csv:3: no text"):
        api.evaluate(models["classify"], tmp_path / "bad.csv")
    clean = api.evaluate(models["classify"], tmp_path / "good.csv")
    skipping = api.evaluate(models["classify"], tmp_path / "bad.csv", bad_rows="skip")
    assert scores(skipping) == scores(clean) and skipping["records"] == 4 and "skipped" not in clean
    assert skipping["skipped"] == 4
    line_numbers = sorted({int(row["location"].rpartition(":")[2]) for row in skipping["skipped_rows"]})
    assert line_numbers == list(BAD) and all(row["message"] for row in skipping["skipped_rows"])
    assert api.evaluate(models["classify"], tmp_path / "good.csv", bad_rows="skip")["skipped"] == 0

    command = ["evaluate", models["classify"], str(tmp_path / "bad.csv"), "--bad-rows", "skip"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0 and "4 records, 4 rows skipped" in result.stdout
    assert "skipped: " in result.stderr and "bad.csv:3: no text" in result.stderr
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["skipped_rows"] == skipping["skipped_rows"]
    result = CliRunner().invoke(app, [*command[:-1], "drop"])
    assert result.exit_code == 2 and "skip" in result.output


def test_errors_of_a_whole_file_still_raise(models: dict[str, str], tmp_path: Path) -> None:
    for text, words in {
        "text,label\n": "no rows",
        "thing,label\na joy,pos\n": "no column for 'text'",
        "text,label,label\na joy,pos,neg\n": "2 columns are named 'label'",
        "text,label\na joy,\nno,\n": "2 problems",
        "text,label\na joy,x\nno,y\n": "none of the labels is known",
    }.items():
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(UserError, match=words):
            api.evaluate(models["classify"], tmp_path / "bad.csv", bad_rows="skip")


def test_invalid_json_lines_are_skipped(models: dict[str, str], tmp_path: Path) -> None:
    rows = jsonl({"text": "a joy", "label": "pos"}) + '{"text": \n7\n' + jsonl({"text": "no", "label": "neg"})
    (tmp_path / "bad.jsonl").write_text(rows)
    result = api.evaluate(models["classify"], tmp_path / "bad.jsonl", bad_rows="skip")
    assert (result["records"], result["skipped"]) == (2, 2)


def test_sentence_with_an_invalid_word_is_skipped(models: dict[str, str], tmp_path: Path) -> None:
    good = "Ann\tB-PER\nran\tO\n\nso\tO\nran\tO\n\n"
    (tmp_path / "good.conll").write_text(good)
    (tmp_path / "bad.conll").write_text("no\tO\tO\nAnn\tB-PER\n\n" + good + "joy\tO\nran\t\n\na\tB-LOC\n")
    clean = api.evaluate(models["tag"], tmp_path / "good.conll")
    result = api.evaluate(models["tag"], tmp_path / "bad.conll", bad_rows="skip")
    assert scores(result) == scores(clean)
    assert sorted(int(row["location"].rpartition(":")[2]) for row in result["skipped_rows"]) == [1, 11, 13]


def test_question_with_an_answer_outside_its_context_is_skipped(models: dict[str, str], tmp_path: Path) -> None:
    def qa(n: int, text: str) -> dict[str, Any]:
        return {"id": str(n), "question": f"who {n}?", "answers": [{"text": text, "answer_start": 0}]}

    paragraph = {"context": "Ann ran", "qas": [qa(1, "Ann"), qa(2, "Bob"), qa(3, "Ann ran")]}
    (tmp_path / "bad.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}, indent=1))
    result = api.evaluate(models["answer"], tmp_path / "bad.json", bad_rows="skip")
    assert (result["records"], result["skipped"], result["total"]) == (2, 1, 2)
    assert "'Bob'" in result["skipped_rows"][0]["message"]


def test_error_of_a_bad_row_suggests_the_skip_flag(models: dict[str, str], tmp_path: Path) -> None:
    """For an empty file the hint is left out: there is no row to skip."""
    file = tmp_path / "a.csv"
    file.write_text("text,label\na joy,pos\n,neg\n")
    with pytest.raises(UserError) as caught:
        api.evaluate(models["classify"], file)
    assert "--bad-rows skip" in str(caught.value.hint)
    assert api.evaluate(models["classify"], file, bad_rows="skip")["skipped"] == 1
    file.write_text("")
    with pytest.raises(UserError) as caught:
        api.evaluate(models["classify"], file)
    assert "--bad-rows" not in str(caught.value)
