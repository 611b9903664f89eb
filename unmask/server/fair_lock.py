"""FairLock: lets one thread at a time run a forward pass, in the order in which they asked for it (FIFO).

The lock is released after every forward pass, so a short request waits for one forward pass of a long request and not for all
of it. An abandoned request does not get the lock again.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RequestAbandoned(Exception):
    """All clients that waited for the result have disconnected or timed out."""


class FairLock:
    """
    >>> lock = FairLock()
    >>> with lock.acquire():
    ...     "a forward pass"
    'a forward pass'
    >>> with lock.cancel_if_abandoned(lambda: True), lock.acquire():
    ...     "another"
    Traceback (most recent call last):
    unmask.server.fair_lock.RequestAbandoned
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locked = False
        self._queue: deque[threading.Event] = deque()
        self._local = threading.local()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Hold the lock within the block. It is not reentrant."""
        is_abandoned: Callable[[], bool] = getattr(self._local, "is_abandoned", None) or (lambda: False)
        if is_abandoned():
            raise RequestAbandoned
        with self._mutex:
            turn = threading.Event() if self._locked else None
            if turn:
                self._queue.append(turn)
            self._locked = True
        if turn:
            turn.wait()
        try:
            if is_abandoned():
                raise RequestAbandoned
            yield
        finally:
            with self._mutex:
                if self._queue:
                    self._queue.popleft().set()
                else:
                    self._locked = False

    @contextmanager
    def cancel_if_abandoned(self, is_abandoned: Callable[[], bool]) -> Iterator[None]:
        """Within this block, raise RequestAbandoned before the next forward pass of this thread once `is_abandoned()`."""
        self._local.is_abandoned = is_abandoned
        try:
            yield
        finally:
            self._local.is_abandoned = None
