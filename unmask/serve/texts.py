"""What every method of a Predictor does with the texts it is given: take one or many, and name them."""

import re
from collections.abc import Iterable

from unmask.errors import UserError


def several(text: str | Iterable[str]) -> list[str]:
    texts = [text] if isinstance(text, str) else list(text)
    for item in texts:
        if not isinstance(item, str):
            raise UserError(f"{item!r:.80} is not text", valid="a str, or a list of them")
    # Half of a surrogate pair (a shell argument that is not UTF-8) can be neither encoded nor printed.
    return [re.sub("[\ud800-\udfff]", "\ufffd", item) for item in texts]


def which(texts: list[str], number: int, what: str = "text") -> str:
    return f"the {what}" if len(texts) == 1 else f"{what} {number + 1} of {len(texts)}"


def short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
