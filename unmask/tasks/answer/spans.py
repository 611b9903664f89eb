"""Answer spans: search the best ones by their logits, map tokens to characters, and compare answers with references.

The metrics are those of the official SQuAD 2.0 script (Rajpurkar et al. 1806.03822), but from 0 to 1. Its F1 compares words
separated by spaces, which Chinese does not have. For Chinese, `zh_f1` compares characters, by the longest common substring
(CMRC 2018, 1810.07366). This module needs only numpy, so an exported model runs without torch.
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

Span = tuple[int, int, float]  # first token, last token, sum of their logits

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ZH_UNIT = re.compile(f"[{CJK}]|[^\\W_{CJK}]+")  # an ideograph, or a word of another script
CACHE_SIZE = 1 << 16  # answer pairs: bootstrap intervals compare the same pairs again and again


# ---------------------------------------------------------------------------------------------------------- search


def best_spans(start: np.ndarray, end: np.ndarray, max_length: int, top_k: int) -> tuple[list[Span], float]:
    """Return the `top_k` best spans of at most `max_length` tokens, best first, and the logsumexp over all spans.

    Ties: the earlier span comes first, then the shorter one.

    >>> best_spans(np.array([0.0, 2.0, 0.0]), np.array([3.0, 0.0, 1.0]), max_length=2, top_k=2)[0]
    [(0, 0, 3.0), (1, 2, 3.0)]
    """
    width = min(max_length, len(start))
    if not width:
        return [], -np.inf
    ends = np.concatenate([end, np.full(width - 1, -np.inf)])
    # (tokens, width), flattened: the row is the first token, the column the number of tokens after it
    table = (start[:, None] + np.lib.stride_tricks.sliding_window_view(ends, width)).ravel()
    best = table.max()
    if not np.isfinite(best):
        return [], -np.inf
    total = float(best + np.log(np.exp(table - best).sum()))
    spans = []
    for _ in range(top_k):
        index = int(table.argmax())
        if table[index] == -np.inf:
            break
        first, num_more = divmod(index, width)
        spans.append((first, first + num_more, float(table[index])))
        table[index] = -np.inf
    return spans, total


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a context that an example contains."""

    context: str
    offsets: np.ndarray  # (n, 2) character offsets in the context of the window's tokens
    first_position: int  # position of the window's first token in the example


@dataclass(slots=True)
class SpanCandidates:
    """The best spans of a context, over all of its windows."""

    context: str = ""
    spans: dict[tuple[int, int], float] = field(default_factory=dict)  # [start, end) in characters → sum of logits
    null_score: float = np.inf  # the smallest sum of the two [CLS] logits
    total: float = -np.inf  # logsumexp over all spans


def collect_candidates(
    values: Iterable[np.ndarray], windows: Iterable[Window], record_index: np.ndarray, max_length: int, top_k: int
) -> list[SpanCandidates]:
    """Return the candidates of each record. `values`: the logits (T, 2) of each example, which starts with [CLS]."""
    out = [SpanCandidates() for _ in range(int(record_index.max()) + 1 if len(record_index) else 0)]
    for logits, window, n in zip(values, windows, record_index.tolist()):
        candidates, offsets = out[n], window.offsets
        candidates.context = window.context
        candidates.null_score = min(candidates.null_score, float(logits[0, 0]) + float(logits[0, 1]))
        inside = logits[window.first_position : window.first_position + len(offsets)].astype(np.float64)
        inside[offsets[:, 0] >= offsets[:, 1]] = -np.inf  # whitespace tokens
        best, total = best_spans(inside[:, 0], inside[:, 1], max_length, top_k)
        candidates.total = float(np.logaddexp(candidates.total, total))
        for first, last, score in best:
            span = with_combining_marks(window.context, int(offsets[first, 0]), int(offsets[last, 1]))
            candidates.spans[span] = max(score, candidates.spans.get(span, -np.inf))
    return out


# ------------------------------------------------------------------------------------------------------- characters


def trim_offsets(text: str, offsets: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return the offsets of tokens, (tokens, 2), without the surrounding whitespace that some tokenizers include.

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
    """Return the first and the last token that contain a character of text[start:end], or None if no token does.

    >>> token_span(np.array([[0, 3], [4, 7], [7, 8]]), 5, 8)
    (1, 2)
    """
    inside = np.flatnonzero((offsets[:, 1] > start) & (offsets[:, 0] < end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def with_combining_marks(text: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span over the combining marks that follow it. Normalizers drop them, so no token's offsets contain them.

    >>> with_combining_marks("cafe\u0301!", 0, 4)
    (0, 5)
    """
    while end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return start, end


# ----------------------------------------------------------------------------------------------------------- metrics


def normalize_answer(text: str) -> str:
    """Lowercase, and remove punctuation, articles and extra whitespace, as the official script does.

    >>> normalize_answer("The  Eiffel-Tower, (a) tower!")
    'eiffeltower tower'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


@lru_cache(CACHE_SIZE)
def exact_and_f1(prediction: str, gold: str) -> tuple[float, float]:
    """Return (exact match, word F1) of a predicted answer and a reference answer.

    >>> exact_and_f1("the red cat", "red dog"), exact_and_f1("", "")
    ((0.0, 0.5), (1.0, 1.0))
    """
    a, b = normalize_answer(prediction), normalize_answer(gold)
    a_words, b_words = a.split(), b.split()
    if not a_words or not b_words:
        return float(a == b), float(a_words == b_words)
    common = sum((Counter(a_words) & Counter(b_words)).values())
    return float(a == b), 2 * common / (len(a_words) + len(b_words))


@lru_cache(CACHE_SIZE)
def zh_f1(prediction: str, gold: str) -> float:
    """Return the character F1, by the longest common substring.

    >>> zh_f1("在法国", "法国。"), zh_f1("", "法国")
    (0.8, 0.0)
    """
    a, b = _ZH_UNIT.findall(prediction.lower()), _ZH_UNIT.findall(gold.lower())
    if not a or not b:
        return float(a == b)
    return 2 * SequenceMatcher(None, a, b, autojunk=False).find_longest_match().size / (len(a) + len(b))


def per_question_scores(predictions: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Return exact, f1 and zh_f1 of each answer: the maximum over its references. No references: "no answer" is correct."""
    out = np.zeros((3, len(predictions)))
    for n, (prediction, gold) in enumerate(zip(predictions, golds, strict=True)):
        references = [g for g in gold if normalize_answer(g)] or [""]
        out[:2, n] = np.max([exact_and_f1(prediction, g) for g in references], 0)
        is_ascii = prediction.isascii() and all(g.isascii() for g in references)
        out[2, n] = out[1, n] if is_ascii else max(zh_f1(prediction, g) for g in references)
    return dict(zip(("exact", "f1", "zh_f1"), out))


def best_null_threshold(
    values: np.ndarray, null_scores: np.ndarray, answered: np.ndarray, has_answer: np.ndarray, reachable: bool = False
) -> tuple[float, float]:
    """Return the best mean score and its threshold: "no answer" is predicted if a null score is above the threshold.

    `values`: scores of the predicted answers. `answered`: whether a predicted answer is not empty. `has_answer`: whether the
    question is answerable. The official script returns a threshold of 0 if predicting no answer at all is best, and its best
    score may separate equal null scores. With `reachable`, the returned threshold always yields the returned score.

    >>> values, null_scores = np.array([1.0, 0.5, 0.0]), np.array([-3.0, -1.0, 2.0])
    >>> best_null_threshold(values, null_scores, np.ones(3, bool), np.array([True, True, False]))
    (0.8333333333333334, -1.0)
    """
    order = np.argsort(null_scores, kind="stable")
    gains = np.where(has_answer, values, np.where(answered, -1.0, 0.0))[order]
    score_of_no_answers = float((~has_answer).sum())
    totals = score_of_no_answers + np.cumsum(gains)  # [n]: the first n + 1 questions are answered
    thresholds = null_scores[order]
    if reachable:
        totals[:-1][thresholds[1:] == thresholds[:-1]] = -np.inf
    best = int(totals.argmax())
    if totals[best] <= score_of_no_answers:
        return score_of_no_answers / len(order), float(thresholds[0]) - 1.0 if reachable else 0.0
    return float(totals[best]) / len(order), float(thresholds[best])


def squad_scores(
    predictions: Sequence[str],
    null_scores: Sequence[float],
    golds: Sequence[Sequence[str]],
    threshold: float | None = None,
    chinese: bool = False,
) -> dict[str, float]:
    """Return the metrics of the official script.

    `null_scores`: how much "no answer" is preferred to each prediction; above `threshold`, it is the prediction. Without a
    threshold, every question is answered and no best threshold is searched.
    """
    if not predictions:
        return {}
    raw = per_question_scores(predictions, golds)
    has_answer, nulls = np.array([bool(g) for g in golds]), np.array(null_scores, np.float64)
    names = ("exact", "f1", "zh_f1") if chinese else ("exact", "f1")
    is_null = np.zeros(len(nulls), bool) if threshold is None else nulls > threshold
    scores = {name: np.where(is_null, (~has_answer).astype(float), raw[name]) for name in names}
    out: dict[str, float] = {name: float(values.mean()) for name, values in scores.items()}
    out["total"] = len(predictions)
    for prefix, subset in (("HasAns", has_answer), ("NoAns", ~has_answer)):
        if subset.any():
            out |= {f"{prefix}_{name}": float(values[subset].mean()) for name, values in scores.items()}
            out[f"{prefix}_total"] = int(subset.sum())
    if threshold is not None:
        answered = np.array([bool(a) for a in predictions])
        for name in names:
            best = best_null_threshold(raw[name], nulls, answered, has_answer)
            out[f"best_{name}"], out[f"best_{name}_thresh"] = best
    return out
