"""Metrics that several tasks use, in numpy only. A metric returns None if it is undefined (one class only, no records).

The definitions are those of scikit-learn and scipy, and the tests compare with them. Macro F1 is the mean over the labels that
occur among the targets or the predictions; micro F1 counts every decision once. AUC of more than two labels is the mean over
labels, one against the rest. MCC is 0 where it is undefined.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unmask.numeric import log_softmax

NUM_BINS = 10  # of a reliability diagram
MAX_CURVE_POINTS = 100
MIN_CALIBRATION_RECORDS = 50  # records needed to fit a temperature
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0


def drop_undefined(scores: dict[str, float | None]) -> dict[str, float]:
    """Remove undefined scores.

    >>> drop_undefined({"accuracy": 0.5, "auc": None})
    {'accuracy': 0.5}
    """
    return {name: float(value) for name, value in scores.items() if value is not None}


# ------------------------------------------------------------------------------------------------------- decisions


def confusion(y_true: ArrayLike, y_pred: ArrayLike, size: int) -> np.ndarray:
    """Return the confusion matrix (size, size) of label indices; rows are the true labels.

    >>> confusion([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    true, predicted = np.asarray(y_true, np.int64), np.asarray(y_pred, np.int64)
    return np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)


def accuracy(counts: np.ndarray) -> float | None:
    total = counts.sum()
    return float(np.trace(counts) / total) if total else None


def mcc(counts: np.ndarray) -> float | None:
    """Return Matthews correlation for any number of labels (Gorodkin 2004).

    >>> mcc(np.array([[2, 0], [0, 2]]))
    1.0
    """
    c = counts.astype(np.float64)
    total, correct, true, predicted = c.sum(), np.trace(c), c.sum(1), c.sum(0)
    if not total:
        return None
    denominator = (total**2 - predicted @ predicted) * (total**2 - true @ true)
    return float((correct * total - true @ predicted) / np.sqrt(denominator)) if denominator > 0 else 0.0


def precision_recall_f1(hits: ArrayLike, num_predicted: ArrayLike, num_true: ArrayLike) -> tuple[np.ndarray, ...]:
    """Return precision, recall and F1 per label from counts per label; 0 where the denominator is 0. `hits`: true positives.

    >>> [x.tolist() for x in precision_recall_f1([1, 0], [2, 0], [1, 3])]
    [[0.5, 0.0], [1.0, 0.0], [0.6666666666666666, 0.0]]
    """
    h, p, t = (np.asarray(x, np.float64) for x in (hits, num_predicted, num_true))
    return tuple(np.divide(a, b, out=np.zeros_like(h), where=b > 0) for a, b in ((h, p), (h, t), (2 * h, p + t)))


def f1_scores(hits: int, num_predicted: int, num_true: int) -> tuple[float, float, float]:
    """Return precision, recall and F1 from counts.

    >>> f1_scores(1, 2, 1), f1_scores(0, 0, 3)
    ((0.5, 1.0, 0.6666666666666666), (0.0, 0.0, 0.0))
    """
    precision, recall = hits / num_predicted if num_predicted else 0.0, hits / num_true if num_true else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0


def macro_f1(hits: np.ndarray, num_predicted: np.ndarray, num_true: np.ndarray) -> float | None:
    occurs = num_predicted + num_true > 0
    return float(precision_recall_f1(hits, num_predicted, num_true)[2][occurs].mean()) if occurs.any() else None


def micro_f1(hits: np.ndarray, num_predicted: np.ndarray, num_true: np.ndarray) -> float | None:
    total = num_predicted.sum() + num_true.sum()
    return float(2 * hits.sum() / total) if total else None


# ---------------------------------------------------------------------------------------------------------- scores


def ranks(values: ArrayLike) -> np.ndarray:
    """Return ranks from 1; equal values get the mean of their ranks.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, inverse, count = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[inverse]


def auc(scores: ArrayLike, positive: ArrayLike) -> float | None:
    """Return the probability that a positive scores above a negative; a tie counts half.

    >>> auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    is_positive = np.asarray(positive, bool)
    n, m = int(is_positive.sum()), int((~is_positive).sum())
    if not n or not m:
        return None
    return float((ranks(scores)[is_positive].sum() - n * (n + 1) / 2) / (n * m))


def macro_auc(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Return the mean AUC over the labels for which it is defined. Both arrays are (N, labels); pass one column for two exclusive labels."""
    values = [auc(scores[:, k], positive[:, k]) for k in range(positive.shape[1])]
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


def pr_curve(scores: ArrayLike, positive: ArrayLike) -> tuple[list[float], list[float]]:
    """Return (precision, recall) at every threshold from high to low, at most MAX_CURVE_POINTS of them.

    >>> pr_curve([0.9, 0.8, 0.3], [1, 0, 1])
    ([1.0, 0.5, 0.6666666666666666], [0.5, 0.5, 1.0])
    """
    s, p = np.asarray(scores, np.float64), np.asarray(positive, bool)
    order = np.argsort(-s, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(s[order]) != 0, True)) if len(s) else np.zeros(0, np.int64)
    hits = np.cumsum(p[order])[ends]
    precision, recall = hits / (ends + 1), hits / max(1, p.sum())
    if len(ends) > MAX_CURVE_POINTS:
        selected = np.unique(np.linspace(0, len(ends) - 1, MAX_CURVE_POINTS).round().astype(int))
        precision, recall = precision[selected], recall[selected]
    return precision.tolist(), recall.tolist()


def best_threshold(scores: ArrayLike, positive: ArrayLike) -> float:
    """Return the threshold with the highest F1, midway between two scores. Ties go to the one nearest to 0.5.

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
    num_predicted, hits = (len(x) - np.searchsorted(np.sort(x), cuts, "left") for x in (s, s[p]))
    f1 = 2 * hits / (num_predicted + p.sum())
    best = cuts[f1 >= f1.max() - 1e-12]
    return float(best[np.abs(best - 0.5).argmin()])


# --------------------------------------------------------------------------------------------------------- numbers


def pearson(y_true: ArrayLike, y_pred: ArrayLike) -> float | None:
    """
    >>> pearson([1, 2, 3], [2, 4, 6])
    1.0
    """
    t, p = np.asarray(y_true, np.float64), np.asarray(y_pred, np.float64)
    if len(t) < 2 or np.ptp(t) == 0 or np.ptp(p) == 0:
        return None
    # Divide by the largest value, so that squares neither overflow nor underflow.
    t, p = ((x - x.mean()) / np.abs(x - x.mean()).max() for x in (t, p))
    return float(np.clip(t @ p / np.sqrt((t @ t) * (p @ p)), -1, 1))


def spearman(y_true: ArrayLike, y_pred: ArrayLike) -> float | None:
    """Return the Pearson correlation of the ranks.

    >>> round(spearman([1, 2, 3, 4], [10, 20, 40, 30]), 6)
    0.8
    """
    return pearson(ranks(y_true), ranks(y_pred))


def regression(y_true: ArrayLike, y_pred: ArrayLike) -> dict[str, float]:
    """Return all regression metrics. r2, the explained fraction of the variance, ranks models as the mean squared error does.

    >>> regression([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    {'r2': 1.0, 'pearson': 1.0, 'spearman': 1.0, 'mae': 0.0, 'rmse': 0.0}
    """
    t, p = np.asarray(y_true, np.float64), np.asarray(y_pred, np.float64)
    if not len(t):
        return {}
    error = ((t - p) ** 2).mean()
    return drop_undefined(
        {
            "r2": float(1 - error / t.var()) if len(t) > 1 and np.ptp(t) > 0 else None,
            "pearson": pearson(t, p),
            "spearman": spearman(t, p),
            "mae": float(np.abs(t - p).mean()),
            "rmse": float(np.sqrt(error)),
        }
    )


# ----------------------------------------------------------------------------------------------------- calibration


def nll(logits: np.ndarray, y_true: np.ndarray, temperature: float = 1.0) -> float:
    """Return the mean negative log-likelihood. y_true: (N,) label indices, or (N, labels) of 0 and 1 for independent labels."""
    z = logits / temperature
    if y_true.ndim == 2:
        return float(np.logaddexp(0.0, np.where(y_true > 0, -z, z)).mean())
    return float(-log_softmax(z)[np.arange(len(y_true)), y_true].mean())


def fit_temperature(logits: np.ndarray, y_true: np.ndarray) -> float:
    """Return the divisor of the logits that minimizes the NLL (temperature scaling, Guo et al. 1706.04599). No decision changes.

    Return 1 if no temperature can be fitted: with fewer than MIN_CALIBRATION_RECORDS records, if every decision is correct (the best
    temperature is 0), or if the logits are no better than chance (it is infinite).
    """
    from scipy.optimize import minimize_scalar

    correct = (logits > 0) == (y_true > 0) if y_true.ndim == 2 else logits.argmax(-1) == y_true
    if len(y_true) < MIN_CALIBRATION_RECORDS or correct.all():
        return 1.0
    result = minimize_scalar(
        lambda x: nll(logits, y_true, float(np.exp(x))),
        bounds=(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    temperature = float(np.exp(result.x))
    return temperature if 1.01 * MIN_TEMPERATURE < temperature < MAX_TEMPERATURE / 1.01 else 1.0


def reliability(confidence: ArrayLike, correct: ArrayLike) -> tuple[list[dict[str, Any]], float | None]:
    """Return the non-empty bins of equal width, and the expected calibration error: the mean gap, weighted by count.

    >>> bins, ece = reliability([0.95, 0.95, 0.55], [1, 0, 1])
    >>> [b["count"] for b in bins], round(ece, 3)
    ([1, 2], 0.45)
    """
    p, c = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
    if not len(p):
        return [], None
    bin_index = np.minimum((p * NUM_BINS).astype(int), NUM_BINS - 1)
    bins: list[dict[str, Any]] = []
    for n in np.unique(bin_index):
        inside = bin_index == n
        bins.append(
            {"confidence": float(p[inside].mean()), "accuracy": float(c[inside].mean()), "count": int(inside.sum())}
        )
    ece = sum(b["count"] * abs(b["confidence"] - b["accuracy"]) for b in bins) / len(p)
    return bins, float(ece)


def indicator(label_lists: Sequence[Sequence[str]], labels: Sequence[str]) -> np.ndarray:
    """Return (N, labels) bool for lists of labels; unknown labels are ignored.

    >>> indicator([["b"], []], ["a", "b"]).tolist()
    [[False, True], [False, False]]
    """
    label2id = {label: k for k, label in enumerate(labels)}
    out = np.zeros((len(label_lists), len(labels)), bool)
    for n, names in enumerate(label_lists):
        out[n, [label2id[name] for name in names if name in label2id]] = True
    return out
