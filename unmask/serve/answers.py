"""What a Predictor answers, and what a masked batch looks like: plain values, without torch.

`as_dict()` is ready for JSON. How they look in a terminal is in `show.py`.
"""

from dataclasses import asdict, dataclass
from typing import Any


class Answer:
    """A dataclass that goes out as JSON."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload]  # every Answer is a dataclass


@dataclass(frozen=True)
class Candidate:
    token: str  # readable: 'states', '##s', or ' states' where pieces carry their blank
    id: int
    probability: float  # the model's own, over the whole vocabulary
    text: str  # the text with this one put in; other masks stay


@dataclass(frozen=True)
class Mask:
    position: int  # in the row of tokens, [CLS] being 0
    start: int  # characters [start, end) of the text
    end: int
    candidates: list[Candidate]  # likeliest first, as if this mask were asked alone


@dataclass(frozen=True)
class Filling(Answer):
    text: str
    masks: list[Mask]
    best: str  # all masks filled, the surest first, each time asking the model again
    best_spans: list[tuple[int, int]]  # the characters of `best` that were put in


@dataclass(frozen=True)
class TokenScore:
    token: str
    id: int
    logprob: float  # natural logarithm of its probability when it alone is hidden, or after those before it
    start: int  # characters [start, end) of the text
    end: int
    odd: bool  # far below the text's mean


@dataclass(frozen=True)
class Score(Answer):
    text: str
    total: float  # sum over the tokens, in nats
    perplexity: float  # exp(−total / tokens): a pseudo-perplexity, for comparing texts under one model
    per_token: list[TokenScore]
    pseudo: bool = True  # each token was seen from both sides; False: from the left, and `perplexity` is one


@dataclass(frozen=True)
class Continuation(Answer):
    text: str  # the prompt
    new: str  # what the model wrote after it; an encoder–decoder: what it made of it
    tokens: list[str]  # of `new`, the one that ends it too
    ended: bool  # by itself; else at the greatest length
    continues: bool  # `new` goes on where `text` ends; False: it stands for itself


@dataclass(frozen=True)
class Part:
    """A piece of a training row, or a run of untouched ones."""

    state: str  # masked, random, kept: chosen for the loss; special: [CLS] …; text: untouched
    text: str  # what the corpus says there, with the blank before it if it has one
    shown: str  # what the model sees there


@dataclass(frozen=True)
class Row:
    tokens: int
    chosen: int  # of them, for the masked language model's loss
    is_next: bool | None  # whether segment B follows A; None: the row has no pair
    parts: list[Part]
    note: str = ""  # what else the objective made of the row: an order, what tokens see, what is to be written


@dataclass(frozen=True)
class MaskedBatch(Answer):
    rows: list[Row]
