"""Turns: several threads, one forward pass at a time, in the order in which they asked for it.

So a long question does not hold up the short ones: between two of its forward passes another thread has its turn. A question
that nobody waits for any more gets no further turn.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Gone(Exception):
    """Nobody waits for the answer."""


class Turns:
    """
    >>> turns = Turns()
    >>> with turns.take():
    ...     "a forward pass"
    'a forward pass'
    >>> with turns.while_waited_for(lambda: False), turns.take():
    ...     "another"
    Traceback (most recent call last):
    unmask.server.turns.Gone
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._line: deque[threading.Event] = deque()
        self._own = threading.local()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for the turn of this thread, and have it. (A thread that has it must not ask again.)"""
        waited_for: Callable[[], bool] = getattr(self._own, "waited_for", None) or (lambda: True)
        if not waited_for():
            raise Gone
        with self._lock:
            mine = threading.Event() if self._taken else None
            if mine:
                self._line.append(mine)
            self._taken = True
        if mine:
            mine.wait()
        try:
            if not waited_for():
                raise Gone
            yield
        finally:
            with self._lock:
                if self._line:
                    self._line.popleft().set()
                else:
                    self._taken = False

    @contextmanager
    def while_waited_for(self, waited_for: Callable[[], bool]) -> Iterator[None]:
        """What this thread does inside is given up, by Gone, at the first turn after `waited_for` says no."""
        self._own.waited_for = waited_for
        try:
            yield
        finally:
            self._own.waited_for = None
