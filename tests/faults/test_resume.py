"""Kill the process, damage a checkpoint, fill the disk: nothing is lost, and a resumed run is bit-identical."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unmask.text.store import TokenStore

# dropout 0.1 (BERT's default), accumulation 2, prefetch, an epoch and a length boundary, evaluations, checkpoints every 4 steps
SETTINGS = [
    "--preset=bert-tiny", "--objective=mlm+nsp", "--steps=22", "--batch-size=96", "--max-length=32:0.6,64:0.4", "--seed=5",
    "--set=model.hidden=32", "--set=model.heads=2", "--set=model.intermediate=64", "--set=train.micro_batch_size=48",
    "--set=train.save_steps=4", "--set=train.eval_steps=9", "--set=train.max_eval_examples=16", "--set=train.save_total_limit=2",
    "--set=train.prefetch=3", "--set=train.threads=1", "--set=train.warmup=2",
]  # fmt: skip


def unmask(*arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "unmask", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def finish(process: subprocess.Popen, code: int = 0) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, err
    assert "Traceback" not in err, err
    return out + err


def steps_logged(run: Path) -> int:
    log = run / "log.jsonl"
    return log.read_text().count('"event": "train"') if log.exists() else 0


def wait_for(condition, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def losses(run: Path) -> list[tuple[int, float]]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [(e["step"], e["loss"]) for e in events if e["event"] in ("train", "eval")]


@pytest.fixture(scope="module")
def uninterrupted(store: TokenStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run."""
    run = tmp_path_factory.mktemp("whole") / "run"
    finish(unmask("pretrain", str(store.path), *SETTINGS, "--out", str(run)))
    rows = store.train.chunks(32)
    assert len(rows) < 13 * 96, "the first phase crosses an epoch"
    return run


def test_run_killed_between_checkpoints_resumes_bit_for_bit(
    store: TokenStore, uninterrupted: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = unmask("pretrain", str(store.path), *SETTINGS, "--out", str(run))
    wait_for(lambda: steps_logged(run) >= 6, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert 6 <= steps_logged(run) < 22
    assert not (run / "model").exists()
    text = finish(unmask("pretrain", "--resume", str(run)))
    assert "continuing" in text
    assert weights(run) == weights(uninterrupted)
    assert losses(run) == losses(uninterrupted)


def test_ctrl_c_saves_a_checkpoint_and_prints_the_resume_command(
    store: TokenStore, uninterrupted: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = unmask("pretrain", str(store.path), *SETTINGS, "--out", str(run))
    wait_for(lambda: steps_logged(run) >= 9, process)
    process.send_signal(signal.SIGINT)
    text = finish(process, code=130)
    assert f"unmask pretrain --resume {run}" in text
    finish(unmask("pretrain", "--resume", str(run)))
    assert weights(run) == weights(uninterrupted)


def test_damaged_checkpoint_is_skipped_for_the_previous_one(
    store: TokenStore, uninterrupted: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = unmask("pretrain", str(store.path), *SETTINGS, "--out", str(run))
    wait_for(lambda: (run / "checkpoints" / "step-00000012").exists(), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    last = sorted((run / "checkpoints").glob("step-*[0-9]"))[-1]
    damaged = last / "optimizer.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    damaged.write_bytes(content)
    text = finish(unmask("pretrain", "--resume", str(run)))
    assert "optimizer.safetensors differs" in text
    assert weights(run) == weights(uninterrupted)


def test_run_in_use_and_existing_output_directory_raise(store: TokenStore, uninterrupted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = unmask("pretrain", str(store.path), *SETTINGS, "--steps=2000", "--out", str(run))
    wait_for(lambda: steps_logged(run) >= 1, process)
    text = finish(unmask("pretrain", "--resume", str(run)), code=2)
    assert f"in use by process {process.pid}" in text
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = weights(uninterrupted)
    text = finish(unmask("pretrain", str(store.path), *SETTINGS, "--out", str(uninterrupted)), code=2)
    assert "never overwritten" in text
    assert weights(uninterrupted) == before


def test_full_disk_raises_and_keeps_the_last_checkpoint(store: TokenStore, uninterrupted: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = unmask("pretrain", str(store.path), *SETTINGS, "--out", str(run))
    wait_for(lambda: (run / "checkpoints" / "step-00000004").exists(), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    def limit_file_size() -> None:  # a real kernel error: no file may grow beyond 64 kB
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64_000, 64_000))

    text = finish(unmask("pretrain", "--resume", str(run), preexec_fn=limit_file_size), code=2)
    assert "cannot write" in text
    assert "earlier checkpoints are intact" in text
    finish(unmask("pretrain", "--resume", str(run)))
    assert weights(run) == weights(uninterrupted)


def test_finished_run_is_not_trained_again(uninterrupted: Path) -> None:
    before = os.stat(uninterrupted / "model" / "model.safetensors").st_mtime_ns
    assert "is finished" in finish(unmask("pretrain", "--resume", str(uninterrupted)))
    assert os.stat(uninterrupted / "model" / "model.safetensors").st_mtime_ns == before
