"""Errors in labeled files and models: each gives a clear message, and no empty directory is left behind."""

import json
from pathlib import Path

import pytest
from runs.tiny import labeled, model_folder
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from typer.testing import CliRunner

from unmask.cli import app
from unmask.labels.findings import condense
from unmask.labels.records import Finding

FAST = ["--steps=2", "--batch-size=4"]
RELEVANT = "query,passage,relevance\nred,a red car,1\n"
PAIRS = "text,positive\n" + "".join(f"anna saw a film {n},a film {n}\n" for n in range(30))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    model_folder(folder / "model")
    labeled(folder / "reviews.csv", 30)
    (folder / "relevant.csv").write_text(RELEVANT)
    (folder / "pairs.csv").write_text(PAIRS)
    (folder / "written.csv").write_text("text,target\n" + "anna saw a film,a film\n" * 30)
    (folder / "tagged.conll").write_text("anna B-PER\nsaw O\n\n" * 30)
    (folder / "choices.jsonl").write_text('{"text": "2 + 2 =", "choices": ["4", "5"], "label": 0}\n' * 30)
    (folder / "tasks.yaml").write_text(
        "tasks:\n  a: {kind: classify, train: [reviews.csv], patience: 2}\n  b: {kind: classify, train: [reviews.csv]}\n"
    )
    larger = model_folder(folder / "larger")
    backend = Backend.from_file(str(larger / "tokenizer.json"))
    backend.add_special_tokens([AddedToken("<user>", special=True)])
    backend.save(str(larger / "tokenizer.json"))
    (folder / "empty").mkdir()
    (folder / "void.csv").write_text("")
    return folder


CASES: dict[str, tuple[str, list[str]]] = {
    "no such file": ("finetune model --train reveiws.csv", ["reveiws.csv"]),
    "empty file": ("finetune model --train void.csv", ["void.csv"]),
    "no training file": ("finetune model", ["--train"]),
    "no such model": ("finetune nosuch --train reviews.csv", ["nosuch"]),
    "not a model": ("finetune empty --train reviews.csv", ["empty"]),
    "a file instead of a model": ("finetune reviews.csv", ["is a file, not a model folder", "--train reviews.csv"]),
    "unknown role": ("finetune model --train reviews.csv --column txt=text", ["unknown role 'txt'", "did you mean text?"]),
    "words and tags for a classifier": ("finetune model --train tagged.conll --task classify", ["not a table", "unmask doctor tagged.conll"]),
    "a label that is not listed": ("finetune model --train reviews.csv --labels x,y", ["is not in --labels", "add it to --labels"]),
    "unknown task": ("finetune model --train reviews.csv --task clasify", ["clasify", "classify"]),
    "another task's file": ("finetune model --train reviews.csv --task answer", ["reviews.csv"]),
    "no such column": ("finetune model --train reviews.csv --column text=txt", ["txt", "text, label"]),
    "max length too small": ("finetune model --train reviews.csv --max-length 2", ["--max-length 2", "8 to 64"]),
    "max length too small for a pair": ("finetune model --train choices.jsonl --max-length 3", ["--max-length 3", "8 to 64"]),
    "max length beyond the model": ("finetune model --train reviews.csv --max-length 65", ["--max-length 65", "64 positions"]),
    "nothing to rank": ("finetune model --task rank --train relevant.csv", ["yields a training example"]),
    "embed with a frozen encoder": ("finetune model --task embed --train pairs.csv --freeze encoder", ["--freeze encoder", "leaves nothing to train"]),
    "pooling for tag": ("finetune model --train tagged.conll --pooling mean", ["--pooling mean", "tag reads tokens"]),
    "unsupported pooling": ("finetune model --train reviews.csv --pooling mean", ["--pooling mean", "supports only pooling tanh"]),
    "max length too small for the target": ("finetune model --task generate --train written.csv --max-length 32", ["max_new_tokens=64 is too large", "--set task.generate.max_new_tokens=12"]),
    "tokens without embeddings": ("finetune larger --train reviews.csv", ["does not match the model"]),
    "run-level setting in a task": ("finetune model --recipe tasks.yaml", ["tasks.a.patience", "task: {patience: …}"]),
    "a bad teacher": ("finetune model --train reviews.csv --teacher empty", ["empty"]),
    "tune without a file": ("tune model --train nosuch.csv", ["nosuch.csv"]),
    "tune an unknown parameter": ("tune model --train reviews.csv --params rate", ["rate", "lr"]),
    "tune a parameter without choices": ("tune model --train reviews.csv --params pooling", ["pooling", "lr"]),
    "evaluate without a task": ("evaluate model reviews.csv --column label=1", ["unmask finetune"]),
    "predict without a task": ("predict model text", ["unmask finetune"]),
    "doctor without a file": ("doctor nosuch.csv", ["nosuch.csv"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_arguments_raise_a_clear_error(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    arguments, words = CASES[name]
    result = CliRunner().invoke(app, arguments.split() + (FAST if arguments.startswith("finetune") else []))
    assert result.exit_code == 2, (result.output, result.exception)
    for word in ("error: ", *words):
        assert word in result.output, result.output
    assert not list(folder.glob("runs/*/*")), "an empty run directory was left behind"


def test_random_passages_are_added_if_all_are_relevant(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random passages are added in training and in evaluation, and both log it."""
    monkeypatch.chdir(tmp_path)
    rows = [f"film {n},anna saw film {n},1\n" for n in range(24)]
    (tmp_path / "all.csv").write_text("query,passage,relevance\n" + "".join(rows))
    run = CliRunner().invoke(
        app, ["finetune", str(folder / "model"), "--task=rank", "--train=all.csv", "--out=run", *FAST]
    )
    assert run.exit_code == 0, run.output
    assert "random ones were added, which count as not relevant" in run.output
    evaluation = CliRunner().invoke(app, ["evaluate", "run/model", "all.csv", "--json"])
    assert evaluation.exit_code == 0, evaluation.output
    assert "random ones were added" in evaluation.stderr
    assert json.loads(evaluation.stdout)["mrr"] < 1


def test_truncated_records_are_reported(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For dev, test and any other file: pairs are never read in windows."""
    monkeypatch.chdir(tmp_path)
    short = "text,pair,label\n" + "anna saw a film,it is good,yes\nbob saw a film,it is bad,no\n" * 15
    (tmp_path / "train.csv").write_text(short)
    (tmp_path / "test.csv").write_text("text,pair,label\n" + f"{'anna ' * 99},it is good,yes\nbob,it is bad,no\n" * 3)
    run = CliRunner().invoke(
        app, ["finetune", str(folder / "model"), "--train=train.csv", "--test=test.csv", "--out=run", *FAST]
    )
    assert run.exit_code == 0, run.output
    assert "test: 3 of 6 are longer than a row" in run.output
    evaluation = CliRunner().invoke(app, ["evaluate", "run/model", "test.csv"])
    assert "3 of 6 are longer than a row" in evaluation.output, evaluation.output


def test_label_that_occurs_only_in_dev_is_reported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.csv").write_text("text,label\n" + "anna saw a film,a\nbob saw a film,b\n" * 30)
    result = CliRunner().invoke(app, ["finetune", str(folder / "model"), "--train=two.csv", "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "are in the dev set, since equal texts stay together" in " ".join(result.output.split())
    (tmp_path / "one.csv").write_text("text,label\n" + "anna saw a film,a\nanna saw a film,b\n" * 30)
    result = CliRunner().invoke(app, ["finetune", str(folder / "model"), "--train=one.csv", "--dry-run"])
    assert "the records cannot be split without leakage" in " ".join(result.output.split())


def test_similar_findings_are_counted_per_file() -> None:
    findings = [Finding(f"{file}:{n}", "no label", kind="no label") for file in ("a.csv", "b.csv") for n in range(4)]
    assert [str(f) for f in condense(findings, 3)][3::4] == [
        f"{file}: 1 more like this (no label)" for file in ("a.csv", "b.csv")
    ]
