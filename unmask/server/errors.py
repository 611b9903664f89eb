"""What a client is told when something is refused: a status, and a short JSON that says what was got, what is valid, what to do.

    {"error": {"code": "too_long", "message": "…", "expected": "…", "hint": "…"}}

The openai client shows `error.message`; huggingface_hub shows the header X-Error-Message, which says the same.
"""

import re
from typing import Any

from pydantic_core import to_json

from unmask.errors import UserError

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """
    >>> Refused(429, "busy", "too much waits", hint="ask again later").as_dict()
    {'error': {'code': 'busy', 'message': 'too much waits', 'expected': None, 'hint': 'ask again later'}}
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

    def as_dict(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "expected": self.expected, "hint": self.hint}}

    def body(self) -> bytes:
        return to_json(self.as_dict())

    def all_headers(self) -> dict[str, str]:
        return {"content-type": "application/json", "x-error-message": in_a_header(self.message)} | self.headers


def refusal(error: UserError) -> Refused:
    """A mistake in what was asked, as the Predictor says it."""
    return Refused(422, "invalid", _clean(error.message), expected=error.expected, hint=error.hint)


def in_a_header(text: str) -> str:
    """
    >>> in_a_header("a\\nb ☃ \\x19")
    'a b ? ?'
    """
    return re.sub(r"[^\x20-\x7e]", "?", " ".join(text.split())[:500])


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
