"""Random byte sequences with word, sentence and document flags, for statistics over many sequences."""

import numpy as np

from unmask.batch import Example
from unmask.recipe import TokenizerRecipe
from unmask.seeds import generator
from unmask.text.flags import DOCUMENT, SENTENCE, WORD
from unmask.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["a"], TokenizerRecipe(type="byte"))
ORDINARY = np.flatnonzero(~TOKENIZER.special)


def row(i: int, length: int = 128, tokenizer: Tokenizer = TOKENIZER, documents: bool = False) -> Example:
    """Words average 1.4 tokens and sentences 14. With `documents`, a [SEP] in the middle ends a document."""
    rng = generator("rows", i)
    ordinary = np.flatnonzero(~tokenizer.special)
    first = [] if tokenizer.cls is None else [tokenizer.cls]
    ids = np.array([*first, *rng.choice(ordinary, length - len(first) - 1), tokenizer.sep])
    flags = np.where(rng.random(length) < 0.7, WORD, 0).astype(np.uint8)
    flags[(flags > 0) & (rng.random(length) < 0.1)] |= SENTENCE
    flags[len(first)] = WORD | SENTENCE | DOCUMENT
    if documents:
        middle = length // 2
        ids[middle], flags[middle], flags[middle + 1] = tokenizer.sep, 0, WORD | SENTENCE | DOCUMENT
    flags[: len(first)] = flags[-1] = 0
    return Example(ids, flags=flags)
