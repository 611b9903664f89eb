"""Semantic roles: every format gives one record per predicate, with the offsets of the predicate and the roles as tags."""

from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UserError
from unmask.labels.detect_task import pick_task
from unmask.labels.formats import roles
from unmask.labels.records import Finding, open_source
from unmask.recipe import Recipe
from unmask.tasks.tag.form import TagForm

CONLL_2005 = """\
Ann     NNP  -     (A0*)     *
who     WP   -     *         (R-A0*)
wants   VBZ  want  (V*)      *
to      TO   -     (A1*      *
run     VB   run   *         (V*V)
up      RP   -     *         (C-V*)
home    NN   -     *)        (A4*)
.       .    -     *         *

Nobody  NN   -
.       .    -
"""
CONLL_2012 = """\
#begin document (nw/x/00/x_0001); part 000
nw/x_0001  0  0  Ann    NNP  (TOP(S(NP*)  -     -   -  -  (PERSON)  (ARG0*)  (ARG0*)  (3)
nw/x_0001  0  1  wants  VBZ  (VP*         want  01  1  -  *         (V*)     *        -
nw/x_0001  0  2  to     TO   (S(VP*       -     -   -  -  *         (ARG1*   *        -
nw/x_0001  0  3  run    VB   (VP*         run   02  1  -  *         *        (V*)     -
nw/x_0001  0  4  home   NN   (NP*)))))    -     -   -  -  *         *)       (ARG4*)  -

nw/x_0001  0  0  No     DT   (TOP(NP*))   -     -   -  -  *         -
#end document
"""
ROWS_2009 = """\
1 Ann   ann  ann  NNP NNP _ _ 2 2 SBJ  SBJ  _ _       A0 A0
2 wants want want VBZ VBZ _ _ 0 0 ROOT ROOT Y want.01 _  _
3 to    to   to   TO  TO  _ _ 2 2 OPRD OPRD _ _       A1 _
4 run   run  run  VB  VB  _ _ 3 3 IM   IM   Y run.02  _  _
5 home  home home NN  NN  _ _ 4 4 DIR  DIR  _ _       _  A4

1 No    no   no   DT  DT  _ _ 0 0 ROOT ROOT _ _
"""
CONLL_2009 = "\n".join("\t".join(row.split()) for row in ROWS_2009.split("\n"))
LINES = "1 Ann wants to run home ||| B-A0 B-V B-A1 I-A1 I-A1\n3 Ann wants to run home ||| B-A0 O O B-V B-A4\n"
JSONL = (
    '{"words": ["Ann", "wants", "to", "run", "home"], "predicate": 1, "tags": ["B-A0", "B-V", "B-A1", "I-A1", "I-A1"]}\n'
    '{"words": ["Ann", "wants", "to", "run", "home"], "predicate": "run", "tags": ["B-A0", "O", "O", "B-V", "B-A4"]}\n'
)
INDICATED = JSONL.replace('"predicate": 1', '"predicate": [0, 1, 0, 0, 0]').replace(
    '"run", "tags"', '[0,0,0,1,0], "tags"'
)
VERBS = JSONL.replace('"predicate": 1, ', "").replace('"predicate": "run", ', "")
CSV = "words,predicate_index,tags\nAnn wants to run home,1,B-A0 B-V B-A1 I-A1 I-A1\nAnn wants to run home,3,B-A0 O O B-V B-A4\n"


def read(tmp_path: Path, name: str, text: str, **settings: Any) -> tuple[list[dict[str, Any]], list[Finding]]:
    (tmp_path / name).write_text(text, "utf-8")
    findings: list[Finding] = []
    source = open_source(str(tmp_path / name), findings)
    assert pick_task(Recipe().task, [source]).name == "tag"  # detected without a setting
    return TagForm().read(source, Recipe.build({"task": settings}).task, findings), findings


def predicate_and_spans(record: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    text = record["text"]
    spans = [(text[s["start"] : s["end"]], s["label"]) for s in record["spans"]]
    return text[slice(*record["predicate"])], spans


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.txt", LINES), ("a.jsonl", JSONL), ("b.jsonl", INDICATED), ("c.jsonl", VERBS), ("a.csv", CSV)],
)
def test_one_record_per_predicate(name: str, text: str, tmp_path: Path) -> None:
    records, findings = read(tmp_path, name, text)
    assert [predicate_and_spans(r) for r in records] == [
        ("wants", [("Ann", "A0"), ("to run home", "A1")]),
        ("run", [("Ann", "A0"), ("home", "A4")]),
    ]
    assert not [f for f in findings if f.error] and records[0]["text"] == "Ann wants to run home"


@pytest.mark.parametrize("name", ["train.conll", "train.props", "train.txt"])
def test_conll_2005(name: str, tmp_path: Path) -> None:
    records, findings = read(tmp_path, name, CONLL_2005)
    assert [predicate_and_spans(r) for r in records] == [
        ("wants", [("Ann", "A0"), ("to run up home", "A1")]),
        ("run", [("who", "R-A0"), ("home", "A4")]),  # neither V nor C-V is a role to predict
    ]
    assert records[1]["location"] == f"{tmp_path / name}:5" and not findings
    assert records[0]["tags"] == ["B-A0", "O", "O", "B-A1", "I-A1", "I-A1", "I-A1", "O"]


def test_conll_2012(tmp_path: Path) -> None:
    records, findings = read(tmp_path, "x.gold_conll", CONLL_2012)
    assert [predicate_and_spans(r) for r in records] == [
        ("wants", [("Ann", "ARG0"), ("to run home", "ARG1")]),
        ("run", [("Ann", "ARG0"), ("home", "ARG4")]),
    ]
    assert not findings


def test_conll_2009_assigns_roles_to_head_words(tmp_path: Path) -> None:
    records, findings = read(tmp_path, "x.txt", CONLL_2009)
    assert [predicate_and_spans(r) for r in records] == [
        ("wants", [("Ann", "A0"), ("to", "A1")]),
        ("run", [("Ann", "A0"), ("home", "A4")]),
    ]
    assert not findings


def test_errors_are_reported_with_their_lines(tmp_path: Path) -> None:
    _, findings = read(tmp_path, "a.conll", CONLL_2005.replace("*)        (A4*)", "*         (A4*)"))
    assert [(f.location.rsplit(":", 1)[1], f.message) for f in findings] == [("4", "(A1 is never closed")]
    _, findings = read(tmp_path, "b.txt", CONLL_2009.replace("Y\trun.02", "_\t_"))
    assert [f.message for f in findings if f.error] == ["1 predicates (Y in FILLPRED), but 2 columns of roles"]
    _, findings = read(tmp_path, "c.jsonl", JSONL.replace('"predicate": 1', '"predicate": 9'))
    assert findings[0].location.endswith("c.jsonl:1") and "9" in findings[0].message and findings[0].error
    _, findings = read(tmp_path, "d.jsonl", JSONL.replace('"run", "tags"', '"jump", "tags"'))
    assert findings[0].location.endswith("d.jsonl:2") and "'jump' is not in the text" in findings[0].message
    alone = "\n".join(line.split(None, 2)[2] if line else "" for line in CONLL_2005.split("\n"))
    with pytest.raises(UserError, match="the column with the words is missing"):
        read(tmp_path, "e.props", alone)


def test_predicate_is_located_or_the_error_helps() -> None:
    text = "A run is a run, and Runs are runs."
    assert roles.locate_predicate(text, "run#2") == [11, 14] and roles.locate_predicate(text, "RUNS#1") == [20, 24]
    assert roles.locate_predicate(text, (2, 5)) == roles.locate_predicate(text, {"start": 2, "end": 5}) == [2, 5]
    assert roles.locate_predicate("他跑步回家", "跑步") == [1, 3]
    for predicate, message, expected in (
        ("run", "occurs 2 times", "run#1, run#2"),
        ("run#3", "occurs 2 times", "run#1, run#2"),
        ("rum", "'rum' is not in the text", "A, run"),
        (None, "no predicate for", "a word of the text"),
        ((3, 99), "is not a span of the text", "0 to 34"),
    ):
        with pytest.raises(UserError, match=message) as error:
            roles.locate_predicate(text, predicate)
        assert expected in str(error.value.expected)
