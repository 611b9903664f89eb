"""The request that is being answered: what it will hold in memory, what it read, and what its client should be warned about.

The gate opens one per request; the batcher, which knows what an answer costs, fills it in wherever it is called from.

    with current.open_request(budget) as request: …     # the gate
    current.request().reserve(size)                     # anywhere inside
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from unmask.server.errors import Refused


class Budget:
    """Bytes of all responses that are computed or being sent.

    >>> budget = Budget(100)
    >>> budget.take(80)
    >>> budget.take(30)
    Traceback (most recent call last):
    unmask.server.errors.Refused: responses of 80 bytes in total are already in progress
    """

    def __init__(self, limit: float):
        self.limit, self.held = limit, 0

    def take(self, count: int) -> None:
        if self.held and self.held + count > self.limit:
            message = f"responses of {self.held:,} bytes in total are already in progress"
            raise Refused(503, "busy", message, hint="ask again in a moment", headers={"retry-after": "1"})
        self.held += count


class Current:
    def __init__(self, budget: Budget):
        self.budget = budget
        self.size = 0  # bytes of its response, estimated
        self.tokens = 0  # of its texts
        self.warnings: list[str] = []

    def reserve(self, count: int) -> None:
        self.budget.take(count)
        self.size += count

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


_request: ContextVar[Current | None] = ContextVar("unmask_request", default=None)


@contextmanager
def open_request(budget: Budget) -> Iterator[Current]:
    mine = Current(budget)
    token = _request.set(mine)
    try:
        yield mine
    finally:
        _request.reset(token)
        budget.held -= mine.size


def request() -> Current:
    """The one being answered; outside a server one that nobody reads."""
    return _request.get() or Current(Budget(math.inf))
