"""Chunked computation with progress: a callback, or by default a progress bar on the terminal after two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from unmask.batch import TOKENS_PER_FORWARD, batch_by_length
from unmask.console import brief_progress
from unmask.tasks.task import Update

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")
TOKENS_PER_CHUNK = 32 * TOKENS_PER_FORWARD  # tokens whose rows are in memory at a time
SECONDS_BEFORE_BAR = 2.0


def map_in_chunks(
    items: Sequence[Item],
    lengths: Sequence[int],
    call: Callable[[list[Item]], Sequence[Result]],
    update: Update | None = None,
) -> list[Result]:
    """Return the result of `call` for each item, in order. Each call gets items of similar lengths, TOKENS_PER_CHUNK tokens in total.

    >>> map_in_chunks(["aaa", "b", "cc"], [3, 1, 2], lambda chunk: [item.upper() for item in chunk])
    ['AAA', 'B', 'CC']
    """
    out: dict[int, Result] = {}
    with progress_callback(update) as report:
        for group in batch_by_length(lengths, TOKENS_PER_CHUNK):
            out |= zip(group, call([items[i] for i in group]), strict=True)
            report(len(out), len(items), "")
    return [out[i] for i in range(len(items))]


@contextmanager
def progress_callback(update: Update | None) -> Iterator[Update]:
    """Yield `update`, or a callback that shows a progress bar if standard error is a terminal and the work takes long."""
    if update is not None:
        yield update
        return
    progress: Progress | None = None
    start_time, is_main = time.monotonic(), threading.current_thread() is threading.main_thread()
    visible = sys.stderr is not None and sys.stderr.isatty() and is_main

    def report(done: float, total: float, description: str) -> None:
        nonlocal progress
        if progress is None:
            if not visible or time.monotonic() - start_time < SECONDS_BEFORE_BAR or done >= total:
                return
            progress = brief_progress()
            progress.start()
            progress.add_task("", total=total)
        progress.update(progress.task_ids[0], completed=done, total=total, description=description)

    try:
        yield report
    finally:
        if progress is not None:
            progress.stop()
