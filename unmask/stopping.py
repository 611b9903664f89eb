"""Handle Ctrl-C and SIGTERM in any command: clean up, print what was stopped and how to resume, exit with 130 or 143.

SIGTERM raises `Terminated`, a KeyboardInterrupt, so that both signals run the same cleanup. On its way up, the exception collects
the current activity (`activity`) and the command that resumes it (`resumable_with`). The training loop is stopped by a flag
instead (`train/fit.py`), because it saves a checkpoint first.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CLEANUP_SECONDS = 10.0  # after SIGTERM; then the process exits


class Terminated(KeyboardInterrupt):
    """Raised by SIGTERM."""


def handle_sigterm() -> None:
    """Make SIGTERM raise `Terminated`; a second SIGTERM ends the process at once."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    deadline = threading.Timer(CLEANUP_SECONDS, os._exit, [128 + number])
    deadline.daemon = True
    deadline.start()
    raise Terminated


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Name the activity in this block, for the interrupt message; the inner one of nested blocks takes precedence."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.__dict__.setdefault("during", name)
        raise


@contextmanager
def resumable_with(get_command: Callable[[], str]) -> Iterator[None]:
    """Name the command that resumes this block ("": none yet); the outer one of nested blocks takes precedence."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.__dict__["continue"] = get_command() or stop.__dict__.get("continue", "")
        raise


def message(stop: KeyboardInterrupt, verb: str) -> tuple[str, str]:
    """Return a message about what was stopped, and the command that resumes it.

    >>> try:
    ...     with resumable_with(lambda: "unmask pretrain --resume runs/a"), activity("preparing the text"):
    ...         raise Terminated
    ... except KeyboardInterrupt as stop:
    ...     print(message(stop, "unmask pretrain"))
    ('unmask pretrain was stopped by SIGTERM while preparing the text', 'unmask pretrain --resume runs/a')
    """
    notes = stop.__dict__
    signal_name = "SIGTERM" if isinstance(stop, Terminated) else "Ctrl-C"
    during = f" while {notes['during']}" if notes.get("during") else ""
    return f"{verb} was stopped by {signal_name}{during}", notes.get("continue") or "run the same command again"


def exit_code(stop: KeyboardInterrupt) -> int:
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


def interruptible(work: Callable[[], Any]) -> None:
    """Run `work` in a thread while this one waits, so that signals are handled at once: slow code in Rust or C would delay them.
    After a signal the thread keeps running; the command line then ends the process."""
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
