"""Mistakes in labelled files, each in a real file: found with file and line, all in one pass, with what to do about it."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unmask import UserError, api
from unmask.cli import app

GOOD = [(f"{word} {n}", label) for n in range(15) for word, label in (("what a film", "pos"), ("so boring", "neg"))]


def csv(*rows: tuple[str, ...], head: str = "text,label") -> str:
    return "\n".join([head, *(",".join(row) for row in rows)]) + "\n"


def jsonl(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


RECORD = {"text": "a film", "label": "pos"}


@dataclass
class Case:
    files: dict[str, str | bytes]
    location: str  # file:line
    words: str  # of what is said
    hint: str  # of what to do
    error: bool = True
    options: dict[str, object] = field(default_factory=dict)


CLASSIFY = {
    "row with too many fields": Case({"train.csv": csv(*GOOD, ("well", " well", "pos"))}, "train.csv:32", "3 fields, the header has 2", "quote fields"),
    "row with too few fields": Case({"train.csv": csv(*GOOD[:5], ("alone",), *GOOD[5:])}, "train.csv:7", "1 field, the header has 2", "missing fields"),
    "quote never closed": Case({"train.csv": csv(*GOOD[:4], ('"open', "pos"), *GOOD[4:])}, "train.csv:6", "unclosed quote", "close the quote"),
    "line that is not JSON": Case({"train.jsonl": jsonl(RECORD, "{'text': 'a'}", RECORD)}, "train.jsonl:2", "not JSON", "one complete object"),
    "line that is no object": Case({"train.jsonl": jsonl(RECORD, [1, 2], RECORD)}, "train.jsonl:2", "JSON list", '{"text"'),
    "no label": Case({"train.csv": csv(*GOOD[:3], ("a film", ""), *GOOD[3:])}, "train.csv:5", "no label", "fill it in"),
    "no label, or none applies": Case({"train.csv": csv(*GOOD[:3], ("a film", ""), *GOOD[3:])}, "train.csv:5", "no label", "no label applies: --set task.classify.problem_type=multi_label"),
    "several labels read as one": Case({"train.csv": csv(*GOOD, ("well", '"pos,odd"'), ("oh", '"neg,rare"'))}, "train.csv:32", "'pos,odd' looks like several labels", "problem_type=multi_label --set \"task.classify.label_separator=','\"", error=False),
    "a file of nothing": Case({"train.json": "[]"}, "train.json:1", "no rows", "pass a file"),
    "label null": Case({"train.jsonl": jsonl(RECORD, {"text": "b", "label": None})}, "train.jsonl:2", "no label", "fill it in"),
    "label key missing": Case({"train.jsonl": jsonl(RECORD, {"text": "b"})}, "train.jsonl:2", "no label", "fill it in"),
    "empty text": Case({"train.csv": csv(*GOOD[:3], ("   ", "pos"))}, "train.csv:5", "an empty text", "fill it in"),
    "text of another type": Case({"train.jsonl": jsonl(RECORD, {"text": ["b"], "label": "pos"})}, "train.jsonl:2", "text is list", "fill it in"),
    "no such column": Case({"train.csv": csv(*GOOD, head="text,emotion")}, "train.csv:1", "no column for 'label'", "--column text=text --column label=emotion"),
    "two columns of one name": Case({"train.csv": csv(*[(a, a, b) for a, b in GOOD], head="text,text,label")}, "train.csv:1", "2 columns are named 'text'", "rename the columns"),
    "no header": Case({"train.csv": csv(*GOOD[1:], head="a film that nobody will forget,pos")}, "train.csv:1", "looks like data", "--column text=N", error=False),
    "no header, by its label": Case({"train.csv": csv(*GOOD[1:], head="a film,pos")}, "train.csv:1", "'pos' also occurs further down", "--column text=N", error=False),
    "unknown label in test": Case({"train.csv": csv(*GOOD), "test.csv": csv(("well", "neutral"), ("oh", "pos"))}, "test.csv:2", "'neutral' of test (1 record) does not occur", "'neg', 'pos'"),
    "label not among those given": Case({"train.csv": csv(*GOOD, ("well", "other"))}, "train.csv:32", "'other'", "'neg', 'pos'", options={"labels": ["neg", "pos"]}),
    "only one label": Case({"train.csv": csv(*[(a, "pos") for a, _ in GOOD])}, "train.csv:2", "every record has the label 'pos'", "other labels"),
    "test is train": Case({"train.csv": csv(*GOOD), "test.csv": csv(*GOOD)}, "test.csv:2", "the same records as train", "another file"),
    "no rows": Case({"train.csv": "text,label\n"}, "train.csv:1", "no rows below its header (text,label)", "pass a file"),
    "rare label": Case({"train.csv": csv(*GOOD, ("hm", "mixed"))}, "train.csv:32", "'mixed' has 1 record", "add records", error=False),
    "labels that differ in case": Case({"train.csv": csv(*GOOD, ("fine", "Pos "))}, "train.csv:32", "'Pos' (1 record) differs from 'pos' (15) only in spelling", "write 'pos'", error=False),
    "numbers written in two ways": Case({"train.csv": csv(*[(a, str(len(b))) for a, b in GOOD], ("b", "3.0"), ("c", "1"))}, "train.csv:32", "'3.0' is read as '3'", "", error=False),
    "label nan": Case({"train.csv": csv(*GOOD, ("fine", "nan"))}, "train.csv:32", "looks like a missing value", "fill it in", error=False),
    "duplicate": Case({"train.csv": csv(*GOOD, ("What a  film 0", "pos"), GOOD[0])}, "train.csv:32", "as line 2 (3 times", "keep one", error=False),
    "contradiction": Case({"train.csv": csv(*GOOD, (GOOD[0][0], "neg"))}, "train.csv:32", "as line 2, but a different label: neg here, pos there", "correct one", error=False),
    "leakage": Case({"train.csv": csv(*GOOD), "test.csv": csv(("new", "pos"), GOOD[1])}, "test.csv:3", "also in train, at train.csv:3 (1 of 2", "remove it", error=False),
    "near duplicate in test": Case({"train.csv": csv(*GOOD, (" ".join(f"word{n}" for n in range(60)), "pos")), "dev.csv": csv(("x " + " ".join(f"word{n}" for n in range(60)), "pos"))}, "dev.csv:2", "nearly the same text as train.csv:32", "remove it", error=False),
    "imbalance": Case({"train.csv": csv(*GOOD[1::2], *[(f"good {n}", "pos") for n in range(400)])}, "train.csv:2", "400 records of 'pos', 15 of 'neg'", "macro F1", error=False),
    "label column is an id": Case({"train.csv": csv(*[(a, f"id{n}") for n, (a, _) in enumerate(GOOD)])}, "train.csv:2", "30 different labels in 30 records", "--column label=", error=False),
    "text column is an index": Case({"train.csv": csv(*[(str(n), b) for n, (_, b) in enumerate(GOOD)])}, "train.csv:2", "every text is a number", "--column text=", error=False),
    "wrong encoding before": Case({"train.csv": csv(*GOOD, ("cafÃ© in ZÃ¼rich", "pos"))}, "train.csv:32", "wrong encoding", "UTF-8", error=False),
    "bytes of no encoding": Case({"train.csv": csv(*GOOD).encode() + "é, è".encode() * 9 + b"b\xff\xfe,pos\n"}, "train.csv:32", "bytes that are not text in this encoding", "UTF-8", error=False),
}  # fmt: skip


CONLL = "Ann B-PER\nran O\n\nRome B-LOC\nfell O\n\n"
SQUAD = {"id": "1", "question": "who?", "context": "Ann ran to Rome", "answers": [{"text": "Ann", "answer_start": 0}]}
OTHERS = {
    ("tag", "tag missing"): Case({"train.conll": CONLL + "Ben\nsat O\n"}, "train.conll:7", "1 columns, but other lines have 2", "a word and its tag"),
    ("tag", "tag of no scheme"): Case({"train.conll": CONLL + "Ben X-PER\nsat O\n"}, "train.conll:7", "'X-PER'", "B- or I-", options={"overrides": ["task.tag.scheme=BIO"]}),
    ("tag", "order of tags"): Case({"train.conll": CONLL + "Ben I-PER\nsat O\n"}, "train.conll:7", "I-PER", "B- begins", options={"overrides": ["task.tag.invalid_tags=error", "task.tag.scheme=BIO"]}),
    ("tag", "span outside of the text"): Case({"train.jsonl": jsonl({"text": "Ann ran", "spans": [{"start": 0, "end": 3, "label": "PER"}]}, {"text": "Ben", "spans": [{"start": 0, "end": 9, "label": "PER"}]})}, "train.jsonl:2", "9", ""),
    ("tag", "label that train does not have"): Case({"train.conll": CONLL, "test.conll": "x O\nUN B-ORG\n\n"}, "test.conll:1", "'ORG'", "'LOC', 'PER'"),
    ("answer", "answer is not there"): Case({"train.jsonl": jsonl(SQUAD, {**SQUAD, "id": "2", "answers": [{"text": "Rome", "answer_start": 3}]})}, "train.jsonl:2", "is not at 3", "answer_start: 11"),
    ("answer", "answer is nowhere"): Case({"train.jsonl": jsonl(SQUAD, {**SQUAD, "id": "2", "answers": [{"text": "Oslo", "answer_start": 11}]})}, "train.jsonl:2", "is not at 11", "copy the answer"),
    ("answer", "the same id twice"): Case({"train.jsonl": jsonl(SQUAD, {**SQUAD, "question": "what?"})}, "train.jsonl:2", "the id '1'", "its own id"),
    ("answer", "answered in two ways"): Case({"train.jsonl": jsonl(SQUAD, {**SQUAD, "id": "2", "answers": [{"text": "Rome", "answer_start": 11}]})}, "train.jsonl:2", "as line 1, but a different label", "correct one", error=False),
    ("choose", "label beyond the choices"): Case({"train.jsonl": jsonl({"text": "a", "choices": ["b", "c"], "label": 0}, {"text": "d", "choices": ["b", "c"], "label": 5})}, "train.jsonl:2", "5", ""),
    ("generate", "nothing to write"): Case({"train.csv": csv(("a", "b"), ("c", ""), head="text,target")}, "train.csv:3", "no target", "fill it in"),
    ("rank", "relevance is no number"): Case({"train.csv": csv(("q", "p", "1"), ("q", "r", "much"), head="query,passage,relevance")}, "train.csv:3", "much", ""),
    ("embed", "nothing to compare with"): Case({"train.csv": csv(("a", "b"), ("c", ""), head="text,positive")}, "train.csv:3", "no positive", ""),
}  # fmt: skip


@pytest.mark.parametrize(("task", "name"), OTHERS)
def test_other_tasks_files(task: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(OTHERS[task, name], examine(OTHERS[task, name], tmp_path, monkeypatch, task))


def examine(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, task: str = "classify") -> dict:
    monkeypatch.chdir(folder)
    for name, content in case.files.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return api.doctor(list(case.files), task=task, **case.options)  # type: ignore[arg-type]


def assert_found(case: Case, found: dict) -> None:
    hits = [f for f in found["findings"] if f["location"] == case.location and case.words in f["message"]]
    assert hits, found["findings"]
    assert any(case.hint in hit["hint"] and hit["error"] == case.error for hit in hits), hits
    assert found["errors"] >= 1 if case.error else found["warnings"] >= 1


@pytest.mark.parametrize("name", CLASSIFY)
def test_found_with_file_line_and_fix(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(CLASSIFY[name], examine(CLASSIFY[name], tmp_path, monkeypatch))


def test_a_good_file_has_no_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case({"train.csv": csv(*GOOD), "test.csv": csv(("other", "pos"), ("words", "neg"))}, "", "", "")
    found = examine(case, tmp_path, monkeypatch)
    assert found["findings"] == [] and found["records"] == {"train": 30, "dev": 0, "test": 2}


def test_all_in_one_pass_and_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text(csv(*GOOD, ("", "pos"), ("a", "b", "c"), ("fine", "Pos")))
    Path("test.csv").write_text(csv(("x", "never"), ("what a film 3", "pos")))
    Path("dev.csv").write_text(csv(("x", "y"), head="review,mood"))
    result = CliRunner().invoke(app, ["doctor", "train.csv", "test.csv", "dev.csv", "--task", "classify"])
    assert result.exit_code == 2
    for words in ("train.csv:32: no text", "train.csv:33: 3 fields", "train.csv:34: the label 'Pos'", "test.csv:2: the label 'never'",
                  "test.csv:3: also in train, at train.csv:8", "dev.csv:1: no column for 'label'", "errors, "):  # fmt: skip
        assert words in result.stdout, words
    Path("train.csv").write_text(csv(*GOOD, ("fine", "Pos")))
    result = CliRunner().invoke(app, ["doctor", "--train", "train.csv", "--json"])
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["warnings"] == 2 and found["errors"] == 0
    with pytest.raises(UserError, match="no file"):
        api.doctor([])
    many = csv(*GOOD, *[(f"t {n}", "") for n in range(500)])
    Path("train.csv").write_text(many)
    result = CliRunner().invoke(app, ["doctor", "train.csv", "--task", "classify"])
    lines = result.stdout.splitlines()
    assert lines[0] == "train: train.csv (530 records)" and len(lines) == 3
    assert lines[1].startswith("error: 500 × no label: train.csv:32: no label; fill it in")
    assert lines[1].endswith("also train.csv:33, train.csv:34 …") and "--json lists each of them" in lines[2]
    found = json.loads(CliRunner().invoke(app, ["doctor", "train.csv", "--task", "classify", "--json"]).stdout)
    assert found["errors"] == len(found["findings"]) == 500
    assert [row["location"] for row in found["findings"]] == [f"train.csv:{n}" for n in range(32, 532)]
    good = [{"text": text, "label": label} for text, label in GOOD]
    Path("train.jsonl").write_text(jsonl(*good) + '{"text": \n' * 12_000)  # lines that never become records
    assert len(api.doctor(["train.jsonl"], task="classify")["findings"]) == 12_000


def test_the_terminal_says_what_each_file_is_for_and_the_worst_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sst-train.csv").write_text(csv(*GOOD, *[GOOD[0]] * 4, *[GOOD[1]] * 2))
    Path("sst-devel.csv").write_text(csv(("new", "pos"), ("old", "neg")))
    Path("sst-tst.csv").write_text(csv(GOOD[2], GOOD[3], GOOD[4], GOOD[5], ("fresh", "pos")))
    files = ["sst-tst.csv", "sst-train.csv", "sst-devel.csv"]
    result = CliRunner().invoke(app, ["doctor", *files])
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "train: sst-train.csv (36 records)", "dev:   sst-devel.csv (2 records)", "test:  sst-tst.csv (5 records)"
    ]  # fmt: skip
    assert lines[3].startswith("warning: 2 × duplicate: sst-train.csv:32")
    assert lines[4].startswith("warning: 4 × leakage: sst-tst.csv:2: also in train, at sst-train.csv:4 (4 of 5")
    assert lines[5] == "classify: 0 errors, 6 warnings; --json lists each of them" and len(lines) == 6
    assert [f["kind"] for f in api.doctor(files)["findings"]] == ["duplicate"] * 2 + ["leakage"] * 4
