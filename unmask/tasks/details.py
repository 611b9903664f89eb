"""What a report shows of a classifier beside its scores, as plain values: per label, confusion, calibration, curves, errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask import numeric
from unmask.labels.records import Record
from unmask.tasks import metrics

ERRORS, EXAMPLES, CURVES, TABLE, POINTS, CHARACTERS = 20, 10, 10, 50, 2000, 1000  # most that is kept of each


def label_text(value: Any) -> str:
    """A label as a person reads it.

    >>> label_text(["a", "b"]), label_text([]), label_text(1.5), label_text("x")
    ('a, b', 'none', '1.5', 'x')
    """
    if isinstance(value, list | tuple):
        return ", ".join(value) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def example_row(record: Record, expected: Any, predicted: Any, score: float) -> dict[str, Any]:
    text = " | ".join(str(record[key]) for key in ("text", "pair") if key in record)
    return {
        "location": record.get("location", ""),
        "text": text if len(text) <= CHARACTERS else text[: CHARACTERS - 1] + "…",
        "expected": label_text(expected),
        "predicted": label_text(predicted),
        "score": float(score),
    }


def errors_and_examples(
    records: Sequence[Record], expected: Sequence[Any], predicted: Sequence[Any], wrong: np.ndarray, score: np.ndarray
) -> dict[str, Any]:
    """The errors with the highest score, and right answers spread over the file."""
    worst = [int(n) for n in np.argsort(-score, kind="stable") if wrong[n]][:ERRORS]
    right = np.flatnonzero(~wrong)
    spread = right[np.unique(np.linspace(0, len(right) - 1, EXAMPLES).round().astype(int))] if len(right) else right
    return {
        "errors": [example_row(records[n], expected[n], predicted[n], score[n]) for n in worst],
        "examples": [example_row(records[n], expected[n], predicted[n], score[n]) for n in spread.tolist()],
    }


def per_label(
    labels: Sequence[str], truth: np.ndarray, given: np.ndarray, thresholds: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """truth, given (N, labels) bool."""
    hits, answered, there = (truth & given).sum(0), given.sum(0), truth.sum(0)
    precision, recall, f1 = metrics.precision_recall_f1(hits, answered, there)
    return [
        {
            "label": label,
            "precision": float(precision[k]),
            "recall": float(recall[k]),
            "f1": float(f1[k]),
            "support": int(there[k]),
        }
        | ({} if thresholds is None else {"threshold": float(thresholds[k])})
        for k, label in enumerate(labels)
    ]


def calibration(logits: np.ndarray, truth: np.ndarray, temperature: float) -> dict[str, Any]:
    """logits (N, labels) as the model gives them, up to a constant per row; truth as in `metrics.nll`. Before and after."""

    def look(t: float) -> dict[str, Any]:
        if truth.ndim == 2:
            p = numeric.sigmoid(logits / t)
            confidence, right = np.maximum(p, 1 - p).ravel(), ((p >= 0.5) == (truth > 0)).ravel()
        else:
            p = np.exp(numeric.log_softmax(logits / t))
            confidence, right = p.max(-1), p.argmax(-1) == truth
        bins, ece = metrics.reliability(confidence, right)
        return {"bins": bins, "ece": ece, "nll": metrics.nll(logits, truth, t) if len(truth) else None}

    return look(temperature) | {"temperature": temperature, "before": look(1.0)}


def curves(labels: Sequence[str], scores: np.ndarray, truth: np.ndarray) -> list[dict[str, Any]]:
    """Precision and recall of the commonest labels; of two that exclude each other, give the second alone."""
    common = sorted(range(len(labels)), key=lambda k: -int(truth[:, k].sum()))[:CURVES]
    out = []
    for k in sorted(common):
        if truth[:, k].any():
            precision, recall = metrics.pr_curve(scores[:, k], truth[:, k])
            out.append({"label": labels[k], "precision": precision, "recall": recall})
    return out


def regression_details(records: Sequence[Record], expected: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    off = np.abs(expected - predicted)
    kept = np.unique(np.linspace(0, max(0, len(expected) - 1), min(len(expected), POINTS)).round().astype(int))
    typical = np.median(off) if len(off) else 0.0
    found = errors_and_examples(records, expected.tolist(), predicted.tolist(), off > typical, off)
    return {"scatter": {"truth": expected[kept].tolist(), "predicted": predicted[kept].tolist()}, **found}


def single_label_details(
    records: Sequence[Record],
    labels: Sequence[str],
    probabilities: np.ndarray,
    expected: Sequence[str],
    temperature: float,
) -> dict[str, Any]:
    """One label each. A label of the file that the model does not know comes last in the tables."""
    everything = [*labels, *sorted(set(expected) - set(labels))]
    place = {label: k for k, label in enumerate(everything)}
    truth, given = np.array([place[w] for w in expected], np.int64), probabilities.argmax(-1)
    eye = np.eye(len(everything), dtype=bool)
    counts = metrics.confusion(truth, given, len(everything))
    found: dict[str, Any] = {"per_label": per_label(everything, eye[truth], eye[given])}
    if len(everything) <= TABLE:
        found["confusion"] = {"labels": everything, "matrix": counts.tolist()}
    known = truth < len(labels)
    logits = np.log(np.maximum(probabilities, 1e-300)) * temperature
    found["calibration"] = calibration(logits[known], truth[known], temperature)
    first = 1 if len(labels) == 2 else 0
    found["pr"] = curves(labels[first:], probabilities[:, first:], eye[truth][:, first : len(labels)])
    names = [labels[k] for k in given]
    return found | errors_and_examples(records, expected, names, truth != given, probabilities.max(-1, initial=0.0))


def multi_label_details(
    records: Sequence[Record],
    labels: Sequence[str],
    probabilities: np.ndarray,
    predicted: Sequence[Sequence[str]],
    thresholds: Sequence[float],
    temperature: float,
) -> dict[str, Any]:
    expected = [list(r["label"]) for r in records]
    truth, given = metrics.indicator(expected, labels), metrics.indicator(predicted, labels)
    inside = np.clip(probabilities, 1e-15, 1 - 1e-15)
    logits = (np.log(inside) - np.log1p(-inside)) * temperature
    off = np.abs(probabilities - truth).max(-1, initial=0.0)
    return {
        "per_label": per_label(labels, truth, given, thresholds),
        "calibration": calibration(logits, truth.astype(float), temperature),
        "pr": curves(labels, probabilities, truth),
        **errors_and_examples(records, expected, predicted, (truth != given).any(-1), off),
    }
