"""What a client is told when something is refused: a status, and a short JSON that says what was got, what is valid, what to do.

    {"error": {"code": "too_long", "message": "…", "valid": "…", "fix": "…"}}

The openai client shows `error.message`; huggingface_hub shows the header X-Error-Message, which says the same.
"""

import re
from typing import Any

from pydantic_core import to_json

from unmask.errors import UserError

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """
    >>> Refused(429, "busy", "too much waits", fix="ask again later").as_dict()
    {'error': {'code': 'busy', 'message': 'too much waits', 'valid': None, 'fix': 'ask again later'}}
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        valid: str | None = None,
        fix: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.code, self.message, self.valid, self.fix = status, code, message, valid, fix
        self.headers = headers or {}

    def as_dict(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "valid": self.valid, "fix": self.fix}}

    def body(self) -> bytes:
        return to_json(self.as_dict())

    def all_headers(self) -> dict[str, str]:
        return {"content-type": "application/json", "x-error-message": in_a_header(self.message)} | self.headers


def refusal(error: UserError) -> Refused:
    """A mistake in what was asked, as the Predictor says it."""
    return Refused(422, "invalid", _clean(error.got), valid=error.valid, fix=error.fix)


def in_a_header(text: str) -> str:
    """
    >>> in_a_header("a\\nb ☃ \\x19")
    'a b ? ?'
    """
    return re.sub(r"[^\x20-\x7e]", "?", " ".join(text.split())[:500])


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
