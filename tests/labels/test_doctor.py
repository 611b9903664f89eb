"""The data doctor's checks on records of every task's shape: what is said, what is not, and how much of it."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from unmask.labels.doctor import check_records
from unmask.labels.findings import as_rows, by_kind, condense, from_rows
from unmask.labels.records import Finding, open_source
from unmask.labels.split_names import assign_splits, split_of
from unmask.labels.textcheck import MOJIBAKE, check_lengths
from unmask.recipe import TaskRecipe, TokenizerRecipe
from unmask.registry import TASKS
from unmask.text.tokenizer import Tokenizer

CLASSIFY = TASKS["classify"].SPEC


def records(*rows: tuple[str, Any], file: str = "a.csv") -> list[dict[str, Any]]:
    return [{"location": f"{file}:{n}", "text": text, "label": label} for n, (text, label) in enumerate(rows, 2)]


def kinds(found: list[Finding]) -> list[str]:
    return [finding.kind for finding in found]


def test_several_labels_and_numbers_are_not_taken_for_one_label() -> None:
    several = records(*[(f"t {n}", ["a", "b"] if n % 2 else ["a"]) for n in range(40)])
    assert check_records({"train": several}, CLASSIFY) == []
    unknown = check_records({"train": several, "test": records(("x", ["a", "c"]), file="b.csv")}, CLASSIFY)
    assert kinds(unknown) == ["unknown label"] and "'c'" in unknown[0].message
    numbers = records(*[(f"t {n}", n / 7) for n in range(40)])
    assert check_records({"train": numbers, "test": records(("x", 0.31))}, CLASSIFY) == []


def test_the_order_of_several_labels_is_no_contradiction() -> None:
    found = check_records(
        {"train": records(("t", ["a", "b"]), ("t", ["b", "a"]), ("u", ["a"]), ("v", ["b"]))}, CLASSIFY
    )
    assert kinds(found) == ["duplicate"]


def test_a_pair_is_asked_as_a_whole() -> None:
    rows = records(("p", "yes"), ("p", "no"))
    rows[0]["pair"], rows[1]["pair"] = "one", "two"
    assert check_records({"train": rows}, CLASSIFY) == []
    rows[1]["pair"] = "ONE "
    assert kinds(check_records({"train": rows}, CLASSIFY)) == ["contradiction"]


SHAPES: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}],
    "tag": [
        {"text": "Ann ran", "spans": [{"start": 0, "end": 3, "label": "PER"}]},
        {"text": "Rome fell", "spans": [{"start": 0, "end": 4, "label": "LOC"}], "words": [[0, 4], [5, 9]], "tags": ["B-LOC", "O"]},
    ],
    "answer": [
        {"id": "1", "question": "who?", "context": "Ann ran", "answers": [{"text": "Ann", "start": 0}], "impossible": False},
        {"id": "2", "question": "where?", "context": "Ann ran", "answers": [], "impossible": True},
    ],
    "choose": [{"text": "a", "choices": ["b", "c"], "label": 0}, {"text": "d", "choices": ["b", "c"], "label": 1}],
    "generate": [{"text": "a", "target": "b"}, {"text": "c", "target": "d"}],
    "embed": [{"text": "a", "positive": "b"}, {"text": "c", "positive": "d", "negatives": ["e"]}],
    "rank": [
        {"query": "a", "passages": ["b", "c"], "relevance": [1, 0]},
        {"query": "d", "passages": ["b", "c"], "relevance": [0, 1]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("task", SHAPES)
def test_every_task_s_records(task: str) -> None:
    """Good ones: nothing found. The same in test: leakage. Twice: a duplicate."""
    kind = TASKS[task].SPEC
    train = [{"location": f"a:{n}", **row} for n, row in enumerate(SHAPES[task], 1)]
    assert check_records({"train": train}, kind) == []
    leaked = [{"location": "b:1", **SHAPES[task][0]}, {"location": "b:2", **SHAPES[task][1]}]
    assert set(kinds(check_records({"train": [*train, *train[:1]], "test": leaked}, kind))) >= {"leakage", "duplicate"}
    same = check_records({"train": train, "test": leaked}, kind)
    assert kinds(same) == ["same file"] and same[0].error


def test_tags_of_a_test_file_that_train_does_not_have() -> None:
    train = [{"location": f"a:{n}", **row} for n, row in enumerate(SHAPES["tag"], 1)]
    odd = [{"location": "b:1", "text": "x y", "spans": [{"start": 0, "end": 1, "label": "ORG"}]}]
    assert [
        f.message for f in check_records({"train": train, "test": odd}, TASKS["tag"].SPEC) if f.kind == "unknown label"
    ]


def test_few_lines_of_each_kind_errors_last() -> None:
    findings = [Finding(f"a.csv:{n}", f"text {n} is odd", error=False) for n in range(500)]
    findings += [Finding(f"a.csv:{n}", "no label", kind="no label") for n in range(4)]
    shown = condense(findings, 3)
    assert [f.error for f in shown] == [False] * 4 + [True] * 4
    assert "497 more" in shown[3].message and "1 more" in shown[-1].message
    rows = as_rows(findings, 100)
    assert len(rows) == 4 + 101 and set(rows[0]) == {"location", "message", "hint", "error", "kind", "count"}
    assert len(as_rows(findings)) == 504
    for given in (findings, from_rows(rows)):  # what a run keeps says as much
        odd, lacking = by_kind(given)
        assert (odd.count, odd.locations, lacking.count) == (500, ("a.csv:0", "a.csv:1", "a.csv:2"), 4)
        assert str(lacking) == "4 × no label: a.csv:0: no label; also a.csv:1, a.csv:2 …"


def test_the_most_serious_kind_comes_last() -> None:
    """Copies within a file are harmless beside test records that were learnt."""
    train = records(*[(f"film {n}", "xy"[n % 2]) for n in range(40)], ("film 0", "x"), ("film 1", "x"))
    dev = records(("film 2", "x"), ("new", "y"), file="d.csv")
    test = records(("film 3", "y"), ("film 4", "x"), ("other", "z"), file="t.csv")
    found = check_records({"train": train, "dev": dev, "test": test}, CLASSIFY)
    groups = by_kind(found)
    assert [g.first.kind for g in groups] == ["duplicate", "contradiction", "dev leakage", "leakage", "unknown label"]
    assert [g.serious for g in groups] == [False, False, True, True, True] and groups[3].count == 2
    assert [row["kind"] for row in as_rows(found)] == [g.first.kind for g in groups for _ in range(g.count)]


def test_a_file_of_findings_that_somebody_changed() -> None:
    rows = [
        1,
        "x",
        None,
        {},
        {"location": 3, "message": ["a"], "count": "many"},
        {"location": "a:1", "message": "b", "new": 1},
    ]
    assert [f.count for f in from_rows(rows)] == [1, 1, 1] and len(by_kind(from_rows(rows))) == 3


def test_writing_that_only_looks_like_a_wrong_encoding() -> None:
    for good in ("Ãlvaro", "São Paulo", "â la carte", "naïve café", "Â Ñ", "日本語", "€ 5 – ok", "Ångström"):
        assert not MOJIBAKE.search(good), good
    for text in ("é", "ü", "’", "“", "–", "…", "ñ"):
        assert MOJIBAKE.search(text.encode().decode("cp1252", "replace")), text


@pytest.mark.parametrize(
    ("content", "is_header"),
    [
        ("text,label\na,x\n", True),
        ("review,stars\na,5\n", True),
        ("a film that I will not forget,pos\nb,neg\n", False),
        ("what,1\nb,0\nc,1\n", False),
        ("good,pos\nbad,neg\nfine,pos\nwell,pos\nso,neg\nno,neg\n", False),
        ("label,text\nlabel,a text about labels\nother,b\n", True),
    ],
)
def test_headers(content: str, is_header: bool, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    findings: list[Finding] = []
    source = open_source(str(tmp_path / "a.csv"), findings)
    assert ([f for f in findings if f.kind == "header"] == []) == is_header
    assert len(source.rows) == content.count("\n") - is_header


def test_json_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"1": "pos", "0": "a"}\n{"1": "neg", "0": "b"}\n')
    findings: list[Finding] = []
    assert open_source(str(tmp_path / "a.jsonl"), findings).columns == ["1", "0"] and findings == []


def test_length_is_measured_by_the_model_s_tokens() -> None:
    tokenizer = Tokenizer.train(["abcdefgh " * 50], TokenizerRecipe(type="char"))
    rows = records(*[("ab" * (40 if n % 4 == 0 else 4), "x") for n in range(40)])
    (found,) = check_lengths(rows, CLASSIFY, tokenizer, 32, "read in windows")
    assert found.message.startswith("25.0% of the records have more than 30 tokens (the longest 80)")
    assert found.location == "a.csv:2" and not found.error
    assert check_lengths(rows, CLASSIFY, tokenizer, 128, "") == []


def test_roles_by_name_and_given() -> None:
    assert assign_splits(["x.csv"], {})["train"] == ["x.csv"]
    assert assign_splits(["only-test.csv"], {}) == {"train": ["only-test.csv"], "dev": [], "test": []}
    found = assign_splits(["val.csv", "contest.csv"], {"train": ["a.csv"]})
    assert found == {"train": ["a.csv", "contest.csv"], "dev": ["val.csv"], "test": []}
    both = ["eng.train", "eng.testa", "eng.testb"]
    assert list(assign_splits(both, {}).values()) == [["eng.train"], ["eng.testa"], ["eng.testb"]]
    assert assign_splits(["a.csv", "ner.testa"], {})["test"] == ["ner.testa"]
    apart = ["train/part1.csv", "test/part1.csv"]
    assert assign_splits(apart, {}) == {"train": apart[:1], "dev": [], "test": apart[1:]}
    together = ["test/a.csv", "test/b.csv"]  # a folder that all share tells nothing
    assert assign_splits(together, {})["train"] == together


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("train", "train.csv training.jsonl trn.tsv sst2-train.tsv train_v2.csv trainData.csv TRAIN.csv my.trainset.json 训练集.csv en_ewt-ud-train.conllu"),
        ("dev", "dev.csv devel.tsv x.dev.conll valid.csv validation.parquet val2.csv eval.json devset.csv Validation.csv 验证集.csv 开发.txt dev-v2.0.json"),
        ("test", "test.csv tst.tsv testb.conll wnut17-test.conll heldout.csv held-out.csv TestSet.csv test_1k.jsonl.gz 测试集.xlsx testing.csv"),
        ("", "contest.csv latest.csv invalid.csv data.csv trainer.csv devices.csv evaluator.csv fine-tune.csv"),
    ],
)  # fmt: skip
def test_usual_spellings_of_roles(role: str, names: str) -> None:
    for name in names.split():
        assert split_of(name) == role, name


def test_many_records_are_looked_at_quickly() -> None:
    draw = random.Random(0)
    words = [f"w{n}" for n in range(3000)]
    train, test = (
        records(*[(" ".join(draw.choices(words, k=12)), draw.choice("xyz")) for _ in range(count)])
        for count in (6_000, 600)
    )
    begun = time.process_time()
    assert check_records({"train": train, "test": test}, CLASSIFY) == []
    assert time.process_time() - begun < 4


def test_one_kind_of_entity_is_enough(tmp_path: Path) -> None:
    """Words outside it are the other label, in spans as in tags of words."""
    spans = [
        {"location": f"a:{n}", "text": f"Ann ran {n}", "spans": [{"start": 0, "end": 3, "label": "PER"}]}
        for n in range(30)
    ]
    tags = [{"location": f"a:{n}", "text": f"Ann ran {n}", "tags": ["PER", "O", "O"]} for n in range(30)]
    (tmp_path / "a.conll").write_text("".join(f"Ann B-PER\nran O\n{n} O\n\n" for n in range(30)))
    found: list[Finding] = []
    read = TASKS["tag"].SPEC.data_format.read(open_source(str(tmp_path / "a.conll"), found), TaskRecipe(), found)
    assert len(read) == 30 and found == []
    for train in (spans, tags, read):
        assert check_records({"train": train}, TASKS["tag"].SPEC) == []


def test_dev_and_test_are_compared_too() -> None:
    """Thresholds and the best model are chosen on dev."""
    train = records(("a", "x"), ("b", "y"), file="train.csv")
    dev = records(("c", "x"), ("d", "y"), ("a", "x"), file="dev.csv")
    test = records(("C ", "x"), ("e", "y"), ("b", "y"), file="test.csv")
    found = check_records({"train": train, "dev": dev, "test": test}, CLASSIFY)
    assert kinds(found) == ["dev leakage", "dev leakage", "leakage"] and not any(f.error for f in found)
    assert [(f.location, f.message) for f in found] == [
        ("dev.csv:4", "also in train, at train.csv:2 (1 of 3 records of dev are)"),
        ("test.csv:2", "also in dev, at dev.csv:2 (1 of 3 records of test are)"),
        ("test.csv:4", "also in train, at train.csv:3 (1 of 3 records of test are)"),
    ]
    (same,) = check_records({"train": train, "dev": dev[:2], "test": records(("d", "y"), ("c", "x"))}, CLASSIFY)
    assert same.kind == "same file" and not same.error and "same records as dev" in same.message
