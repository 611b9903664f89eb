"""Track the current request: the bytes of its response, its tokens, and the warnings for its client.

The middleware opens one per request; the batcher, which knows the cost of a call, updates it.

    with track_request(budget) as usage: …     # the middleware
    current_request().reserve(size)            # anywhere inside
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from unmask.server.errors import RequestError


class ResponseBudget:
    """Bytes of all responses that are being computed or sent.

    >>> budget = ResponseBudget(100)
    >>> budget.reserve(80)
    >>> budget.reserve(30)
    Traceback (most recent call last):
    unmask.server.errors.RequestError: responses of 80 bytes in total are already in progress
    """

    def __init__(self, limit: float):
        self.limit, self.reserved = limit, 0

    def reserve(self, count: int) -> None:
        if self.reserved and self.reserved + count > self.limit:
            message = f"responses of {self.reserved:,} bytes in total are already in progress"
            raise RequestError(503, "busy", message, hint="retry later", headers={"retry-after": "1"})
        self.reserved += count


class RequestUsage:
    def __init__(self, budget: ResponseBudget):
        self.budget = budget
        self.response_bytes = 0  # estimated
        self.tokens = 0  # of its texts
        self.warnings: dict[str, None] = {}  # in order, without repetitions

    def reserve(self, count: int) -> None:
        self.budget.reserve(count)
        self.response_bytes += count


_current: ContextVar[RequestUsage | None] = ContextVar("unmask_request", default=None)


@contextmanager
def track_request(budget: ResponseBudget) -> Iterator[RequestUsage]:
    usage = RequestUsage(budget)
    token = _current.set(usage)
    try:
        yield usage
    finally:
        _current.reset(token)
        budget.reserved -= usage.response_bytes


def current_request() -> RequestUsage:
    """Return the usage of the current request, or an unlimited one outside a request."""
    return _current.get() or RequestUsage(ResponseBudget(math.inf))
