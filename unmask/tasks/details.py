"""Contents of a classifier's report in addition to its scores, as plain values: scores per label, confusion, calibration, curves, errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask import numeric
from unmask.labels.records import Record
from unmask.tasks import metrics

MAX_ERRORS, MAX_EXAMPLES = 20, 10
MAX_CURVES = 10  # labels with a precision-recall curve
MAX_CONFUSION_LABELS = 50
MAX_SCATTER_POINTS = 2000
MAX_CHARACTERS = 1000  # of a text


def label_text(value: Any) -> str:
    """Format a label for display.

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
        "text": text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…",
        "expected": label_text(expected),
        "predicted": label_text(predicted),
        "score": float(score),
    }


def errors_and_examples(
    records: Sequence[Record], expected: Sequence[Any], predicted: Sequence[Any], wrong: np.ndarray, score: np.ndarray
) -> dict[str, Any]:
    """Return the errors with the highest scores, and correct predictions spread evenly over the file."""
    worst = [int(n) for n in np.argsort(-score, kind="stable") if wrong[n]][:MAX_ERRORS]
    examples = evenly_spaced(np.flatnonzero(~wrong), MAX_EXAMPLES).tolist()
    return {
        name: [example_row(records[n], expected[n], predicted[n], score[n]) for n in indices]
        for name, indices in (("errors", worst), ("examples", examples))
    }


def evenly_spaced(values: np.ndarray, count: int) -> np.ndarray:
    """Return at most `count` values, evenly spaced.

    >>> evenly_spaced(np.arange(10), 4).tolist(), evenly_spaced(np.arange(2), 4).tolist()
    ([0, 3, 6, 9], [0, 1])
    """
    return values[np.unique(np.linspace(0, len(values) - 1, count).round().astype(int))] if len(values) else values


def per_label(
    labels: Sequence[str], y_true: np.ndarray, y_pred: np.ndarray, thresholds: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """Return precision, recall, F1 and support of each label. y_true, y_pred: (N, labels) bool."""
    support = y_true.sum(0)
    precision, recall, f1 = metrics.precision_recall_f1((y_true & y_pred).sum(0), y_pred.sum(0), support)
    return [
        {
            "label": label,
            "precision": float(precision[k]),
            "recall": float(recall[k]),
            "f1": float(f1[k]),
            "support": int(support[k]),
        }
        | ({} if thresholds is None else {"threshold": float(thresholds[k])})
        for k, label in enumerate(labels)
    ]


def calibration(logits: np.ndarray, y_true: np.ndarray, temperature: float) -> dict[str, Any]:
    """Return the calibration with and ("before") without the temperature.

    logits: (N, labels) before temperature scaling, up to a constant per row. y_true: as in `metrics.nll`.
    """

    def measure(t: float) -> dict[str, Any]:
        if y_true.ndim == 2:
            p = numeric.sigmoid(logits / t)
            confidence, correct = np.maximum(p, 1 - p).ravel(), ((p >= 0.5) == (y_true > 0)).ravel()
        else:
            p = np.exp(numeric.log_softmax(logits / t))
            confidence, correct = p.max(-1), p.argmax(-1) == y_true
        bins, ece = metrics.reliability(confidence, correct)
        return {"bins": bins, "ece": ece, "nll": metrics.nll(logits, y_true, t) if len(y_true) else None}

    return measure(temperature) | {"temperature": temperature, "before": measure(1.0)}


def curves(labels: Sequence[str], scores: np.ndarray, y_true: np.ndarray) -> list[dict[str, Any]]:
    """Return the precision-recall curves of the most frequent labels. Pass only the second of two exclusive labels."""
    frequent = sorted(range(len(labels)), key=lambda k: -int(y_true[:, k].sum()))[:MAX_CURVES]
    out = []
    for k in sorted(frequent):
        if y_true[:, k].any():
            precision, recall = metrics.pr_curve(scores[:, k], y_true[:, k])
            out.append({"label": labels[k], "precision": precision, "recall": recall})
    return out


def regression_details(records: Sequence[Record], expected: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    error = np.abs(expected - predicted)
    points = evenly_spaced(np.arange(len(expected)), min(len(expected), MAX_SCATTER_POINTS))
    median = np.median(error) if len(error) else 0.0
    rows = errors_and_examples(records, expected.tolist(), predicted.tolist(), error > median, error)
    return {"scatter": {"truth": expected[points].tolist(), "predicted": predicted[points].tolist()}, **rows}


def single_label_details(
    records: Sequence[Record],
    labels: Sequence[str],
    probabilities: np.ndarray,
    expected: Sequence[str],
    temperature: float,
) -> dict[str, Any]:
    """Return the details of one label per record. Labels of the file that the model does not have come last in the tables."""
    all_labels = [*labels, *sorted(set(expected) - set(labels))]
    label2id = {label: k for k, label in enumerate(all_labels)}
    y_true, y_pred = np.array([label2id[label] for label in expected], np.int64), probabilities.argmax(-1)
    eye = np.eye(len(all_labels), dtype=bool)
    out: dict[str, Any] = {"per_label": per_label(all_labels, eye[y_true], eye[y_pred])}
    if len(all_labels) <= MAX_CONFUSION_LABELS:
        matrix = metrics.confusion(y_true, y_pred, len(all_labels))
        out["confusion"] = {"labels": all_labels, "matrix": matrix.tolist()}
    known = y_true < len(labels)
    logits = np.log(np.maximum(probabilities, 1e-300)) * temperature
    out["calibration"] = calibration(logits[known], y_true[known], temperature)
    first = 1 if len(labels) == 2 else 0
    out["pr"] = curves(labels[first:], probabilities[:, first:], eye[y_true][:, first : len(labels)])
    predicted = [labels[k] for k in y_pred]
    return out | errors_and_examples(records, expected, predicted, y_true != y_pred, probabilities.max(-1, initial=0.0))


def multi_label_details(
    records: Sequence[Record],
    labels: Sequence[str],
    probabilities: np.ndarray,
    predicted: Sequence[Sequence[str]],
    thresholds: Sequence[float],
    temperature: float,
) -> dict[str, Any]:
    expected = [list(r["label"]) for r in records]
    y_true, y_pred = metrics.indicator(expected, labels), metrics.indicator(predicted, labels)
    p = np.clip(probabilities, 1e-15, 1 - 1e-15)
    logits = (np.log(p) - np.log1p(-p)) * temperature
    error = np.abs(probabilities - y_true).max(-1, initial=0.0)
    return {
        "per_label": per_label(labels, y_true, y_pred, thresholds),
        "calibration": calibration(logits, y_true.astype(float), temperature),
        "pr": curves(labels, probabilities, y_true),
        **errors_and_examples(records, expected, predicted, (y_true != y_pred).any(-1), error),
    }
