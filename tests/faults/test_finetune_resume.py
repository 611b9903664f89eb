"""A fine-tuning run that is killed, crashes or finds its files changed: nothing is lost, and the resumed run is bit-identical."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from unmask import UserError, api
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.runs import finetune
from unmask.text.tokenizer import Tokenizer
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")

ROWS = [
    (f"{word} {n} {'so ' * (n % 7)}", label)
    for n in range(20)
    for word, label in (("what a film", "pos"), ("how dull", "neg"))
]
# dropout, accumulation, a dev split, evaluations, a best model, and checkpoints at other steps than evaluations
SETS = [
    "train.steps=24", "train.batch_size=8", "train.micro_batch_size=4", "train.save_steps=5", "train.eval_steps=4", "train.lr=0.002",
    "train.save_total_limit=2", "train.threads=1", "task.patience=0", "seed=4",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finetune")
    (folder / "train.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS))
    tokenizer = Tokenizer.train([text for text, _ in ROWS], TokenizerRecipe(type="char"))
    shape = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "max_positions": 64, "dropout": 0.1}
    hf.save(
        Model(preset("bert-tiny", vocab_size=tokenizer.size, **shape), ("mlm",)).init(0), folder / "start", tokenizer
    )
    return folder


def train(folder: Path, out: Path) -> Run:
    return api.finetune(folder / "start", task="classify", train=folder / "train.csv", overrides=SETS, out=out)


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.report.write", lambda run: None)
        return train(folder, folder / "whole")


def command(folder: Path, out: Path) -> list[str]:
    start = [str(folder / "start"), "--task=classify", "--train", str(folder / "train.csv"), "--out", str(out)]
    return ["-m", "unmask", "finetune", *start, *(f"--set={text}" for text in SETS)]


def assert_same(run: Run, uninterrupted: Run) -> None:
    for name in ("model.safetensors", "unmask.json"):
        assert (run.model / name).read_bytes() == (uninterrupted.model / name).read_bytes(), name
    ours, theirs = (
        {k: v for k, v in r.read_json("results.json").items() if k not in ("seconds", "model")}
        for r in (run, uninterrupted)
    )
    assert ours == theirs
    logs = [
        [
            (e["event"], e["step"], e.get("loss"), e.get("accuracy"))
            for e in r.events()
            if e["event"] in ("train", "eval")
        ]
        for r in (run, uninterrupted)
    ]
    assert logs[0] == logs[1]
    assert (run.path / "dev.predictions.jsonl").read_bytes() == (
        uninterrupted.path / "dev.predictions.jsonl"
    ).read_bytes()


def test_run_killed_between_checkpoints_resumes_bit_for_bit(folder: Path, uninterrupted: Run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    # slowed down, so that the process is killed before it finishes
    slow = "import runpy, time; from unmask.train import fit; b = fit.progress_text; fit.progress_text = lambda s: time.sleep(0.05) or b(s); runpy.run_module('unmask', run_name='__main__', alter_sys=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", slow, *command(folder, out)[2:]], stderr=subprocess.PIPE, text=True
    )
    log, deadline = out / "log.jsonl", time.monotonic() + 120
    while not (log.exists() and log.read_text().count('"event": "train"') >= 13):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (out / "results.json").exists()
    assert_same(api.resume(out), uninterrupted)


def test_run_that_crashed_after_the_last_step_resumes(
    folder: Path, uninterrupted: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(finetune.Finetune, "finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(folder, tmp_path / "run")
    assert_same(api.resume(tmp_path / "run"), uninterrupted)
    before = (tmp_path / "run" / "results.json").read_bytes()
    api.resume(tmp_path / "run")  # no work remains
    assert (tmp_path / "run" / "results.json").read_bytes() == before


def truncated_copy(uninterrupted: Run, out: Path) -> Run:
    """Copy the uninterrupted run as a kill at step 20 would have left it."""
    shutil.copytree(uninterrupted.path, out)
    run = Run(out)
    shutil.rmtree(run.checkpoints / "step-00000024")
    shutil.rmtree(run.model)
    for name in ("results.json", "details.json", "dev.predictions.jsonl"):
        (out / name).unlink()
    return run


def test_damaged_checkpoint_is_skipped(uninterrupted: Run, tmp_path: Path) -> None:
    run = truncated_copy(uninterrupted, tmp_path / "run")
    shutil.copytree(run.checkpoints / "step-00000020", run.checkpoints / "step-00000022")
    weights = run.checkpoints / "step-00000022" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100] + bytes(100))
    assert_same(api.resume(run.path), uninterrupted)


def test_resume_with_changed_files_raises(folder: Path, uninterrupted: Run, tmp_path: Path) -> None:
    run = truncated_copy(uninterrupted, tmp_path / "run")
    before = (folder / "train.csv").read_text()
    try:
        (folder / "train.csv").write_text(before.replace("what a film 3 ", "what a movie 3 "))
        with pytest.raises(UserError, match="have changed"):
            api.resume(run.path)
    finally:
        (folder / "train.csv").write_text(before)
    assert_same(api.resume(run.path), uninterrupted)


@pytest.mark.slow
def test_two_processes_match_one(folder: Path, uninterrupted: Run, tmp_path: Path) -> None:
    """Two ranks with one micro-batch each, instead of one rank with two: the same dropout and losses, nearly the same weights."""
    out = tmp_path / "two"
    launcher = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, *command(folder, out)], capture_output=True, text=True, timeout=280, env=environment
    )
    assert done.returncode == 0, done.stderr
    one, two = ([e["loss"] for e in r.events() if e["event"] == "train"] for r in (uninterrupted, Run(out)))
    assert len(one) == 24 and two == pytest.approx(one, rel=1e-4)
    ours, theirs = load_file(Run(out).model / "model.safetensors"), load_file(uninterrupted.model / "model.safetensors")
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-4)
    assert json.loads((out / "results.json").read_text())["dev"]["records"] == 4
