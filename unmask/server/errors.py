"""HTTP errors: a status code and a JSON body with a message, the expected value and a hint.

    {"error": {"code": "too_long", "message": "…", "expected": "…", "hint": "…"}}

The openai client shows `error.message`; huggingface_hub shows the header X-Error-Message, which repeats it.
"""

import re
from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from unmask.errors import UserError


class RequestError(Exception):
    """
    >>> RequestError(429, "busy", "queue full", hint="retry later").body()
    b'{"error":{"code":"busy","message":"queue full","expected":null,"hint":"retry later"}}'
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        expected: str | None = None,
        hint: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.code, self.message, self.expected, self.hint = status, code, message, expected, hint
        self.headers = headers or {}

    def body(self) -> bytes:
        names = ("code", "message", "expected", "hint")
        return to_json({"error": {name: getattr(self, name) for name in names}})

    def response_headers(self) -> dict[str, str]:
        return {"content-type": "application/json", "x-error-message": sanitize_header(self.message)} | self.headers


def internal_error() -> RequestError:
    return RequestError(500, "internal", "internal server error; see the server log")


def from_user_error(error: UserError) -> RequestError:
    """Convert an error in the client's input. Lone surrogates in the message are replaced: JSON cannot hold them."""
    message = error.message.encode("utf-8", "replace").decode()
    return RequestError(422, "invalid", message, expected=error.expected, hint=error.hint)


def from_validation(errors: Sequence[Any]) -> RequestError:
    """Summarize pydantic's errors in one line: locations and reasons, without the input itself.

    >>> from_validation([{"loc": ("body", "parameters", "topk"), "type": "extra_forbidden", "msg": ""}]).message
    'parameters.topk: unknown field'
    """
    reasons = []
    for error in errors:
        location = ".".join(str(part) for part in error["loc"] if part != "body") or "body"
        reasons.append(f"{location}: {'unknown field' if error['type'] == 'extra_forbidden' else error['msg'].lower()}")
    reasons = list(dict.fromkeys(reasons))
    more = f" (and {len(reasons) - 4} more)" if len(reasons) > 4 else ""
    hint = "see GET /docs for the request schema"
    return RequestError(422, "invalid", "; ".join(reasons[:4])[:600] + more, hint=hint)


def sanitize_header(text: str) -> str:
    """
    >>> sanitize_header("a\\nb ☃ \\x19")
    'a b ? ?'
    """
    return re.sub(r"[^\x20-\x7e]", "?", " ".join(text.split())[:500])
