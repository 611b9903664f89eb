"""A `learn` run that is killed at any moment: `unmask learn --resume` completes it, with the results of an uninterrupted run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import learning
from safetensors.numpy import load_file

import unmask
from unmask.runs import learn, learn_plan
from unmask.train.run import Run

# Kills the process right before or after a function is called. Each patch is a moment of the run.
KILL = """
import os, runpy, signal, sys
def kill(*arguments, **keywords):
    os.kill(os.getpid(), signal.SIGKILL)
def killed_after(function):
    def call(*arguments, **keywords):
        function(*arguments, **keywords)
        kill()
    return call
from unmask.files import write_json, write_lines
from unmask.runs import learn, learn_data, learn_plan
from unmask.tasks.classify import learner
from unmask.train import fit
from unmask.train.run import Run
import unmask.report
unmask.report.write = lambda run: None
MOMENT
runpy.run_module("unmask", run_name="__main__", alter_sys=True)
"""
MOMENTS = {
    "while the data are written": "learn_data.write_json = kill",
    "after the data": "learn.Learn._start = killed_after(learn.Learn._start)",
    "after the speed is measured": "learn_plan.LearnPlan.num_hidden = kill",
    "after the hidden states": "learner.Learner.__init__ = kill",
    "after the linear model": "learner.Learner.training_records = kill",
    "before linear.json": "learn.write_lines = lambda p, r: write_lines(p, r) or p.name != 'dev.jsonl' or kill()",
    "after linear.json": "learn._linear_step = killed_after(learn._linear_step)",
    "during fine-tuning": "a = fit.progress_text; fit.progress_text = lambda s: kill() if s.step > 9 else a(s)",
    "before the results": "learn.Learn.finish = kill",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learn")
    learning.data_files(folder, labeled=24, unlabeled=120, test=40)
    learning.model_folder(folder / "model")
    return folder


def arguments(folder: Path, out: Path) -> list[str]:
    files = [str(folder / "labeled.csv"), "--text", str(folder / "more.jsonl"), "--test", str(folder / "test.csv")]
    return ["learn", *files, "--from", str(folder / "model"), "--out", str(out), "--set=train.threads=1", "--seed=3"]


def run_process(code: str, given: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *given], capture_output=True, text=True, env=environment, timeout=300
    )


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> Run:
    result = run_process(KILL.replace("MOMENT", ""), arguments(folder, folder / "whole"))
    assert result.returncode == 0, result.stderr
    return Run(folder / "whole")


def comparable(value: Any, run: Run) -> Any:
    """Return results without times and without the name of the folder."""
    if isinstance(value, dict):
        return {k: comparable(v, run) for k, v in value.items() if k != "seconds"}
    if isinstance(value, list):
        return [comparable(v, run) for v in value]
    return value.replace(str(run.path), "RUN") if isinstance(value, str) else value


def assert_same(run: Run, other: Run) -> None:
    assert comparable(run.results(), run) == comparable(other.results(), other)
    for name in ("train.jsonl", "dev.jsonl", "to_label.csv", "linear/soft_labels.jsonl"):
        assert (run.path / name).read_bytes() == (other.path / name).read_bytes(), name
    recipes = [(r.path / "finetune" / "recipe.yaml").read_text().replace(str(r.path), "RUN") for r in (run, other)]
    assert recipes[0] == recipes[1]
    for name in ("model.safetensors", "linear.safetensors"):
        ours, theirs = (load_file(r.path / "finetune" / "model" / name) for r in (run, other))
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours), name


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_run_resumes_with_the_same_results(
    moment: str, folder: Path, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    out = tmp_path / "run"
    killed = run_process(KILL.replace("MOMENT", MOMENTS[moment]), arguments(folder, out))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "results.json").exists()
    assert Run(out).resume_command() == f"unmask learn --resume {out}"
    assert_same(unmask.resume(out), uninterrupted)


def test_run_killed_while_pretraining_resumes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    given = arguments(folder, tmp_path / "run")
    at = given.index("--from")
    given[at : at + 2] = ["--minutes", "0.05"]
    killed = run_process(KILL.replace("MOMENT", "fit.progress_text = kill"), given)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "run" / "pretrain" / "log.jsonl").exists()
    assert not (tmp_path / "run" / "finetune").exists()
    run = unmask.resume(tmp_path / "run")
    assert run.results()["steps"][-1]["name"] == "both together"
    assert (tmp_path / "run" / "pretrain" / "results.json").exists()


def test_original_files_are_not_needed_to_resume(
    folder: Path, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    copies = learning.data_files(tmp_path, labeled=24, unlabeled=120, test=40)
    given = [
        text.replace(str(folder), str(tmp_path)) if "model" not in text else text
        for text in arguments(folder, tmp_path / "run")
    ]
    killed = run_process(KILL.replace("MOMENT", MOMENTS["after the data"]), given)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for path in copies.values():
        path.unlink()
    run = unmask.resume(tmp_path / "run")
    steps, expected = (
        [{key: value for key, value in step.items() if key != "seconds"} for step in each.results()["steps"]]
        for each in (run, uninterrupted)
    )
    assert steps == expected


def test_measured_speed_is_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed decides how many texts have hidden states and soft labels, so a resumed run reads it and does not measure it again."""
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    data: dict[str, Any] = {
        "files": folder / "labeled.csv",
        "text": folder / "more.jsonl",
        "init_from": folder / "model",
    }
    minutes = learn_plan.MINUTES * 60
    with monkeypatch.context() as patch:
        slow = learn_plan.HIDDEN_SHARE * minutes / 90
        patch.setattr(learn_plan.LearnPlan, "seconds_per_text", lambda *_: slow)
        patch.setattr("unmask.inference.predictor.Predictor.embed", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            unmask.learn(**data, out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / learn.SPEED).read_text()) == {"seconds_per_text": slow}
    with monkeypatch.context() as patch:
        patch.setattr(learn_plan.LearnPlan, "seconds_per_text", lambda *_: 1 / 0)
        unmask.resume(tmp_path / "run")
    assert len(np.load(tmp_path / "run" / learn.HIDDEN)) == 90
