"""Warnings about texts that the tokenizer does not know: a prediction for a row of [UNK] is meaningless, whatever its probability.

The warning is an UnknownTextWarning in Python and on the command line, a header in HTTP responses (server/batching.py), and a note
in the studio.
"""

import sys
import warnings
from collections.abc import Sequence

from unmask.errors import UnknownTextWarning
from unmask.inference.inputs import shorten
from unmask.text.tokenizer import Tokenizer

WARN_FRACTION = 0.5  # of the words of a text
MAX_CHARACTERS = 400  # checked per text
MAX_TOKENS = 1000  # checked per text
CHUNK = 1000  # texts encoded at a time


def unknown_fraction(tokenizer: Tokenizer, ids: Sequence[int]) -> float:
    """Return the fraction of [UNK] among itself and the tokens with a letter or digit; nearly every vocabulary has punctuation.

    GPT-2's unknown token is its end-of-text token, which never stands for an unknown word.
    """
    unk = tokenizer.unk
    if unk in (tokenizer.sep, tokenizer.pad, tokenizer.cls, tokenizer.mask) or unk not in ids:
        return 0.0
    ids = ids[:MAX_TOKENS]
    unknown = ids.count(unk)
    known = sum(1 for id in ids if not tokenizer.special[id] and any(map(str.isalnum, tokenizer.token(id))))
    return unknown / (unknown + known) if unknown else 0.0


def describe(tokenizer: Tokenizer, fraction: float, name: str = "the text") -> str:
    unk = tokenizer.token(tokenizer.unk)
    return f"{fraction:.0%} of the words of {name} are unknown to the model ({unk}): the result is not reliable"


def warn_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Issue one UnknownTextWarning if the tokenizer does not know one or more of the texts."""
    fractions: dict[int, float] = {}  # index of an unknown text → fraction of unknown words
    for start in range(0, len(texts), CHUNK):
        encodings = tokenizer.encode_batch(text[:MAX_CHARACTERS] for text in texts[start : start + CHUNK])
        for number, encoding in enumerate(encodings, start):
            if (fraction := unknown_fraction(tokenizer, encoding.ids)) >= WARN_FRACTION:
                fractions[number] = fraction
    if not fractions:
        return
    name, example = "the text", ""
    if len(texts) > 1:
        name = f"{len(fractions):,} of {len(texts):,} texts"
        example = f"; the first: {shorten(texts[next(iter(fractions))])!r}"
    mean = sum(fractions.values()) / len(fractions)
    warnings.warn(describe(tokenizer, mean, name) + example, UnknownTextWarning, stacklevel=_stack_level())


def _stack_level() -> int:
    """Return the `stacklevel` with which a warning of the caller points to the user's code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("unmask."):
        frame, level = frame.f_back, level + 1
    return level
