"""Estimate the size of a response before it is computed.

A small request can ask for a large response: each candidate for a mask repeats the whole text, attention is quadratic in the
number of tokens, every occurrence of a word includes its sentence. The estimate is in bytes of JSON, or in bytes in memory where
those are more.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from unmask.inference.inputs import texts_in
from unmask.inference.methods import EMBED, GENERATE
from unmask.server import cost

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

# Bytes of JSON:
NUMBER = 22
ENTRY = 200  # a small object: a candidate without its text, a token with its position
TOKEN = 64  # a generated token
NUM_SPANS = 3  # spans that question answering returns for a passage (tasks/answer/task.py); the best one is repeated


def text_bytes(text: str) -> int:
    """
    >>> 1000 < text_bytes("a" * 1000) < 1100 and text_bytes("\\n" * 1000) > 2000
    True
    """
    return max(len(to_json(text)), sys.getsizeof(text))


def estimate(
    predictor: "Predictor", method: str, items: Sequence[Any], counts: Sequence[int], settings: Mapping[str, Any]
) -> int:
    """Return the bytes of the results for all `items`, whose texts have `counts` tokens."""
    texts = [text for item in items for text in texts_in(item)]
    inputs = sum(map(text_bytes, texts)) + ENTRY * len(items)
    tokens = sum(counts)
    if method == "fill":
        return inputs + sum(_fill(predictor, text, settings) for text in texts)
    if method == EMBED and settings.get("pooling") != "token":
        return len(items) * (predictor.config.hidden * NUMBER + ENTRY)
    if method == EMBED:
        return (tokens + 2 * len(items)) * predictor.config.hidden * NUMBER
    if method == "word_vectors":
        return inputs + _occurrences(predictor, *items[0])
    if method == "similarity":
        return NUMBER * math.prod(sum(1 for _ in texts_in(part)) for part in items[0])
    if method == "attention":
        config = predictor.config
        return inputs + 4 * config.layers * config.heads * (tokens + 3) ** 2  # float32
    if method == GENERATE:
        return inputs + len(items) * TOKEN * cost.max_new_tokens(predictor, settings)
    return inputs + _prediction(predictor, method, len(items), texts, tokens)


def _fill(predictor: "Predictor", text: str, settings: Mapping[str, Any]) -> int:
    """Return the bytes for one text: every candidate of every mask repeats the text, and so does every beam."""
    masks, words = cost.count_masks(predictor, text), settings.get("candidates")
    top = cost.int_setting(settings, "top_k") or 5
    per_mask = min(top, predictor.config.vocab_size if words is None else len(words))
    joint = min(cost.int_setting(settings, "num_beams"), top)
    return (text_bytes(text) + ENTRY) * (masks * per_mask + joint + 1) + ENTRY * masks * joint


def _occurrences(predictor: "Predictor", word: str, texts: Sequence[str]) -> int:
    """Return the bytes of all occurrences, each with its sentence and a vector."""
    word = word.strip().lower()
    vector = 4 * predictor.config.hidden
    return sum(text.lower().count(word) * (text_bytes(text) + ENTRY + vector) for text in texts) if word else 0


def _prediction(predictor: "Predictor", method: str, count: int, texts: Sequence[str], tokens: int) -> int:
    """Return the bytes of a prediction, in addition to the inputs; `score` and `explain` have an entry per token."""
    size = sum(map(text_bytes, texts))
    if predictor.task is not None and method == "predict":
        spec = predictor.task.spec
        if spec.output == "span":
            return (NUM_SPANS + 1) * (size + ENTRY * len(texts))
        if spec.output == "vector":
            return count * predictor.config.hidden * NUMBER
        if spec.output == "text":
            return count * TOKEN * cost.max_new_tokens(predictor, {})
        if spec.view == "labels":
            return count * sum(text_bytes(label) + NUMBER for label in spec.labels)
    return size + ENTRY * (tokens + len(texts))
