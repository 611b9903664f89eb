"""What a Predictor answers, and what a masked batch looks like: plain values, without torch.

`as_dict()` is ready for JSON. How they look in a terminal is in `cli/show/`.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


class Result:
    """A dataclass that goes out as JSON."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload]  # every Answer is a dataclass


@dataclass(frozen=True)
class Candidate:
    # Readable: 'states', '##s', or ' states' where pieces carry their blank; of several pieces the whole word.
    token: str
    id: int  # its piece; of several the first
    probability: float  # the model's own, over the whole vocabulary; of several pieces the product, from left to right
    text: str  # the text with this one put in; other masks stay
    ids: tuple[int, ...] = ()  # all its pieces
    mean_token_probability: float = (
        0.0  # the geometric mean of their probabilities, by which words of different length are compared
    )


@dataclass(frozen=True)
class Mask:
    position: int  # in the row of tokens, [CLS] being 0
    start: int  # characters [start, end) of the text
    end: int
    candidates: list[Candidate]  # likeliest first, as if this mask were asked alone


@dataclass(frozen=True)
class JointCandidate:
    """All masks filled together."""

    text: str
    logprob: float  # the sum over the pieces, from left to right, each seeing those before it filled
    tokens: list[str]  # what each mask became
    spans: list[tuple[int, int]]  # the characters of `text` that were put in


@dataclass(frozen=True)
class FillMaskResult(Result):
    text: str
    masks: list[Mask]
    best: str  # all masks filled: the first of `joint`; without it the surest first, each time asking the model again
    best_spans: list[tuple[int, int]]  # the characters of `best` that were put in
    joint: list[JointCandidate] = field(default_factory=list)  # likeliest first, per piece; empty when not asked for


@dataclass(frozen=True)
class TokenScore:
    token: str
    id: int
    logprob: float  # natural logarithm of its probability when it alone is hidden, or after those before it
    start: int  # characters [start, end) of the text
    end: int
    is_surprising: bool  # far below the text's mean


@dataclass(frozen=True)
class Score(Result):
    text: str
    total: float  # sum over the tokens, in nats
    perplexity: float  # exp(−total / tokens): a pseudo-perplexity, for comparing texts under one model
    per_token: list[TokenScore]
    pseudo: bool = True  # each token was seen from both sides; False: from the left, and `perplexity` is one
    method: str = "pll"  # or "within-word"; "left-to-right" of a model that predicts the next token


@dataclass(frozen=True)
class Pair:
    """A minimal pair: two sentences of which the model should find the first likelier."""

    good: str
    bad: str
    good_score: float  # log-likelihood in nats
    bad_score: float
    right: bool


@dataclass(frozen=True)
class AccuracyInterval:
    accuracy: float
    count: int
    interval: tuple[float, float]  # Wilson's, 95 %


@dataclass(frozen=True)
class MinimalPairs(AccuracyInterval, Result):
    method: str
    by: dict[str, AccuracyInterval]  # phenomenon → its share
    pairs: list[Pair]


@dataclass(frozen=True)
class Token:
    token: str
    start: int  # characters [start, end) of its text; a special token has none
    end: int
    segment: int  # 0: of the first text, 1: of the second


@dataclass(frozen=True)
class Occurrence:
    number: int  # of the text, from 0
    text: str
    start: int  # characters [start, end) of the text
    end: int


@dataclass(frozen=True)
class WordVectors(Result):
    word: str
    layer: int
    occurrences: list[Occurrence]
    vectors: np.ndarray  # (occurrences, D) float32

    def as_dict(self) -> dict[str, Any]:
        occurrences = [asdict(o) for o in self.occurrences]
        return {"word": self.word, "layer": self.layer, "occurrences": occurrences, "vectors": self.vectors.tolist()}


@dataclass(frozen=True)
class Attention(Result):
    tokens: list[Token]
    weights: np.ndarray  # (layers, heads, T, T) float32: how much each token (row) takes from each (column)

    def as_dict(self) -> dict[str, Any]:
        return {"tokens": [asdict(t) for t in self.tokens], "weights": self.weights.round(4).tolist()}


@dataclass(frozen=True)
class Attribution(Token):
    score: float  # how much it raised the value, in the value's unit


@dataclass(frozen=True)
class Explanation(Result):
    tokens: list[Attribution]
    target: str  # what was explained: a label, a tag of a word, an answer, a word
    value: float  # what the model gave the target: a logit, a log-probability, a cosine
    baseline: float  # what it gives it where every word is hidden
    method: str
    delta: float  # by how much the scores' sum misses value − baseline


@dataclass(frozen=True)
class Continuation(Result):
    text: str  # the prompt
    generated_text: str  # after the prompt; of an encoder–decoder its whole output
    tokens: list[str]  # of `generated_text`, with the end-of-sequence token
    finish_reason: str  # "eos", or "length" where max_new_tokens was reached
    continues: bool  # `generated_text` starts where `text` ends; False: an encoder–decoder wrote a text of its own


@dataclass(frozen=True)
class Part:
    """A piece of a training row, or a run of untouched ones."""

    state: str  # masked, random, kept: chosen for the loss; special: [CLS] …; text: untouched
    text: str  # what the corpus says there, with the blank before it if it has one
    shown: str  # what the model sees there


@dataclass(frozen=True)
class Row:
    tokens: int
    chosen: int  # targets of the loss in the row, for MLM the tokens chosen; 0: the objective judges whole rows
    is_next: bool | None  # whether segment B follows A; None: the row has no pair
    parts: list[Part]
    note: str = ""  # what else the objective made of the row: an order, what tokens see, what is to be written


@dataclass(frozen=True)
class MaskedBatch(Result):
    rows: list[Row]
