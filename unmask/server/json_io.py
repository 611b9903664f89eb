"""Strict JSON in and out. Values that JSON cannot hold (NaN, lone surrogates), NUL characters and deep nesting are errors of
the client; a response never contains NaN.

    router = APIRouter(route_class=StrictRoute)     # parses bodies with `parse_body`
    return JSONResponse(value)                      # also numpy arrays and results of a Predictor
    return await json_response(lambda: value)       # the same; a large one is built and serialized outside the event loop
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

from unmask.server.errors import RequestError
from unmask.server.request_usage import current_request

INLINE_BYTES = 256 << 10  # a response up to this size is built in the event loop
MAX_VALUES = 100_000  # in a body: parsing and validating a value takes about 100 times its bytes
MAX_KEYS = 1000  # of an object in a body
STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


class StrictModel(BaseModel):
    """A schema that rejects unknown keys and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def parse_body(raw: bytes) -> Any:
    """
    >>> parse_body(b'{"inputs": "a"}')
    {'inputs': 'a'}
    """
    _check_num_values(raw)
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        expected = 'UTF-8 JSON such as {"inputs": "a text"}'
        raise RequestError(400, "invalid_json", f"the body is not valid JSON: {error}", expected=expected) from None
    if (count := max_keys(value)) > MAX_KEYS:
        raise RequestError(422, "invalid", f"an object has {count:,} keys", expected=f"at most {MAX_KEYS:,}")
    if rb"\u0000" in raw and _contains_nul(value):
        raise RequestError(422, "invalid", "a text contains NUL (\\u0000)", expected="texts without NUL")
    return value


def _check_num_values(raw: bytes) -> None:
    """Reject a body with too many values before it is parsed: validating them would block all other requests."""

    def count(data: bytes) -> int:
        return sum(map(data.count, (b",", b"[", b"{")))

    if count(raw) <= MAX_VALUES:
        return
    num_values = count(STRING.sub(b"", raw))  # texts may contain any number of commas
    if num_values > MAX_VALUES:
        message = f"the body contains about {num_values:,} values"
        raise RequestError(
            413, "too_many_values", message, expected=f"at most {MAX_VALUES:,}", hint="split the request"
        )


def max_keys(value: Any) -> int:
    """Return the number of keys of the largest object.

    >>> max_keys({"a": [{"b": 1, "c": 2, "d": 3}]})
    3
    """
    if isinstance(value, dict):
        return max(len(value), max(map(max_keys, value.values()), default=0))
    return max(map(max_keys, value), default=0) if isinstance(value, list) else 0


def _contains_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_contains_nul(part) for pair in value.items() for part in pair)
    return isinstance(value, list) and any(_contains_nul(part) for part in value)


class StrictRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_parsed"):
            self._parsed = parse_body(await self.body())
        return self._parsed


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            if self.body_field is not None:  # parsed by FastAPI, every error would be "error parsing the body"
                await strict.json()
            return await handle(strict)

        return handle_strictly


class JSONResponse(Response):
    """
    >>> JSONResponse({"vector": np.array([1.0, np.nan])}).body
    b'{"vector":[1.0,null]}'
    """

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else dump_json(content)


async def json_response(build: Callable[[], Any]) -> JSONResponse:
    """Build a value and return it as JSON; in a thread if the response is large."""
    if current_request().response_bytes <= INLINE_BYTES:
        return JSONResponse(build())
    return JSONResponse(await asyncio.to_thread(lambda: dump_json_in_parts(build())))


def dump_json_in_parts(value: Any, depth: int = 2) -> bytes:
    """Serialize like `dump_json`, but in several calls: a single one would hold the GIL, and block all requests, to its end.

    >>> dump_json_in_parts({"rows": [[1, 2], [3.5]], "n": None}) == dump_json({"rows": [[1, 2], [3.5]], "n": None})
    True
    """
    if isinstance(value, np.ndarray) or hasattr(value, "as_dict"):
        value = to_builtin(value)
    if depth and isinstance(value, list):
        return b"[%b]" % b",".join([dump_json_in_parts(item, depth - 1) for item in value])
    if depth and isinstance(value, dict):
        items = [b"%b:%b" % (dump_json(str(k)), dump_json_in_parts(v, depth - 1)) for k, v in value.items()]
        return b"{%b}" % b",".join(items)
    return dump_json(value)


def dump_json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null", fallback=to_builtin)


def to_builtin(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "as_dict"):
        return value.as_dict()
    raise TypeError(f"cannot serialize {type(value).__name__} as JSON")
