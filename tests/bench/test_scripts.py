"""Every benchmark starts: its imports exist and its arguments parse."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SCRIPTS = sorted(
    path for path in BENCH.glob("*.py") if "ArgumentParser(" in (text := path.read_text("utf-8")) and "__main__" in text
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_benchmark_shows_its_help(script: Path) -> None:
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr[-2000:]
