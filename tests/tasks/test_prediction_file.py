"""`finetune --teacher predictions.jsonl`: predictions in a file teach like the model that made them."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from near import gap
from runs import learning, tiny
from safetensors.torch import load_file
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.errors import UserError
from unmask.runs import finetune
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")
SETS = [
    "train.steps=12",
    "train.save_steps=4",
    "task.patience=0",
    "task.dev_fraction=0",
    "train.threads=1",
    "train.lr=0.003",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A start model, train.csv, a teacher, and its predictions of train.csv."""
    folder = tmp_path_factory.mktemp("predictions")
    start = tiny.model_folder(folder / "start")
    rows = [{"text": text, "label": label} for text, label in map(tiny.sentence, range(24))]
    for n, row in enumerate(rows):
        row["text"] += f" {tiny.NAMES[n % 4]} {n}"
    learning.write_csv(folder / "train.csv", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.report.write", lambda run: None)
        unmask.finetune(start, train=folder / "train.csv", out=folder / "teacher", overrides=SETS)
    return predict(folder / "teacher", folder / "train.csv", folder / "predictions.jsonl").parent


def predict(model: Path, file: Path, out: Path) -> Path:
    result = CliRunner().invoke(app, ["predict", str(model), str(file), "-o", str(out)])
    assert result.exit_code == 0, result.output
    return out


def student(folder: Path, out: Path, teacher: Path | None, train: Path | None = None) -> Run:
    given: dict[str, Any] = {"teacher": teacher} if teacher else {}
    return unmask.finetune(folder / "start", train=train or folder / "train.csv", out=out, overrides=SETS, **given)


def weights_gap(a: Run, b: Run) -> float:
    ours, theirs = (load_file(run.model / "model.safetensors") for run in (a, b))
    return max(gap(ours[name], theirs[name]) for name in ours)


def test_file_teaches_like_the_model(folder: Path, tmp_path: Path) -> None:
    by_model = student(folder, tmp_path / "model", folder / "teacher" / "model")
    by_file = student(folder, tmp_path / "file", folder / "predictions.jsonl")
    alone = student(folder, tmp_path / "alone", None)
    assert weights_gap(by_file, by_model) < 1e-3
    assert weights_gap(by_file, alone) > 5e-3  # without a teacher, training is different


def test_order_and_more_predictions_do_not_matter(folder: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    random.Random(0).shuffle(rows)
    for row in rows:
        row["scores"] = dict(reversed(row["scores"].items()))
    extra = rows[0] | {"text": "not a training record"}
    shuffled = learning.write_jsonl(tmp_path / "shuffled.jsonl", [extra, *rows])
    runs = [student(folder, tmp_path / p.stem, p) for p in (folder / "predictions.jsonl", shuffled)]
    assert weights_gap(*runs) < 1e-6


def test_several_labels(folder: Path, tmp_path: Path) -> None:
    rows = [
        {"text": tiny.sentence(n)[0] + f" {n}", "label": ["a", "b"] if n % 2 else ["a"] if n % 3 else []}
        for n in range(24)
    ]
    train = learning.write_jsonl(tmp_path / "train.jsonl", rows)
    teacher = student(folder, tmp_path / "teacher", None, train)
    predictions = predict(teacher.path, train, tmp_path / "predictions.jsonl")
    by_model, by_file = (student(folder, tmp_path / t.stem / "run", t, train) for t in (teacher.model, predictions))
    assert weights_gap(by_file, by_model) < 1e-3


def test_column_of_another_name_works(folder: Path, tmp_path: Path) -> None:
    rows = [{"review": row["text"], "label": row["label"]} for row in learning.read_csv(folder / "train.csv")]
    train = learning.write_csv(tmp_path / "reviews.csv", rows)
    predictions = predict(folder / "teacher", train, tmp_path / "predictions.jsonl")
    assert student(folder, tmp_path / "run", predictions, train).results()["step"] == 12


def broken(folder: Path, path: Path, change: Any) -> Path:
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    return learning.write_jsonl(path, change(rows))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], r"no prediction for 1 of 24 training records, the first at .*train.csv:2"),
        (
            lambda rows: [rows[0] | {"scores": {"pos": 0.5, "other": 0.5}}, *rows[1:]],
            r"p.jsonl:1: .* does not have the labels",
        ),
        (
            lambda rows: [*rows[:2], {"text": rows[2]["text"], "label": "pos"}],
            r"p.jsonl:3: .* does not have the labels",
        ),
        (lambda rows: [rows[0] | {"scores": {"pos": 1.5, "neg": -0.5}}], "p.jsonl:1: a score is not a probability"),
        (lambda rows: [rows[0] | {"scores": {"pos": "high", "neg": 0.5}}], "p.jsonl:1: a score is not a probability"),
        (lambda rows: [rows[0] | {"scores": {"pos": None, "neg": 0.5}}], "p.jsonl:1: a score is not a probability"),
        (lambda rows: [["a", "list"]], "p.jsonl:1: "),
        (lambda rows: [], "no prediction for 24 of 24"),
    ],
)
def test_unusable_files_are_refused(change: Any, message: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        student(folder, tmp_path / "run", broken(folder, tmp_path / "p.jsonl", change))
    assert not (tmp_path / "run").exists()


def test_missing_file_and_other_tasks_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        student(folder, tmp_path / "run", tmp_path / "missing.jsonl")
    (tmp_path / "damaged.jsonl").write_text('{"text": ')
    with pytest.raises(UserError, match="damaged"):
        student(folder, tmp_path / "run", tmp_path / "damaged.jsonl")
    tagged = tiny.tagged(tmp_path / "tagged.jsonl", 30)
    with pytest.raises(UserError, match="a file of predictions cannot teach this task"):
        student(folder, tmp_path / "run", folder / "predictions.jsonl", tagged)


def test_resume_with_a_changed_file_raises(folder: Path, tmp_path: Path) -> None:
    teacher = broken(folder, tmp_path / "p.jsonl", lambda rows: rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune.Finetune, "finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            student(folder, tmp_path / "run", teacher)
    before = teacher.read_bytes()
    broken(folder, teacher, lambda rows: [rows[0] | {"scores": {"pos": 0.5, "neg": 0.5}}, *rows[1:]])
    with pytest.raises(UserError, match=r"task\.teacher.* has changed"):
        unmask.resume(tmp_path / "run")
    teacher.write_bytes(before)
    assert unmask.resume(tmp_path / "run").results()["step"] == 12
