"""JSON in and out, strictly: what JSON does not know (NaN, half a surrogate pair), what no text holds (NUL), and what is
nested too deeply is a mistake of the client; an answer never holds NaN.

    router = APIRouter(route_class=Route)     # its bodies come through `read`
    return Answer(value)                      # numpy arrays and answers of a Predictor are fine
    return await answer(lambda: value)        # the same; a large one is made and serialised outside the event loop
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json, to_json

from unmask.server import current
from unmask.server.errors import Refused

SMALL = 256 << 10  # bytes of a response that is made in the event loop
VALUES = 100_000  # in a body: each costs a hundred times its bytes once it is parsed and checked
KEYS = 1000  # of an object in a body
STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


class Strict(BaseModel):
    """A request: every key known, every value of its type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def read(raw: bytes) -> Any:
    """
    >>> read(b'{"inputs": "a"}')
    {'inputs': 'a'}
    """
    _check_many(raw)
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(
            400, "invalid_json", f"the body is not JSON: {error}", expected='UTF-8 JSON such as {"inputs": "a text"}'
        ) from None
    if most_keys(value) > KEYS:
        raise Refused(422, "invalid", f"an object has {most_keys(value):,} keys", expected=f"at most {KEYS:,}")
    if rb"\u0000" in raw and _holds_nul(value):
        raise Refused(422, "invalid", "a text holds NUL (\\u0000)", expected="texts without it")
    return value


def _check_many(raw: bytes) -> None:
    """Refuses, before it is parsed, a body of so many values that checking them would hold up everyone."""
    if sum(map(raw.count, (b",", b"[", b"{"))) <= VALUES:
        return
    bare = STRING.sub(b"", raw)  # texts may hold as many commas as they like
    found = sum(map(bare.count, (b",", b"[", b"{")))
    if found > VALUES:
        raise Refused(
            413, "too_many_values", f"the body holds about {found:,} values", expected=f"at most {VALUES:,}", hint="send it in parts"
        )  # fmt: skip


def most_keys(value: Any) -> int:
    """
    >>> most_keys({"a": [{"b": 1, "c": 2, "d": 3}]})
    3
    """
    if isinstance(value, dict):
        return max(len(value), max(map(most_keys, value.values()), default=0))
    return max(map(most_keys, value), default=0) if isinstance(value, list) else 0


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_holds_nul(part) for pair in value.items() for part in pair)
    return isinstance(value, list) and any(_holds_nul(part) for part in value)


class StrictRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_read"):
            self._read = read(await self.body())
        return self._read


class Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            if (
                self.body_field is not None
            ):  # before FastAPI asks, which would call every mistake "an error parsing the body"
                await strict.json()
            return await handle(strict)

        return strictly


class Answer(Response):
    """
    >>> Answer({"vector": np.array([1.0, np.nan])}).body
    b'{"vector":[1.0,null]}'
    """

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else dump(content)


async def answer(make: Callable[[], Any]) -> Answer:
    """What `make` gives, as JSON."""
    if current.request().size <= SMALL:
        return Answer(make())
    return Answer(await asyncio.to_thread(lambda: as_json(make())))


def as_json(value: Any, depth: int = 2) -> bytes:
    """The same bytes as `dump`, in several calls: a single one would hold the interpreter, and so all other requests, to its end.

    >>> as_json({"rows": [[1, 2], [3.5]], "n": None}) == dump({"rows": [[1, 2], [3.5]], "n": None})
    True
    """
    if isinstance(value, np.ndarray) or hasattr(value, "as_dict"):
        value = plain(value)
    if depth and isinstance(value, list):
        return b"[%b]" % b",".join([as_json(item, depth - 1) for item in value])
    if depth and isinstance(value, dict):
        return b"{%b}" % b",".join([b"%b:%b" % (dump(str(k)), as_json(v, depth - 1)) for k, v in value.items()])
    return dump(value)


def dump(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null", fallback=plain)


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "as_dict"):
        return value.as_dict()
    raise TypeError(f"{type(value).__name__} is no JSON")
