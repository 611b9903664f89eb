"""Long work in parts, with word of how far it is: to `update`, or where none is given, a bar on a terminal after two seconds."""

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
Found = TypeVar("Found")
TOKENS_PER_CHUNK = 32 * TOKENS_PER_FORWARD  # tokens of rows that are made and answered at a time
SECONDS_BEFORE_BAR = 2.0  # seconds of work before a bar appears


def map_in_chunks(
    items: Sequence[Item],
    lengths: Sequence[int],
    call: Callable[[list[Item]], Sequence[Found]],
    update: Update | None = None,
) -> list[Found]:
    """What `call` finds for each item, in their order; items of like length go together, PART tokens at a time.

    >>> map_in_chunks(["aaa", "b", "cc"], [3, 1, 2], lambda some: [item.upper() for item in some])
    ['AAA', 'B', 'CC']
    """
    out: dict[int, Found] = {}
    with progress_callback(update) as report:
        for group in batch_by_length(lengths, TOKENS_PER_CHUNK):
            for i, found in zip(group, call([items[i] for i in group]), strict=True):
                out[i] = found
            report(len(out), len(items), "")
    return [out[i] for i in range(len(items))]


@contextmanager
def progress_callback(update: Update | None) -> Iterator[Update]:
    """`update` itself; else a bar, where somebody looks at standard error and it takes long."""
    if update is not None:
        yield update
        return
    progress: Progress | None = None
    started, main = time.monotonic(), threading.current_thread() is threading.main_thread()
    visible = sys.stderr is not None and sys.stderr.isatty() and main

    def report(done: float, total: float, what: str) -> None:
        nonlocal progress
        if progress is None:
            if not visible or time.monotonic() - started < SECONDS_BEFORE_BAR or done >= total:
                return
            progress = brief_progress()
            progress.start()
            progress.add_task("", total=total)
        progress.update(progress.task_ids[0], completed=done, total=total, description=what)

    try:
        yield report
    finally:
        if progress is not None:
            progress.stop()
