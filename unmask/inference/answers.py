"""Result types of a Predictor, as plain dataclasses without torch. `cli/show/` renders them for the terminal.

The field names are the keys of the JSON output. [start, end) are character offsets into the text, log-probabilities are in nats.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


class Result:
    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)  # type: ignore[call-overload]  # every subclass is a dataclass


@dataclass(frozen=True)
class Candidate:
    token: str  # readable: 'states', '##s', or ' states' if tokens include their space; the whole word for several subwords
    id: int  # id of the first subword
    probability: float  # over the whole vocabulary; the product over the subwords, from left to right
    text: str  # the text with this mask filled; other masks stay
    ids: tuple[int, ...] = ()  # ids of all subwords
    mean_token_probability: float = 0.0  # geometric mean over the subwords; compares words of different lengths


@dataclass(frozen=True)
class Mask:
    position: int  # position in the row of tokens; [CLS] has position 0
    start: int
    end: int
    candidates: list[Candidate]  # most likely first, while the other masks are not filled


@dataclass(frozen=True)
class JointCandidate:
    """One way to fill all masks of a text."""

    text: str
    logprob: float  # sum over the subwords, from left to right; each is conditioned on the ones before it
    tokens: list[str]  # one word per mask
    spans: list[tuple[int, int]]  # [start, end) of each word in `text`


@dataclass(frozen=True)
class FillMaskResult(Result):
    text: str
    masks: list[Mask]
    best: str  # all masks filled: the first of `joint`; without a beam search one by one, the most confident first
    best_spans: list[tuple[int, int]]  # [start, end) of each word in `best`
    joint: list[JointCandidate] = field(
        default_factory=list
    )  # highest mean log-probability first; [] without num_beams


@dataclass(frozen=True)
class TokenScore:
    token: str
    id: int
    logprob: float  # given the tokens that the method shows to the model
    start: int
    end: int
    is_surprising: bool  # far below the mean of the text


@dataclass(frozen=True)
class Score(Result):
    text: str
    total: float  # sum of the log-probabilities
    perplexity: float  # exp(−total / tokens): compares texts under one model
    per_token: list[TokenScore]
    pseudo: bool = True  # pseudo-perplexity: the model sees both sides of a token; False: only the left side
    method: str = "pll"  # or "within-word", "left-to-right"


@dataclass(frozen=True)
class Pair:
    """A minimal pair: the model should give the higher log-likelihood to the good sentence."""

    good: str
    bad: str
    good_score: float  # log-likelihood
    bad_score: float
    right: bool  # good_score > bad_score


@dataclass(frozen=True)
class AccuracyInterval:
    accuracy: float
    count: int
    interval: tuple[float, float]  # 95% Wilson interval


@dataclass(frozen=True)
class MinimalPairs(AccuracyInterval, Result):
    method: str
    by: dict[str, AccuracyInterval]  # per phenomenon
    pairs: list[Pair]


@dataclass(frozen=True)
class Token:
    token: str
    start: int  # 0, as `end`, for a special token
    end: int
    segment: int  # 0: the first text, 1: the second


@dataclass(frozen=True)
class Occurrence:
    number: int  # index of the text
    text: str
    start: int
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
    weights: np.ndarray  # (layers, heads, T, T) float32: from each token (row) to each token (column)

    def as_dict(self) -> dict[str, Any]:
        return {"tokens": [asdict(t) for t in self.tokens], "weights": self.weights.round(4).tolist()}


@dataclass(frozen=True)
class Attribution(Token):
    score: float  # contribution to `Explanation.value`, in its unit


@dataclass(frozen=True)
class Explanation(Result):
    tokens: list[Attribution]
    target: str  # the explained prediction: a label, a tag of a word, an answer, a word
    value: float  # value of the target: a logit, a log-probability or a cosine
    baseline: float  # value of the target if every word is masked
    method: str
    delta: float  # convergence error: sum of the scores − (value − baseline)


@dataclass(frozen=True)
class Continuation(Result):
    text: str  # the prompt
    generated_text: str  # without the prompt
    tokens: list[str]  # of `generated_text`, including the end-of-sequence token
    finish_reason: str  # "eos", or "length" if max_new_tokens was reached
    continues: (
        bool  # `generated_text` continues `text`; False: it is the separate output of an encoder–decoder or a task
    )


@dataclass(frozen=True)
class Part:
    """A token of a training row, or a run of unchanged tokens."""

    state: str  # masked, random, kept: targets of the loss; special: [CLS] …; text: unchanged
    text: str  # original text, with the space before it if there is one
    shown: str  # model input


@dataclass(frozen=True)
class Row:
    tokens: int
    chosen: int  # target tokens of the loss; 0 if the objective predicts one label for the row
    is_next: bool | None  # whether segment B follows A; None if the row is not a pair
    parts: list[Part]
    note: str = ""  # further changes of the objective: order of the segments, attention mask, decoder target


@dataclass(frozen=True)
class MaskedBatch(Result):
    rows: list[Row]
