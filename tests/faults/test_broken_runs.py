"""`unmask info` on a run directory with invalid files: an error message that names the file, never a traceback."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from unmask import UserError
from unmask.cli import app
from unmask.train.run import Run

RECIPE = {"preset": "bert-tiny", "objective": "mlm", "seed": 0, "init_from": "runs/a/model"}
TASK = {"name": "classify", "train": ["a.csv"]}
CASES: dict[str, tuple[str, Any, list[str]]] = {  # case → file, its content, words in the message
    "length_phases": ("plan.json", {"length_phases": {"a": 1}}, ["plan.json", "length_phases"]),
    "words": ("plan.json", {"length_phases": [{"start": "a", "steps": "b"}]}, ["plan.json", "length_phases"]),
    "metric": ("results.json", {"task": "classify", "metric": [1], "best": {}}, ["results.json", "metric"]),
    "best": ("results.json", {"task": "classify", "metric": "accuracy", "best": 3}, ["results.json", "best"]),
    "dev": ("results.json", {"task": "classify", "metric": "accuracy", "best": {}, "dev": 7}, ["results.json", "dev"]),
    "records": ("data.json", {"records": [1]}, ["data.json", "records"]),
    "init_from": ("recipe.yaml", {**RECIPE, "task": TASK, "init_from": [1]}, ["recipe.yaml", "init_from"]),
    "deep": ("recipe.yaml", json.loads("[" * 100 + "]" * 100), ["recipe.yaml", "nested"]),
}


def make_run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(json.dumps({**RECIPE, "task": TASK}))
    (folder / "plan.json").write_text(json.dumps({"length_phases": [{"start": 0, "steps": 10}]}))
    (folder / "log.jsonl").write_text('{"event": "train", "step": 1, "loss": 1.0}\n')
    return folder


@pytest.mark.parametrize("case", CASES)
def test_damaged_run_raises_with_file_and_field(tmp_path: Path, case: str) -> None:
    folder = make_run(tmp_path)
    assert CliRunner().invoke(app, ["info", str(folder)]).exit_code == 0
    name, value, words = CASES[case]
    (folder / name).write_text(json.dumps(value))
    done = CliRunner().invoke(app, ["info", str(folder)])
    assert done.exit_code == 2, done.output
    assert all(word in done.output for word in words), done.output


def test_log_that_is_a_named_pipe_raises(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    (folder / "log.jsonl").unlink()
    os.mkfifo(folder / "log.jsonl")
    done = CliRunner().invoke(app, ["info", str(folder)])
    assert done.exit_code == 2
    assert "log.jsonl" in done.output


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_lock_that_is_not_a_regular_file_is_not_written(tmp_path: Path, kind: str) -> None:
    """Resuming someone else's run must not overwrite a file that its lock links to."""
    other, lock = tmp_path / "other", make_run(tmp_path) / "lock"
    other.write_text("kept")
    lock.symlink_to(other) if kind == "link" else os.mkfifo(lock)
    with pytest.raises(UserError, match="cannot write into"), Run(lock.parent).lock():
        pass
    assert other.read_text() == "kept"
