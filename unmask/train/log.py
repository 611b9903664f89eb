"""What a person sees while a run goes on, and what the run remembers of it.

`Log` appends a JSON line per event to the run's `log.jsonl`. `Console` draws a progress bar on a terminal and prints plain
lines elsewhere, so that a log file of a cluster job can be read.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from unmask.train.track import Board

Update = Callable[[float, float, str], None]  # done, total, what is going on
SECONDS = 10.0  # between two lines of progress, where there is no terminal


class Log:
    def __init__(self, path: Path, board: Board | None = None):
        """`board`: also gets every event."""
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 – open as long as the run
        self._board = board

    def write(self, event: str, **values: Any) -> None:
        self._file.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
        if self._board:
            self._board.write(event, values)

    def close(self) -> None:
        self._file.close()
        if self._board:
            self._board.close()


class Console:
    """`quiet` says nothing but warnings. Everything goes to standard error: standard output is for results."""

    def __init__(self, quiet: bool = False):
        self.rich = RichConsole(stderr=True, highlight=False)
        self.quiet = quiet

    def say(self, text: str) -> None:
        if not self.quiet:
            self.rich.print(text, markup=False, soft_wrap=not self.rich.is_terminal)

    def warn(self, text: str) -> None:
        self.rich.print(f"warning: {text}", style="yellow", markup=False, soft_wrap=not self.rich.is_terminal)

    @contextmanager
    def bar(self, title: str) -> Iterator[Update]:
        """Work of known length: a bar on a terminal, a line now and then elsewhere."""
        if self.quiet:
            yield _silent
        elif self.rich.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[message]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self.rich, transient=False) as progress:
                task: TaskID = progress.add_task(title, total=None, message="")

                def update(done: float, total: float, message: str = "") -> None:
                    progress.update(task, completed=done, total=total, message=message)

                yield update
        else:
            yield self._lines(title)

    def _lines(self, title: str) -> Update:
        begun = last = time.monotonic()

        def update(done: float, total: float, message: str = "") -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= SECONDS or (done >= total and now - begun > 1):
                last = now
                left = (now - begun) / done * (total - done) if done else 0
                share = done / total if total else 1
                self.say(f"{title} {share:4.0%} {message} ({clock(now - begun)} elapsed, {clock(left)} left)")

        return update


def _silent(done: float, total: float, message: str = "") -> None:
    pass


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3700)
    ('1:15', '1:01:40')
    """
    s = int(seconds)
    return f"{s // 3600}:{s % 3600 // 60:02d}:{s % 60:02d}" if s >= 3600 else f"{s // 60}:{s % 60:02d}"
