"""Question answering files in all formats, and every possible error in them, reported with its location."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unmask.labels.records import Finding, open_source
from unmask.recipe import Recipe
from unmask.tasks.answer.task import Answer

CONTEXT = "Ann met Bob in Paris, and Ann left."


def squad(*qas: dict[str, Any], context: str = CONTEXT) -> dict[str, Any]:
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def qa(text: str = "Paris", start: Any = 15, **more: Any) -> dict[str, Any]:
    return {"id": "q1", "question": "Where?", "answers": [{"text": text, "answer_start": start}], **more}


def read(
    path: Path, value: Any = None, labeled: bool = True, **dump: Any
) -> tuple[list[dict[str, Any]], list[Finding]]:
    if value is not None:
        path.write_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, **dump), "utf-8")
    findings: list[Finding] = []
    source = open_source(str(path), findings)
    assert Answer.SPEC.data_format.matches(source) or not labeled
    return Answer.SPEC.data_format.read(source, Recipe().task, findings, labeled), findings


EXPECTED = {"question": "Where?", "context": CONTEXT, "answers": [{"text": "Paris", "start": 15}], "impossible": False}


def test_every_file_format_gives_the_same_record(tmp_path: Path) -> None:
    listed = {"text": ["Paris"], "answer_start": [15]}
    flat = {"id": "q1", "question": "Where?", "context": CONTEXT}
    table = pa.Table.from_pylist([flat | {"answers": listed}])
    pq.write_table(table, tmp_path / "d.parquet")
    quoted = '"' + json.dumps(listed).replace('"', '""') + '"'
    forms = {
        "a.json": squad(qa(is_impossible=False)),
        "b.json": squad(qa()),
        "b2.json": {"data": [flat | {"answers": listed}]},
        "c.jsonl": json.dumps(flat | {"answers": listed}),
        "c2.jsonl": json.dumps(flat | {"answer": "Paris", "start": 15}),
        "c3.jsonl": json.dumps(flat | {"answer": "Paris"}),
        "d.parquet": None,
        "e.csv": f'id,question,context,answer,answer_start\nq1,Where?,"{CONTEXT}",Paris,15\n',
        "f.csv": f'id,question,context,answers\nq1,Where?,"{CONTEXT}",{quoted}\n',
        "g.csv": f'id,question,context,answers\nq1,Where?,"{CONTEXT}","{listed}"\n',
    }
    for name, value in forms.items():
        records, findings = read(tmp_path / name, value)
        assert not findings, (name, findings)
        assert [{k: v for k, v in r.items() if k not in ("location", "id")} for r in records] == [EXPECTED], name
        assert records[0]["id"] == "q1"


def test_unanswerable_questions_in_every_file_format(tmp_path: Path) -> None:
    plausible = {"answers": [], "plausible_answers": [{"text": "Bob", "answer_start": 8}], "is_impossible": True}
    flat = {"question": "Where?", "context": CONTEXT}
    for name, value in {
        "a.json": squad(qa() | plausible),
        "b.jsonl": json.dumps(flat | {"answers": {"text": [], "answer_start": []}}),
        "c.jsonl": json.dumps(flat | {"answers": []}),
        "d.csv": f'question,context,answer,start\nWhere?,"{CONTEXT}",,\n',
    }.items():
        records, findings = read(tmp_path / name, value)
        assert not findings, (name, findings)
        assert records[0]["impossible"] and records[0]["answers"] == [], name


ERRORS = {  # error → the question, and the message
    "missing start": (
        qa(start=None) | {"answers": [{"text": "Ann"}]},
        "no answer_start for the answer 'Ann' of q1, which occurs at 2 offsets",
    ),
    "outside": (qa(start=99), "outside of the context, which has 35 characters; it occurs at 15"),
    "negative": (qa(start=-1), "outside of the context"),
    "elsewhere": (qa(start=3), "is not at 3, where the context has ' met '; it occurs at 15"),
    "twice elsewhere": (qa("Ann", 5), "2 offsets, the nearest is 0"),
    "nowhere": (qa("London"), "nowhere in the context"),
    "no number": (qa(start="here"), "is not a number: 'here'"),
    "empty answer": (qa(text=""), "no answer of q1"),
    "empty question": (qa(question=" "), "an empty question"),
    "no question": ({k: v for k, v in qa().items() if k != "question"}, "no question"),
    "no answers": ({"id": "q1", "question": "Where?"}, "no answers of q1"),
    "none, yet possible": (qa(answers=[], is_impossible=False), "yet there is no answer"),
    "some, yet impossible": (qa(is_impossible=True), "yet there is an answer: 'Paris'"),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("indent", [2, None])
def test_errors_are_reported_with_their_line(error: str, indent: int | None, tmp_path: Path) -> None:
    bad, message = ERRORS[error]
    good = qa() | {"id": 'a "question": b', "question": 'what is "question":?', 'a "question': 1}
    records, findings = read(tmp_path / "f.json", squad(good, {**bad}, good | {"id": "c"}), indent=indent)
    text = (tmp_path / "f.json").read_text("utf-8")
    (finding,) = [f for f in findings if f.error]
    assert message in str(finding), str(finding)
    _, line, *column = finding.location.removeprefix(str(tmp_path)).split(":")
    line_text = text.splitlines()[int(line) - 1][int(column[0]) - 1 if column else 0 :]
    assert line_text.strip().startswith('"id": "q1"') and bool(column) == (indent is None)
    assert len(records) == 3


def test_whitespace_differences_are_repaired_with_a_warning(tmp_path: Path) -> None:
    context = "He said:  in\nParis, yes"
    for text, start, taken, offset in (
        (" in Paris", 9, "in\nParis", 10),
        ("in Paris", 8, "in\nParis", 10),
        ("Paris ", 13, "Paris", 13),
    ):
        records, (finding,) = read(tmp_path / "f.json", squad(qa(text, start), context=context))
        assert not finding.error and "only in whitespace" in finding.message
        assert records[0]["answers"] == [{"text": taken, "start": offset}]
        assert context[offset : offset + len(taken)] == taken


def test_duplicate_ids_and_missing_contexts_are_reported(tmp_path: Path) -> None:
    _, (finding,) = read(tmp_path / "f.json", squad(qa(), qa()), indent=1)
    assert finding.message == f"the id 'q1' is already used by {tmp_path}/f.json:11"
    _, (finding,) = read(tmp_path / "e.json", squad(qa(), context=""))
    assert finding.message == "no context"
    broken = {"data": [{"title": "Cats", "paragraphs": "none"}]}
    _, (finding,) = read(tmp_path / "s.json", broken)
    assert finding.message == "article 1 (Cats): 'paragraphs' is not a list of objects"


def test_invalid_article_does_not_hide_the_others(tmp_path: Path) -> None:
    value = squad(qa())
    value["data"] += [5, {"title": "bad", "paragraphs": {}}, {"paragraphs": [None, {"context": CONTEXT, "qas": ["x"]}]}]
    value["data"] += squad(qa(text="Rome", id="q2"))["data"]
    records, findings = read(tmp_path / "a.json", value)
    assert [r["id"] for r in records] == ["q1", "q2"]
    messages = "\n".join(f.message for f in findings)
    for words in (
        "item 2 of 'data' is int",
        "article 2 (bad): 'paragraphs'",
        "item 1 of 'paragraphs'",
        "item 1 of 'qas'",
        "Rome",
    ):
        assert words in messages, messages


def test_offsets_are_in_unnormalized_characters(tmp_path: Path) -> None:
    context = "a\r\n😀 ＡＢＣ cafe\u0301 诺曼底"
    start = context.index("诺")
    records, findings = read(tmp_path / "f.json", squad(qa("诺曼底", start), context=context))
    assert not findings and records[0]["context"] == context and records[0]["answers"][0]["start"] == start


def test_reading_without_labels_requires_no_answers(tmp_path: Path) -> None:
    records, findings = read(tmp_path / "f.jsonl", json.dumps({"question": "q", "context": "c"}), labeled=False)
    assert not findings and "answers" not in records[0]
