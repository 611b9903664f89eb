"""What every method of a Predictor does with the texts it is given: take one or many, name them, group them."""

import re
from collections.abc import Iterable, Iterator, Sequence

from unmask.errors import UserError

TOKENS = 4096  # per forward pass, padding included: fills two cores, and bounds memory


def batches(lengths: Sequence[int], tokens: int = TOKENS) -> Iterator[list[int]]:
    """Indices grouped by length, at most `tokens` with padding; longest first: memory fails at once or never.

    >>> list(batches([3, 9, 4, 8], tokens=16))
    [[1], [3, 2], [0]]
    """
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if group and lengths[group[0]] * (len(group) + 1) > tokens:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


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
