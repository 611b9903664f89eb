"""Text that the tokenizer does not know: an answer to a row of [UNK] says nothing about the text, however sure it looks.

`unknown_fraction` measures it, UNKNOWN says from which share on people are warned: in Python and on the command line by
UnknownTextWarning, over HTTP by a header (http/batching.py), in the studio by a note above the answer.
"""

import sys
import warnings
from collections.abc import Sequence

from unmask.errors import UnknownTextWarning
from unmask.inference.inputs import shorten
from unmask.text.tokenizer import Tokenizer

WARN_FRACTION = 0.5  # share of a text's words from which on it is worth a warning
MAX_CHARACTERS = 400  # characters of a text that are looked at
MAX_TOKENS = 1000  # tokens of a text that are looked at
CHUNK = 1000  # texts that are read at a time


def unknown_fraction(tokenizer: Tokenizer, ids: Sequence[int]) -> float:
    """The share of [UNK] among the tokens that hold a letter or a digit; punctuation is known to almost every vocabulary.

    GPT-2's unknown token is also the one that ends a text, and never stands for an unknown word.
    """
    unk = tokenizer.unk
    if unk in (tokenizer.sep, tokenizer.pad, tokenizer.cls, tokenizer.mask) or unk not in ids:
        return 0.0
    seen = ids[:MAX_TOKENS]
    unknown = seen.count(unk)
    known = sum(1 for id in seen if not tokenizer.special[id] and any(map(str.isalnum, tokenizer.token(id))))
    return unknown / (unknown + known) if unknown else 0.0


def describe(tokenizer: Tokenizer, share: float, where: str = "the text") -> str:
    unk = tokenizer.token(tokenizer.unk)
    return f"{share:.0%} of the words of {where} are unknown to the model ({unk}): its answer says little about them"


def warn_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """One UnknownTextWarning for all of `texts`, where the tokenizer does not know one of them or more."""
    shares: dict[int, float] = {}  # number of a text that it does not know
    for start in range(0, len(texts), CHUNK):
        encodings = tokenizer.encode_batch(text[:MAX_CHARACTERS] for text in texts[start : start + CHUNK])
        found = enumerate((unknown_fraction(tokenizer, encoding.ids) for encoding in encodings), start)
        shares |= {number: share for number, share in found if share >= WARN_FRACTION}
    if not shares:
        return
    first = next(iter(shares))
    where = "the text" if len(texts) == 1 else f"{len(shares):,} of {len(texts):,} texts"
    shown = "" if len(texts) == 1 else f"; the first: {shorten(texts[first])!r}"
    share = sum(shares.values()) / len(shares)
    warnings.warn(describe(tokenizer, share, where) + shown, UnknownTextWarning, stacklevel=_level())


def _level() -> int:
    """How many calls above its caller the user's own code is."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("unmask."):
        frame, level = frame.f_back, level + 1
    return level
