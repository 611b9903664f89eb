"""Scores that tasks share, in numpy alone; None where a score is not defined (one class only, nothing to compare).

Definitions are scikit-learn's and scipy's, against which the tests hold them. Macro F1 is the mean over the labels that occur, in
the truth or among the answers; micro F1 counts every decision once. AUC of more than two labels is the mean over labels, each
against the rest. MCC is 0 where it has no value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unmask.numeric import log_softmax

BINS = 10  # of a reliability diagram
POINTS = 100  # of a drawn curve, at most
FEW, COLDEST, HOTTEST = 50, 0.05, 20.0  # records from which a temperature is told, and between which it lies


def drop_undefined(scores: dict[str, float | None]) -> dict[str, float]:
    """Without those that are not defined.

    >>> drop_undefined({"accuracy": 0.5, "auc": None})
    {'accuracy': 0.5}
    """
    return {name: float(value) for name, value in scores.items() if value is not None}


# ------------------------------------------------------------------------------------------------------- decisions


def confusion(truth: ArrayLike, given: ArrayLike, size: int) -> np.ndarray:
    """Numbers of labels → (size, size) counts; rows are the truth.

    >>> confusion([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    t, g = np.asarray(truth, np.int64), np.asarray(given, np.int64)
    return np.bincount(t * size + g, minlength=size * size).reshape(size, size)


def accuracy(counts: np.ndarray) -> float | None:
    total = counts.sum()
    return float(np.trace(counts) / total) if total else None


def mcc(counts: np.ndarray) -> float | None:
    """Matthews's correlation of any number of labels (Gorodkin 2004).

    >>> mcc(np.array([[2, 0], [0, 2]]))
    1.0
    """
    c = counts.astype(np.float64)
    total, right, truth, given = c.sum(), np.trace(c), c.sum(1), c.sum(0)
    if not total:
        return None
    below = (total**2 - given @ given) * (total**2 - truth @ truth)
    return float((right * total - truth @ given) / np.sqrt(below)) if below > 0 else 0.0


def precision_recall_f1(hits: ArrayLike, given: ArrayLike, there: ArrayLike) -> tuple[np.ndarray, ...]:
    """Right ones, those answered, those in the truth (per label) → three shares each; 0 where there is nothing to divide by.

    >>> [x.tolist() for x in precision_recall_f1([1, 0], [2, 0], [1, 3])]
    [[0.5, 0.0], [1.0, 0.0], [0.6666666666666666, 0.0]]
    """
    h, g, t = (np.asarray(x, np.float64) for x in (hits, given, there))
    return tuple(np.divide(a, b, out=np.zeros_like(h), where=b > 0) for a, b in ((h, g), (h, t), (2 * h, g + t)))


def f1_scores(right: int, found: int, wanted: int) -> tuple[float, float, float]:
    """Precision, recall and F1.

    >>> f1_scores(1, 2, 1), f1_scores(0, 0, 3)
    ((0.5, 1.0, 0.6666666666666666), (0.0, 0.0, 0.0))
    """
    precision, recall = right / found if found else 0.0, right / wanted if wanted else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


def macro_f1(hits: np.ndarray, given: np.ndarray, there: np.ndarray) -> float | None:
    occurs = given + there > 0
    return float(precision_recall_f1(hits, given, there)[2][occurs].mean()) if occurs.any() else None


def micro_f1(hits: np.ndarray, given: np.ndarray, there: np.ndarray) -> float | None:
    below = given.sum() + there.sum()
    return float(2 * hits.sum() / below) if below else None


# ---------------------------------------------------------------------------------------------------------- scores


def ranks(values: ArrayLike) -> np.ndarray:
    """From 1; equal values share the mean of their places.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, count = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def auc(scores: ArrayLike, positive: ArrayLike) -> float | None:
    """How often a positive one stands above a negative one; a tie counts half.

    >>> auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    is_positive = np.asarray(positive, bool)
    n, m = int(is_positive.sum()), int((~is_positive).sum())
    if not n or not m:
        return None
    return float((ranks(scores)[is_positive].sum() - n * (n + 1) / 2) / (n * m))


def macro_auc(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """(N, labels) both: the mean over the labels where it is defined; of two labels that exclude each other, give one column."""
    found = [auc(scores[:, k], positive[:, k]) for k in range(positive.shape[1])]
    defined = [value for value in found if value is not None]
    return float(np.mean(defined)) if defined else None


def pr_curve(scores: ArrayLike, positive: ArrayLike) -> tuple[list[float], list[float]]:
    """(precision, recall) at every threshold, from the highest one on; at most POINTS of them.

    >>> pr_curve([0.9, 0.8, 0.3], [1, 0, 1])
    ([1.0, 0.5, 0.6666666666666666], [0.5, 0.5, 1.0])
    """
    s, p = np.asarray(scores, np.float64), np.asarray(positive, bool)
    order = np.argsort(-s, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(s[order]) != 0, True)) if len(s) else np.zeros(0, np.int64)
    hits = np.cumsum(p[order])[ends]
    precision, recall = hits / (ends + 1), hits / max(1, p.sum())
    if len(ends) > POINTS:
        kept = np.unique(np.linspace(0, len(ends) - 1, POINTS).round().astype(int))
        precision, recall = precision[kept], recall[kept]
    return precision.tolist(), recall.tolist()


def best_threshold(scores: ArrayLike, positive: ArrayLike) -> float:
    """Where F1 is highest, in the middle between two scores; of equally good ones that nearest to 0.5.

    >>> best_threshold([0.1, 0.2, 0.3, 0.35], [0, 0, 1, 1])
    0.25
    """
    s, p = np.asarray(scores, np.float64), np.asarray(positive, bool)
    values = np.unique(s)
    cuts = np.concatenate([[min(0.5, values[0])], (values[:-1] + values[1:]) / 2]) if len(values) else np.zeros(0)
    if values[:1].size and values[0] < 0.5 <= values[-1]:
        cuts = np.append(cuts, 0.5)
    if not len(cuts) or not p.any():
        return 0.5
    order = np.sort(s), np.sort(s[p])
    given, hits = (len(x) - np.searchsorted(x, cuts, "left") for x in order)
    f1 = 2 * hits / (given + p.sum())
    best = cuts[f1 >= f1.max() - 1e-12]
    return float(best[np.abs(best - 0.5).argmin()])


# --------------------------------------------------------------------------------------------------------- numbers


def pearson(truth: ArrayLike, given: ArrayLike) -> float | None:
    """
    >>> pearson([1, 2, 3], [2, 4, 6])
    1.0
    """
    t, g = np.asarray(truth, np.float64), np.asarray(given, np.float64)
    if len(t) < 2 or np.ptp(t) == 0 or np.ptp(g) == 0:
        return None
    # by the largest, so that squares neither overflow nor vanish
    t, g = ((x - x.mean()) / np.abs(x - x.mean()).max() for x in (t, g))
    return float(np.clip(t @ g / np.sqrt((t @ t) * (g @ g)), -1, 1))


def spearman(truth: ArrayLike, given: ArrayLike) -> float | None:
    """Pearson's of the ranks.

    >>> round(spearman([1, 2, 3, 4], [10, 20, 40, 30]), 6)
    0.8
    """
    return pearson(ranks(truth), ranks(given))


def regression(truth: ArrayLike, given: ArrayLike) -> dict[str, float]:
    """r2 = the share of the variance that is explained: it orders models as the mean squared error does, higher is better.

    >>> regression([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    {'r2': 1.0, 'pearson': 1.0, 'spearman': 1.0, 'mae': 0.0, 'rmse': 0.0}
    """
    t, g = np.asarray(truth, np.float64), np.asarray(given, np.float64)
    if not len(t):
        return {}
    varied = len(t) > 1 and np.ptp(t) > 0
    error = ((t - g) ** 2).mean()
    return drop_undefined(
        {
            "r2": float(1 - error / t.var()) if varied else None,
            "pearson": pearson(t, g),
            "spearman": spearman(t, g),
            "mae": float(np.abs(t - g).mean()),
            "rmse": float(np.sqrt(error)),
        }
    )


# ----------------------------------------------------------------------------------------------------- calibration


def nll(logits: np.ndarray, truth: np.ndarray, temperature: float = 1.0) -> float:
    """Mean over decisions. truth: (N,) numbers of labels, or (N, labels) of 0 and 1, each a decision of its own."""
    z = logits / temperature
    if truth.ndim == 2:
        return float(np.logaddexp(0.0, np.where(truth > 0, -z, z)).mean())
    return float(-log_softmax(z)[np.arange(len(truth)), truth].mean())


def fit_temperature(logits: np.ndarray, truth: np.ndarray) -> float:
    """What logits are to be divided by so that the truth is likeliest (Guo et al. 1706.04599). No decision changes.

    1 where the records tell nothing of it: fewer than FEW of them, or a best temperature that is none (0 where every
    decision is right, without end where the logits are no better than chance).
    """
    from scipy.optimize import minimize_scalar

    right = (logits > 0) == (truth > 0) if truth.ndim == 2 else logits.argmax(-1) == truth
    if len(truth) < FEW or right.all():
        return 1.0
    found = minimize_scalar(
        lambda x: nll(logits, truth, float(np.exp(x))), bounds=(np.log(COLDEST), np.log(HOTTEST)), method="bounded",
        options={"xatol": 1e-6},
    )  # fmt: skip
    reached = float(np.exp(found.x))
    return reached if 1.01 * COLDEST < reached < HOTTEST / 1.01 else 1.0


def reliability(confidence: ArrayLike, right: ArrayLike) -> tuple[list[dict[str, Any]], float | None]:
    """Bins of equal width that hold something, and the expected calibration error: the mean gap, weighted by count.

    >>> bins, ece = reliability([0.95, 0.95, 0.55], [1, 0, 1])
    >>> [b["count"] for b in bins], round(ece, 3)
    ([1, 2], 0.45)
    """
    c, r = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    if not len(c):
        return [], None
    place = np.minimum((c * BINS).astype(int), BINS - 1)
    bins: list[dict[str, Any]] = []
    for n in range(BINS):
        here = place == n
        if here.any():
            bins.append(
                {"confidence": float(c[here].mean()), "accuracy": float(r[here].mean()), "count": int(here.sum())}
            )
    gap = sum(b["count"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / len(c)
    return bins, float(gap)


def indicator(several: Sequence[Sequence[str]], labels: Sequence[str]) -> np.ndarray:
    """Lists of labels → (N, labels) of False and True; a label that is not among them is passed over.

    >>> indicator([["b"], []], ["a", "b"]).tolist()
    [[False, True], [False, False]]
    """
    place = {label: k for k, label in enumerate(labels)}
    out = np.zeros((len(several), len(labels)), bool)
    for n, names in enumerate(several):
        out[n, [place[name] for name in names if name in place]] = True
    return out
