"""Ctrl-C and SIGTERM outside the training loop: exit code, one line that names what was stopped, and a command to continue."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from runs.tiny import labeled, model_folder

# Runs the command line and sends it a signal `delay` seconds after a function appears on the main thread's stack.
CHILD = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
name, number, delay, marker = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]

def watch():
    main = threading.main_thread().ident
    while True:
        frame = sys._current_frames().get(main)
        while frame is not None and frame.f_code.co_name != name:
            frame = frame.f_back
        if frame is not None:
            time.sleep(delay)
            open(marker, "w").close()
            return os.killpg(0, number)
        time.sleep(0.001)

threading.Thread(target=watch, daemon=True).start()
sys.argv = ["unmask", *sys.argv[5:]]
from unmask.cli import main
main()
"""


def stop_inside(
    folder: Path, name: str, number: signal.Signals, *words: str, delay: float = 0.0
) -> tuple[int, str, float]:
    """Stop a command inside function `name`. Return its exit code, its stderr and the seconds between signal and exit."""
    marker = folder / "signalled"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, name, str(int(number)), str(delay), str(marker), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        start_new_session=True,  # the signal is sent to the process group, as Ctrl-C in a terminal is
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert marker.exists(), f"{name} was never called: {done.stderr}"
    return done.returncode, done.stderr, time.time() - marker.stat().st_mtime


@pytest.fixture(scope="module")
def random_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write words without common subwords; training a tokenizer on them takes minutes."""
    path = tmp_path_factory.mktemp("words") / "words.txt"
    rng = np.random.default_rng(0)
    letters = rng.integers(97, 123, 20_000_000, dtype=np.uint8)
    letters[rng.integers(0, len(letters), len(letters) // 8)] = 32
    letters[5000::5000] = 10
    path.write_bytes(letters.tobytes())
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_tokenizer_training_immediately(
    random_words: Path, number: signal.Signals, tmp_path: Path
) -> None:
    words = ["tokenizer", "train", str(random_words), "--tokenizer-type", "bpe", "--vocab-size", "30000", "-o", "tok"]
    code, stderr, seconds = stop_inside(tmp_path, "_bpe", number, *words, delay=1.0)
    assert code == 128 + number
    assert seconds < 20  # training takes minutes
    last = stderr.splitlines()[-1]
    by = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}[number]
    assert last.startswith(f"unmask tokenizer train was stopped by {by} while training the tokenizer; to continue: ")
    assert not (tmp_path / "tok").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_during_text_preparation(random_words: Path, workers: int, tmp_path: Path) -> None:
    words = ["prepare", str(random_words), "--tokenizer-type", "byte", "-o", "store", "--workers", str(workers)]
    code, stderr, _ = stop_inside(
        tmp_path, {1: "encode_inline", 2: "encode_parallel"}[workers], signal.SIGTERM, *words, delay=1.0
    )
    assert code == 143, stderr
    assert "unmask prepare was stopped by SIGTERM while preparing the text; to continue: run the same command" in stderr
    assert not (tmp_path / "store" / "meta.json").exists()


def test_sigterm_while_reading_labeled_files(tmp_path: Path) -> None:
    model_folder(tmp_path / "start")
    labeled(tmp_path / "train.csv", 20_000)
    words = ["finetune", "start", "--train", "train.csv", "--task", "classify", "--out", "run"]
    code, stderr, _ = stop_inside(tmp_path, "read_sets", signal.SIGTERM, *words)
    assert code == 143
    assert "unmask finetune was stopped by SIGTERM while reading the labeled files" in stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_sigterm_during_test_evaluation_prints_a_resume_command(tmp_path: Path) -> None:
    model_folder(tmp_path / "start")
    labeled(tmp_path / "train.csv", 60)
    labeled(tmp_path / "test.csv", 4000)
    words = ["finetune", "start", "--train", "train.csv", "--test", "test.csv", "--steps", "2", "--out", "my run"]
    code, stderr, _ = stop_inside(tmp_path, "evaluate_splits", signal.SIGTERM, *words)
    assert code == 143
    command = stderr.splitlines()[-1].partition("to continue: ")[2]
    assert command == "unmask finetune --resume 'my run'"
    again = [sys.executable, "-m", *shlex.split(command), "--json"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my run" / "results.json").exists()


def test_sigterm_in_the_training_loop_saves_a_checkpoint_and_exits_with_143(tmp_path: Path) -> None:
    model_folder(tmp_path / "start")
    labeled(tmp_path / "train.csv", 60)
    words = ["finetune", "start", "--train", "train.csv", "--steps", "20000", "--out", "run"]
    code, stderr, _ = stop_inside(tmp_path, "step", signal.SIGTERM, *words)
    assert code == 143
    assert "checkpoint saved" in stderr and "hint:     unmask finetune --resume run" in stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_a_command_is_parsed(number: signal.Signals) -> None:
    """typer takes a moment to build the commands."""
    code = f"import os, time, unmask.cli as cli; cli.app = lambda: (os.kill(os.getpid(), {int(number)}), time.sleep(20)); cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + number and done.stderr.startswith("unmask was stopped by"), done.stderr
