"""How large the answers to a request will be, estimated before they are computed.

A small request can ask for a large response: each candidate for a mask repeats the whole text, attention is quadratic in the
tokens, every occurrence of a word brings its sentence. The estimate is of JSON bytes, or of bytes in memory where those are more.
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

NUMBER = 22  # bytes of a figure
ENTRY = 200  # bytes of a small object: a candidate without its text, a token with its place
TOKEN = 64  # bytes of a token that is written
SPANS = 3  # answers that question answering gives of a passage (tasks/answer/task.py), and the best one again


def of_text(text: str) -> int:
    """
    >>> 1000 < of_text("a" * 1000) < 1100 and of_text("\\n" * 1000) > 2000
    True
    """
    return max(len(to_json(text)), sys.getsizeof(text))


def estimate(
    predictor: "Predictor", method: str, items: Sequence[Any], counts: Sequence[int], settings: Mapping[str, Any]
) -> int:
    """Bytes of the answers to all `items`, whose texts have `counts` tokens."""
    given = sum(of_text(text) for item in items for text in texts_in(item)) + ENTRY * len(items)
    tokens = sum(counts)
    if method == "fill":
        return given + sum(_filling(predictor, text, settings) for item in items for text in texts_in(item))
    if method == EMBED and settings.get("pooling") != "token":
        return len(items) * (predictor.config.hidden * NUMBER + ENTRY)
    if method == EMBED:
        return (tokens + 2 * len(items)) * predictor.config.hidden * NUMBER
    if method == "word_vectors":
        return given + _occurrences(predictor, *items[0])
    if method == "similarity":
        return NUMBER * math.prod(sum(1 for _ in texts_in(part)) for part in items[0])
    if method == "attention":
        config = predictor.config
        return given + 4 * config.layers * config.heads * (tokens + 3) ** 2  # float32
    if method == GENERATE:
        return given + len(items) * TOKEN * cost.new_tokens(predictor, settings)
    return given + _of_task(predictor, method, items, tokens)


def _filling(predictor: "Predictor", text: str, settings: Mapping[str, Any]) -> int:
    """Every candidate of every mask repeats the text; so does every way of filling all masks together."""
    masks, words = cost.masks_in(predictor, text), settings.get("candidates")
    top = min(cost.whole(settings, "top_k") or 5, predictor.config.vocab_size if words is None else len(words))
    together = min(cost.whole(settings, "num_beams"), cost.whole(settings, "top_k") or 5)
    return (of_text(text) + ENTRY) * (masks * top + together + 1) + ENTRY * masks * together


def _occurrences(predictor: "Predictor", word: str, texts: Sequence[str]) -> int:
    """Each brings its sentence and a vector."""
    own = word.strip().lower()
    found = [(text.lower().count(own) if own else 0, text) for text in texts]
    return sum(n * (of_text(text) + ENTRY + 4 * predictor.config.hidden) for n, text in found)


def _of_task(predictor: "Predictor", method: str, items: Sequence[Any], tokens: int) -> int:
    """What a task predicts beside what it was given; `score` and `explain` have an entry for each token."""
    spec = predictor.task.spec if predictor.task is not None and method == "predict" else None
    if spec is not None and spec.output == "span":
        return (SPANS + 1) * sum(of_text(text) + ENTRY for item in items for text in texts_in(item))
    if spec is not None and spec.output == "vector":
        return len(items) * predictor.config.hidden * NUMBER
    if spec is not None and spec.output == "text":
        return len(items) * TOKEN * cost.new_tokens(predictor, {})
    if spec is not None and spec.view == "labels":
        return len(items) * sum(of_text(label) + NUMBER for label in spec.labels)
    texts = sum(of_text(text) for item in items for text in texts_in(item))
    return texts + ENTRY * (tokens + sum(1 for item in items for _ in texts_in(item)))
