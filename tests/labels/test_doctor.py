"""Checks of `unmask doctor` on records of every task: which findings are reported, and how many."""

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


def kinds(findings: list[Finding]) -> list[str]:
    return [finding.kind for finding in findings]


def test_multi_label_and_numeric_labels_are_recognized() -> None:
    several = records(*[(f"t {n}", ["a", "b"] if n % 2 else ["a"]) for n in range(40)])
    assert check_records({"train": several}, CLASSIFY) == []
    unknown = check_records({"train": several, "test": records(("x", ["a", "c"]), file="b.csv")}, CLASSIFY)
    assert kinds(unknown) == ["unknown label"] and "'c'" in unknown[0].message
    numbers = records(*[(f"t {n}", n / 7) for n in range(40)])
    assert check_records({"train": numbers, "test": records(("x", 0.31))}, CLASSIFY) == []


def test_order_of_labels_is_not_a_contradiction() -> None:
    findings = check_records(
        {"train": records(("t", ["a", "b"]), ("t", ["b", "a"]), ("u", ["a"]), ("v", ["b"]))}, CLASSIFY
    )
    assert kinds(findings) == ["duplicate"]


def test_contradictions_compare_both_texts_of_a_pair() -> None:
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
def test_checks_on_records_of_every_task(task: str) -> None:
    """Valid records have no findings, the same records in the test set are leakage, and repeated ones are duplicates."""
    kind = TASKS[task].SPEC
    train = [{"location": f"a:{n}", **row} for n, row in enumerate(SHAPES[task], 1)]
    assert check_records({"train": train}, kind) == []
    leaked = [{"location": "b:1", **SHAPES[task][0]}, {"location": "b:2", **SHAPES[task][1]}]
    assert set(kinds(check_records({"train": [*train, *train[:1]], "test": leaked}, kind))) >= {"leakage", "duplicate"}
    same = check_records({"train": train, "test": leaked}, kind)
    assert kinds(same) == ["same file"] and same[0].error


def test_test_tags_missing_from_train_are_reported() -> None:
    train = [{"location": f"a:{n}", **row} for n, row in enumerate(SHAPES["tag"], 1)]
    odd = [{"location": "b:1", "text": "x y", "spans": [{"start": 0, "end": 1, "label": "ORG"}]}]
    assert [
        f.message for f in check_records({"train": train, "test": odd}, TASKS["tag"].SPEC) if f.kind == "unknown label"
    ]


def test_findings_are_condensed_per_kind_with_errors_last() -> None:
    findings = [Finding(f"a.csv:{n}", f"text {n} is odd", error=False) for n in range(500)]
    findings += [Finding(f"a.csv:{n}", "no label", kind="no label") for n in range(4)]
    shown = condense(findings, 3)
    assert [f.error for f in shown] == [False] * 4 + [True] * 4
    assert "497 more" in shown[3].message and "1 more" in shown[-1].message
    rows = as_rows(findings, 100)
    assert len(rows) == 4 + 101 and set(rows[0]) == {"location", "message", "hint", "error", "kind", "count"}
    assert len(as_rows(findings)) == 504
    for items in (findings, from_rows(rows)):  # the stored rows contain the same information
        odd, missing = by_kind(items)
        assert (odd.count, odd.locations, missing.count) == (500, ("a.csv:0", "a.csv:1", "a.csv:2"), 4)
        assert str(missing) == "4 × no label: a.csv:0: no label; also a.csv:1, a.csv:2 …"


def test_most_serious_kind_is_listed_last() -> None:
    """Duplicates within a file are harmless compared with test records that occur in the training set."""
    train = records(*[(f"film {n}", "xy"[n % 2]) for n in range(40)], ("film 0", "x"), ("film 1", "x"))
    dev = records(("film 2", "x"), ("new", "y"), file="d.csv")
    test = records(("film 3", "y"), ("film 4", "x"), ("other", "z"), file="t.csv")
    findings = check_records({"train": train, "dev": dev, "test": test}, CLASSIFY)
    groups = by_kind(findings)
    assert [g.first.kind for g in groups] == ["duplicate", "contradiction", "dev leakage", "leakage", "unknown label"]
    assert [g.serious for g in groups] == [False, False, True, True, True] and groups[3].count == 2
    assert [row["kind"] for row in as_rows(findings)] == [g.first.kind for g in groups for _ in range(g.count)]


def test_invalid_rows_in_a_findings_file_are_tolerated() -> None:
    rows = [
        1,
        "x",
        None,
        {},
        {"location": 3, "message": ["a"], "count": "many"},
        {"location": "a:1", "message": "b", "new": 1},
    ]
    assert [f.count for f in from_rows(rows)] == [1, 1, 1] and len(by_kind(from_rows(rows))) == 3


def test_valid_text_is_not_reported_as_mojibake() -> None:
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
def test_header_is_detected(content: str, is_header: bool, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    findings: list[Finding] = []
    source = open_source(str(tmp_path / "a.csv"), findings)
    assert ([f for f in findings if f.kind == "header"] == []) == is_header
    assert len(source.rows) == content.count("\n") - is_header


def test_json_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"1": "pos", "0": "a"}\n{"1": "neg", "0": "b"}\n')
    findings: list[Finding] = []
    assert open_source(str(tmp_path / "a.jsonl"), findings).columns == ["1", "0"] and findings == []


def test_lengths_are_measured_in_tokens_of_the_model() -> None:
    tokenizer = Tokenizer.train(["abcdefgh " * 50], TokenizerRecipe(type="char"))
    rows = records(*[("ab" * (40 if n % 4 == 0 else 4), "x") for n in range(40)])
    (findings,) = check_lengths(rows, CLASSIFY, tokenizer, 32, "read in windows")
    assert findings.message.startswith("25.0% of the records have more than 30 tokens (the longest 80)")
    assert findings.location == "a.csv:2" and not findings.error
    assert check_lengths(rows, CLASSIFY, tokenizer, 128, "") == []


def test_splits_are_assigned_by_file_name_or_argument() -> None:
    assert assign_splits(["x.csv"], {})["train"] == ["x.csv"]
    assert assign_splits(["only-test.csv"], {}) == {"train": ["only-test.csv"], "dev": [], "test": []}
    findings = assign_splits(["val.csv", "contest.csv"], {"train": ["a.csv"]})
    assert findings == {"train": ["a.csv", "contest.csv"], "dev": ["val.csv"], "test": []}
    both = ["eng.train", "eng.testa", "eng.testb"]
    assert list(assign_splits(both, {}).values()) == [["eng.train"], ["eng.testa"], ["eng.testb"]]
    assert assign_splits(["a.csv", "ner.testa"], {})["test"] == ["ner.testa"]
    separate = ["train/part1.csv", "test/part1.csv"]
    assert assign_splits(separate, {}) == {"train": separate[:1], "dev": [], "test": separate[1:]}
    together = ["test/a.csv", "test/b.csv"]  # a common parent directory determines no split
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
def test_common_file_names_of_splits(role: str, names: str) -> None:
    for name in names.split():
        assert split_of(name) == role, name


def test_many_records_are_checked_quickly() -> None:
    draw = random.Random(0)
    words = [f"w{n}" for n in range(3000)]
    train, test = (
        records(*[(" ".join(draw.choices(words, k=12)), draw.choice("xyz")) for _ in range(count)])
        for count in (6_000, 600)
    )
    start_time = time.process_time()
    assert check_records({"train": train, "test": test}, CLASSIFY) == []
    assert time.process_time() - start_time < 4


def test_a_single_entity_type_is_valid(tmp_path: Path) -> None:
    """Words outside an entity count as a second label, both for spans and for word tags."""
    spans = [
        {"location": f"a:{n}", "text": f"Ann ran {n}", "spans": [{"start": 0, "end": 3, "label": "PER"}]}
        for n in range(30)
    ]
    tags = [{"location": f"a:{n}", "text": f"Ann ran {n}", "tags": ["PER", "O", "O"]} for n in range(30)]
    (tmp_path / "a.conll").write_text("".join(f"Ann B-PER\nran O\n{n} O\n\n" for n in range(30)))
    findings: list[Finding] = []
    read = TASKS["tag"].SPEC.data_format.read(open_source(str(tmp_path / "a.conll"), findings), TaskRecipe(), findings)
    assert len(read) == 30 and findings == []
    for train in (spans, tags, read):
        assert check_records({"train": train}, TASKS["tag"].SPEC) == []


def test_leakage_between_dev_and_test_is_reported() -> None:
    """Thresholds and the best model are selected on dev."""
    train = records(("a", "x"), ("b", "y"), file="train.csv")
    dev = records(("c", "x"), ("d", "y"), ("a", "x"), file="dev.csv")
    test = records(("C ", "x"), ("e", "y"), ("b", "y"), file="test.csv")
    findings = check_records({"train": train, "dev": dev, "test": test}, CLASSIFY)
    assert kinds(findings) == ["dev leakage", "dev leakage", "leakage"] and not any(f.error for f in findings)
    assert [(f.location, f.message) for f in findings] == [
        ("dev.csv:4", "also in train, at train.csv:2 (1 of 3 records of dev are)"),
        ("test.csv:2", "also in dev, at dev.csv:2 (1 of 3 records of test are)"),
        ("test.csv:4", "also in train, at train.csv:3 (1 of 3 records of test are)"),
    ]
    (same,) = check_records({"train": train, "dev": dev[:2], "test": records(("d", "y"), ("c", "x"))}, CLASSIFY)
    assert same.kind == "same file" and not same.error and "same records as dev" in same.message
