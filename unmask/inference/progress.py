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
    looked_at = sys.stderr is not None and sys.stderr.isatty() and threading.current_thread() is threading.main_thread()
    bar = _Bar() if looked_at else None
    try:
        yield bar.tell if bar else lambda done, total, what: None
    finally:
        if bar:
            bar.close()


class _Bar:
    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.progress: Progress | None = None

    def tell(self, done: float, total: float, what: str) -> None:
        if self.progress is None:
            if time.monotonic() - self.begun < WAIT or done >= total:
                return
            self.progress = brief_progress()
            self.progress.start()
            self.task = self.progress.add_task("", total=total)
        self.progress.update(self.task, completed=done, total=total, description=what)

    def close(self) -> None:
        if self.progress is not None:
            self.progress.stop()
