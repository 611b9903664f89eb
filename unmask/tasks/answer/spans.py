"""Spans of a passage: found from logits, cut from the raw text, and compared with those that people gave.

The scores are those of SQuAD 2.0 (Rajpurkar et al. 1806.03822), as its official script computes them, but from 0 to 1. Its words are what
stands between blanks, which Chinese does not have: there `zh_f1` counts characters, by the longest run that both answers share (CMRC 2018,
1810.07366). Everything here is numpy and plain Python.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache

import numpy as np

from unmask.text.vocabulary import CJK

Span = tuple[int, int, float]  # first and last token, sum of their logits

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ZH_PIECE = re.compile(f"[{CJK}]|[^\\W_{CJK}]+")  # an ideograph, or a word of another script
PAIRS = 1 << 16  # of answers whose comparison is remembered: a score is computed again for its interval


# ---------------------------------------------------------------------------------------------------------- search


def best_spans(start: np.ndarray, end: np.ndarray, longest: int, top: int) -> tuple[list[Span], float]:
    """The `top` best spans of at most `longest` tokens, best first, and the log of the sum of exp over all spans.

    Of equal ones the earlier comes first, then the shorter.

    >>> best_spans(np.array([0.0, 2.0, 0.0]), np.array([3.0, 0.0, 1.0]), longest=2, top=2)[0]
    [(0, 0, 3.0), (1, 2, 3.0)]
    """
    width = min(longest, len(start))
    if not width:
        return [], -np.inf
    ends = np.concatenate([end, np.full(width - 1, -np.inf)])
    # (tokens, width): the row is the first token, the column how many more there are
    table = (start[:, None] + np.lib.stride_tricks.sliding_window_view(ends, width)).ravel()
    most = table.max()
    if not np.isfinite(most):
        return [], -np.inf
    total = float(most + np.log(np.exp(table - most).sum()))
    found = []
    for _ in range(top):
        at = int(table.argmax())
        if table[at] == -np.inf:
            break
        found.append((at // width, at // width + at % width, float(table[at])))
        table[at] = -np.inf
    return found, total


@dataclass(frozen=True, slots=True)
class Window:
    """What the tokens of a row stand for."""

    context: str
    offsets: np.ndarray  # (n, 2) characters of the context, of each of its tokens in the row
    first: int  # where in the row they begin


@dataclass(slots=True)
class SpanCandidates:
    """The best spans of a context, over all of its windows."""

    context: str = ""
    places: dict[tuple[int, int], float] = field(default_factory=dict)  # characters → sum of logits
    null: float = np.inf  # the smallest sum of [CLS]'s logits
    total: float = -np.inf  # log of the sum of exp over all spans


def collect_candidates(
    values: Iterable[np.ndarray], windows: Iterable[Window], record: np.ndarray, longest: int, top: int
) -> list[SpanCandidates]:
    """Rows' logits (T, 2) → what was found in each record's context. A row begins with [CLS]."""
    out = [SpanCandidates() for _ in range(int(record.max()) + 1 if len(record) else 0)]
    for row, window, n in zip(values, windows, record.tolist()):
        found, offsets = out[n], window.offsets
        found.context = window.context
        found.null = min(found.null, float(row[0, 0]) + float(row[0, 1]))
        part = row[window.first : window.first + len(offsets)].astype(np.float64)
        part[offsets[:, 0] >= offsets[:, 1]] = -np.inf  # blanks are no answer
        best, total = best_spans(part[:, 0], part[:, 1], longest, top)
        found.total = float(np.logaddexp(found.total, total))
        for first, last, score in best:
            place = with_combining_marks(window.context, int(offsets[first, 0]), int(offsets[last, 1]))
            found.places[place] = max(score, found.places.get(place, -np.inf))
    return out


# ------------------------------------------------------------------------------------------------------- characters


def trim_offsets(text: str, offsets: Iterable[tuple[int, int]]) -> np.ndarray:
    """(tokens, 2): tokens' places in a text without the blanks around them, which some tokenizers make part of a token.

    >>> trim_offsets("a b", [(0, 1), (1, 3), (1, 2)]).tolist()
    [[0, 1], [2, 3], [2, 2]]
    """
    out = []
    for start, end in offsets:
        token = text[start:end]
        start += len(token) - len(token.lstrip())
        out.append((start, start + len(token.strip())))
    return np.array(out, np.int64).reshape(-1, 2)


def token_span(offsets: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """First and last token that hold a character of text[start:end]; None when no token does.

    >>> token_span(np.array([[0, 3], [4, 7], [7, 8]]), 5, 8)
    (1, 2)
    """
    inside = np.flatnonzero((offsets[:, 1] > start) & (offsets[:, 0] < end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def with_combining_marks(text: str, start: int, end: int) -> tuple[int, int]:
    """A span that does not cut a letter from its accents: normalisers drop them, and no token's place covers them.

    >>> with_combining_marks("cafe\u0301!", 0, 4)
    (0, 5)
    """
    while end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return start, end


# ----------------------------------------------------------------------------------------------------------- scores


def normalize_answer(text: str) -> str:
    """
    >>> normalize_answer("The  Eiffel-Tower, (a) tower!")
    'eiffeltower tower'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


@lru_cache(PAIRS)
def exact_and_f1(prediction: str, gold: str) -> tuple[float, float]:
    """(exact, F1 of words) of one answer against one that a person gave.

    >>> exact_and_f1("the red cat", "red dog"), exact_and_f1("", "")
    ((0.0, 0.5), (1.0, 1.0))
    """
    a, b = normalize_answer(prediction), normalize_answer(gold)
    words, wanted = a.split(), b.split()
    if not words or not wanted:
        return float(a == b), float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    return float(a == b), 2 * common / (len(words) + len(wanted))


@lru_cache(PAIRS)
def zh_f1(prediction: str, gold: str) -> float:
    """F1 of characters, by the longest run of them that both have.

    >>> zh_f1("在法国", "法国。"), zh_f1("", "法国")
    (0.8, 0.0)
    """
    a, b = _ZH_PIECE.findall(prediction.lower()), _ZH_PIECE.findall(gold.lower())
    if not a or not b:
        return float(a == b)
    return 2 * SequenceMatcher(None, a, b, autojunk=False).find_longest_match().size / (len(a) + len(b))


def per_question_scores(predictions: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Exact, f1 and zh_f1 of each answer: the best over all that people gave, of which none means "no answer"."""
    out = np.zeros((3, len(predictions)))
    for n, (prediction, gold) in enumerate(zip(predictions, golds, strict=True)):
        wanted = [g for g in gold if normalize_answer(g)] or [""]
        pairs = [exact_and_f1(prediction, g) for g in wanted]
        out[:2, n] = np.max(pairs, 0)
        plain = prediction.isascii() and all(g.isascii() for g in wanted)
        out[2, n] = out[1, n] if plain else max(zh_f1(prediction, g) for g in wanted)
    return dict(zip(("exact", "f1", "zh_f1"), out))


def best_threshold(
    values: np.ndarray, none: np.ndarray, answered: np.ndarray, has: np.ndarray, reachable: bool = False
) -> tuple[float, float]:
    """(score, threshold) when "no answer" is given to all questions whose `none` is above the threshold, and it is chosen well.

    `values`: what the answers are worth, `answered`: whether they say something, `has`: whether the question has an answer. As the
    official script, which calls it 0 when answering nothing is best, and may stop between equal numbers; `reachable` does neither.

    >>> v, none = np.array([1.0, 0.5, 0.0]), np.array([-3.0, -1.0, 2.0])
    >>> best_threshold(v, none, np.ones(3, bool), np.array([True, True, False]))
    (0.8333333333333334, -1.0)
    """
    order = np.argsort(none, kind="stable")
    gains = np.where(has, values, np.where(answered, -1.0, 0.0))[order]
    nothing = float((~has).sum())
    running = nothing + np.cumsum(gains)
    ordered = none[order]
    if reachable:
        running[:-1][ordered[1:] == ordered[:-1]] = -np.inf
    at = int(running.argmax())
    if running[at] <= nothing:
        return nothing / len(none), float(ordered[0]) - 1.0 if reachable else 0.0
    return float(running[at]) / len(none), float(ordered[at])


def squad_scores(
    predictions: Sequence[str],
    none: Sequence[float],
    golds: Sequence[Sequence[str]],
    threshold: float | None = None,
    chinese: bool = False,
) -> dict[str, float]:
    """The official script's numbers. `none`: how much "no answer" is preferred to each; above `threshold` it is given.

    Without a threshold the answers count as they are, and no best threshold is looked for.
    """
    if not predictions:
        return {}
    raw = per_question_scores(predictions, golds)
    has, doubt = np.array([bool(g) for g in golds]), np.array(none, np.float64)
    names = ("exact", "f1", "zh_f1") if chinese else ("exact", "f1")
    given = np.zeros(len(has), bool) if threshold is None else doubt > threshold
    scores = {name: np.where(given, (~has).astype(float), raw[name]) for name in names}
    out: dict[str, float] = {name: float(values.mean()) for name, values in scores.items()} | {
        "total": len(predictions)
    }
    for prefix, chosen in (("HasAns", has), ("NoAns", ~has)):
        if chosen.any():
            out |= {f"{prefix}_{name}": float(values[chosen].mean()) for name, values in scores.items()}
            out[f"{prefix}_total"] = int(chosen.sum())
    if threshold is not None:
        answered = np.array([bool(a) for a in predictions])
        for name in names:
            out[f"best_{name}"], out[f"best_{name}_thresh"] = best_threshold(raw[name], doubt, answered, has)
    return out
