"""Long work in parts, with word of how far it is: to `update`, or where none is given, a bar on a terminal after two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from unmask.batch import TOKENS, groups
from unmask.console import brief_progress
from unmask.tasks.task import Update

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
Found = TypeVar("Found")
PART = 32 * TOKENS  # tokens of rows that are made and answered at a time
WAIT = 2.0  # seconds of work before a bar appears


def in_parts(
    items: Sequence[Item],
    lengths: Sequence[int],
    call: Callable[[list[Item]], Sequence[Found]],
    update: Update | None = None,
) -> list[Found]:
    """What `call` finds for each item, in their order; items of like length go together, PART tokens at a time.

    >>> in_parts(["aaa", "b", "cc"], [3, 1, 2], lambda some: [item.upper() for item in some])
    ['AAA', 'B', 'CC']
    """
    out: dict[int, Found] = {}
    with shown(update) as tell:
        for group in groups(lengths, PART):
            for i, found in zip(group, call([items[i] for i in group]), strict=True):
                out[i] = found
            tell(len(out), len(items), "")
    return [out[i] for i in range(len(items))]


@contextmanager
def shown(update: Update | None) -> Iterator[Update]:
    """`update` itself; else a bar, where somebody looks at standard error and it takes long."""
    if update is not None:
        yield update
        return
    progress: Progress | None = None
    begun, main = time.monotonic(), threading.current_thread() is threading.main_thread()
    looked_at = sys.stderr is not None and sys.stderr.isatty() and main

    def tell(done: float, total: float, what: str) -> None:
        nonlocal progress
        if progress is None:
            if not looked_at or time.monotonic() - begun < WAIT or done >= total:
                return
            progress = brief_progress()
            progress.start()
            progress.add_task("", total=total)
        progress.update(progress.task_ids[0], completed=done, total=total, description=what)

    try:
        yield tell
    finally:
        if progress is not None:
            progress.stop()
