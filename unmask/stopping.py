"""Ctrl-C and SIGTERM, whatever a command is doing: clean up, say what was stopped and how to go on, exit with 130 or 143.

SIGTERM raises `Terminated`, a KeyboardInterrupt, so that all that is cleaned up after Ctrl-C is cleaned up after it too. On its
way up the exception learns what was going on (`during`) and which command continues it (`continues_with`). The training loop is
stopped by a flag instead (`train/fit.py`), since it saves a checkpoint first.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CLEANUP_SECONDS = 10.0  # seconds to clean up after SIGTERM; then the process ends as it is


class Terminated(KeyboardInterrupt):
    """SIGTERM."""


def handle_sigterm() -> None:
    """From now on SIGTERM raises `Terminated`, once; a second one ends the process at once."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    last = threading.Timer(CLEANUP_SECONDS, os._exit, [128 + number])
    last.daemon = True
    last.start()
    raise Terminated


@contextmanager
def activity(what: str) -> Iterator[None]:
    """Names what is going on, for the message; where two are nested, the inner one counts."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.__dict__.setdefault("during", what)
        raise


@contextmanager
def resumable_with(how: Callable[[], str]) -> Iterator[None]:
    """Names the command that continues ("" = none does, yet); where two are nested, the outer one counts."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.__dict__["continue"] = how() or stop.__dict__.get("continue", "")
        raise


def message(stop: KeyboardInterrupt, verb: str) -> tuple[str, str]:
    """What was stopped, and what continues it.

    >>> try:
    ...     with resumable_with(lambda: "unmask pretrain --resume runs/a"), activity("preparing the text"):
    ...         raise Terminated
    ... except KeyboardInterrupt as stop:
    ...     print(message(stop, "unmask pretrain"))
    ('unmask pretrain was stopped by SIGTERM while preparing the text', 'unmask pretrain --resume runs/a')
    """
    known = stop.__dict__
    by = "SIGTERM" if isinstance(stop, Terminated) else "Ctrl-C"
    what = f" while {known['during']}" if known.get("during") else ""
    return f"{verb} was stopped by {by}{what}", known.get("continue") or "run the same command again"


def exit_code(stop: KeyboardInterrupt) -> int:
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


def interruptible(work: Callable[[], Any]) -> None:
    """Runs `work` in a thread while this one waits, so that a signal is seen at once: code in Rust or C that takes long
    would see it only when it is done. After a signal the thread is left behind; the command line then ends the process."""
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
