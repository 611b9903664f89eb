"""Text that the tokenizer does not know: an answer to a row of [UNK] says nothing about the text, however sure it looks.

`unknown_share` measures it, UNKNOWN says from which share on people are warned: in Python and on the command line by
UnknownTextWarning, over HTTP by a header (http/batching.py), in the studio by a note above the answer.
"""

import warnings
from collections.abc import Iterable, Sequence

from unmask.data.tokenizer import Tokenizer
from unmask.serve.texts import short

UNKNOWN = 0.5  # share of a text's words from which on it is worth a warning
LOOK = 400  # characters of a text that are looked at
TOKENS = 1000  # tokens that are looked at


class UnknownTextWarning(UserWarning):
    """Half of a text or more is unknown to the tokenizer."""


def unknown_share(tokenizer: Tokenizer, ids: Sequence[int]) -> float:
    """The share of [UNK] among the tokens that hold a letter or a digit; punctuation is known to almost every vocabulary.

    GPT-2's unknown token is also the one that ends a text, and never stands for an unknown word.
    """
    unk = tokenizer.unk
    if unk in (tokenizer.sep, tokenizer.pad, tokenizer.cls, tokenizer.mask) or unk not in ids:
        return 0.0
    seen = ids[:TOKENS]
    unknown = seen.count(unk)
    known = sum(1 for id in seen if not tokenizer.special[id] and any(map(str.isalnum, tokenizer.token(id))))
    return unknown / (unknown + known) if unknown else 0.0


def describe(tokenizer: Tokenizer, share: float, where: str = "the text") -> str:
    return f"{share:.0%} of the words of {where} are {tokenizer.token(tokenizer.unk)}: the model does not know them, so its answer says little"


def warn_unknown(tokenizer: Tokenizer, texts: Iterable[str], stacklevel: int = 3) -> None:
    """One UnknownTextWarning for all of `texts`, if the tokenizer does not know at least one of them."""
    texts = list(texts)
    encodings = tokenizer.encode_batch(text[:LOOK] for text in texts)
    shares = [unknown_share(tokenizer, encoding.ids) for encoding in encodings]
    bad = [number for number, share in enumerate(shares) if share >= UNKNOWN]
    if not bad:
        return
    where = "the text" if len(texts) == 1 else f"{len(bad):,} of {len(texts):,} texts"
    first = "" if len(texts) == 1 else f" (the first: {short(texts[bad[0]])!r})"
    mean = sum(shares[number] for number in bad) / len(bad)
    warnings.warn(describe(tokenizer, mean, where) + first, UnknownTextWarning, stacklevel=stacklevel + 1)
