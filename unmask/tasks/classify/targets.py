"""The three problem types of a classifier: one label, several labels, or a number.

Each class encodes a label for the loss (`encode_target`), calibrates on the dev set (`calibrate`), and turns logits into
predictions (`decode`) and predictions into metrics (`score`). Its `output` selects the loss (tasks/terms.py). `task_state`
belongs to the task and is saved in the model directory.

| problem type | loss of an example      | primary metric                              | fitted on the dev set                   |
|--------------|-------------------------|---------------------------------------------|-----------------------------------------|
| single_label | cross entropy           | accuracy; macro F1 if classes are weighted  | temperature                             |
| multi_label  | BCE, summed over labels | micro F1; macro F1 if classes are weighted  | temperature, then a threshold per label |
| regression   | squared error           | r2: the lower the squared error, the higher |                                         |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from unmask import numeric
from unmask.errors import UserError
from unmask.labels.records import Record
from unmask.tasks import details, metrics
from unmask.tasks.spec import Output

VALUE = "value"  # name of the single output of a regression model
IMBALANCE_RATIO = (
    10  # `auto` weights the classes if the largest has at least this many times the records of the smallest
)
MIN_LABEL_RECORDS = 5  # labels with fewer records are too rare for a ratio or a threshold
MAX_LABELS_SHOWN = 12  # in the description of a file


class SingleLabel:
    """A record has one label."""

    problem_type: ClassVar[str] = "single_label_classification"  # its name in transformers
    output: ClassVar[Output] = "choice"
    primary_metric: ClassVar[str] = "accuracy"
    min_labels: ClassVar[int] = 2

    def __init__(self, task_state: dict[str, Any]):
        self.task_state, self.labels = task_state, list(task_state["labels"])
        self.label2id = {label: k for k, label in enumerate(self.labels)}
        self.weights: list[float] | None = task_state.get("weights")

    @classmethod
    def labels_of(cls, record: Record) -> list[str]:
        return [str(record["label"])]

    @classmethod
    def fit_state(cls, records: Sequence[Record], labels: Sequence[str], class_weight: str) -> dict[str, Any]:
        """Return the labels, their counts and their weights. `labels`: the order chosen by the user; empty: sorted."""
        counts = Counter(name for record in records for name in cls.labels_of(record))
        labels = list(labels) or sorted(counts)
        unexpected = [r["location"] for r in records if not set(labels).issuperset(cls.labels_of(r))]
        if unexpected:
            raise UserError(
                f"{unexpected[0]}: the label is not one of the given labels ({len(unexpected):,} such records)",
                expected=", ".join(labels),
                hint="list every label in --labels, or remove --labels to use those of the file",
            )
        if len(labels) < cls.min_labels:
            raise UserError(
                f"{records[0]['location']}: every record has the label {''.join(labels)!r}",
                expected="two labels or more",
            )
        label_counts = [counts[label] for label in labels]
        weights = compute_class_weights(label_counts, class_weight)
        return {"labels": labels, "counts": label_counts} | ({"weights": weights} if weights else {})

    @property
    def metric(self) -> str:
        return self.primary_metric if self.weights is None else "macro_f1"

    @property
    def positive_label(self) -> str:
        """Return the label that f1 and auc refer to: the second of two labels (1, yes, positive), as in scikit-learn."""
        return self.labels[1] if len(self.labels) == 2 else ""

    def stratify_key(self, record: Record) -> str:
        """Return the stratum of a record. The dev set gets the same fraction of every stratum."""
        return str(record["label"])

    def describe(self, records: Sequence[Record]) -> str:
        counts = Counter(name for record in records for name in self.labels_of(record))
        listed = ", ".join(f"{label} {n:,}" for label, n in counts.most_common(MAX_LABELS_SHOWN))
        parts = [f"{len(self.labels)} labels: {listed}{' …' if len(counts) > MAX_LABELS_SHOWN else ''}"]
        if self.weights is not None:
            parts.append(f"rare labels have more weight; the best model is selected by {self.metric.replace('_', ' ')}")
        if self.positive_label:
            parts.append(f"f1 and auc are for {self.positive_label}")
        return "; ".join(parts)

    def encode_target(self, record: Record) -> np.ndarray:
        """Return the target of the loss."""
        return np.array([self.label2id[str(record["label"])]])

    @property
    def temperature(self) -> float:
        return float(self.task_state.get("temperature", 1.0))

    def calibrate(self, logits: np.ndarray, records: Sequence[Record]) -> dict[str, Any]:
        """Fit values of the task state on the dev set: here the temperature. Labels unknown to the model are skipped."""
        known = [n for n, r in enumerate(records) if str(r["label"]) in self.label2id]
        y_true = np.array([self.label2id[str(records[n]["label"])] for n in known], np.int64)
        return {"temperature": metrics.fit_temperature(logits[known], y_true)}

    def decode(self, logits: np.ndarray) -> list[dict[str, Any]]:
        return [
            {
                "label": self.labels[int(p.argmax())],
                "probability": float(p.max()),
                "scores": dict(zip(self.labels, p.tolist())),
            }
            for p in np.exp(numeric.log_softmax(logits / self.temperature))
        ]

    def scores(self, predictions: Sequence[dict[str, Any]]) -> np.ndarray:
        """Return the probabilities, (N, labels)."""
        rows = [[p["scores"][name] for name in self.labels] for p in predictions]
        return np.array(rows).reshape(-1, len(self.labels))

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return the metrics. A record whose label the model does not know counts as an error."""
        expected = [str(r["label"]) for r in records]
        names = [*self.labels, *sorted(set(expected) - set(self.labels))]
        label2id = {name: n for n, name in enumerate(names)}
        y_true = np.array([label2id[name] for name in expected], np.int64)
        matrix = metrics.confusion(y_true, [label2id[p["label"]] for p in predictions], len(names))
        first = 1 if self.positive_label else 0  # with two labels, the AUC is that of the positive one
        is_label = y_true[:, None] == np.arange(first, len(self.labels))
        f1 = metrics.micro_f1(matrix[1, 1], matrix[:, 1].sum(), matrix[1].sum()) if self.positive_label else None
        return metrics.drop_undefined(
            {
                "accuracy": metrics.accuracy(matrix),
                "f1": f1,
                "macro_f1": metrics.macro_f1(np.diag(matrix), matrix.sum(0), matrix.sum(1)),
                "mcc": metrics.mcc(matrix),
                "auc": metrics.macro_auc(self.scores(predictions)[:, first:], is_label),
            }
        )

    def details(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
        expected = [str(r["label"]) for r in records]
        return details.single_label_details(records, self.labels, self.scores(predictions), expected, self.temperature)


class MultiLabel(SingleLabel):
    """A record has any number of labels, or none."""

    problem_type, primary_metric, min_labels = "multi_label_classification", "micro_f1", 1
    output: ClassVar[Output] = "binary"

    @classmethod
    def labels_of(cls, record: Record) -> list[str]:
        return list(record["label"])

    def stratify_key(self, record: Record) -> str:
        """Return the rarest label of the record."""
        counts = dict(zip(self.labels, self.task_state.get("counts", ())))
        return min(record["label"], key=lambda name: (counts.get(name, 0), name), default="")

    def describe(self, records: Sequence[Record]) -> str:
        unlabeled = sum(not r["label"] for r in records)
        return f"multi-label, {super().describe(records)}; {unlabeled:,} records have no label"

    def encode_target(self, record: Record) -> np.ndarray:
        return metrics.indicator([record["label"]], self.labels).astype(np.float32)

    @property
    def thresholds(self) -> list[float]:
        return self.task_state.get("thresholds") or [0.5] * len(self.labels)

    def calibrate(self, logits: np.ndarray, records: Sequence[Record]) -> dict[str, Any]:
        """Fit the temperature, then the threshold of each label that maximizes its F1 (0.5 for a label with few records)."""
        y_true = metrics.indicator([r["label"] for r in records], self.labels)
        temperature = metrics.fit_temperature(logits, y_true.astype(float))
        p = numeric.sigmoid(logits / temperature)
        thresholds = [
            metrics.best_threshold(p[:, k], y_true[:, k]) if y_true[:, k].sum() >= MIN_LABEL_RECORDS else 0.5
            for k in range(len(self.labels))
        ]
        return {"temperature": temperature, "thresholds": thresholds}

    def decode(self, logits: np.ndarray) -> list[dict[str, Any]]:
        return [
            {
                "labels": [name for name, x, threshold in zip(self.labels, p, self.thresholds) if x >= threshold],
                "scores": dict(zip(self.labels, p)),
            }
            for p in numeric.sigmoid(logits / self.temperature).tolist()
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Return the metrics. A prediction counts for the accuracy if all of its labels are right."""
        expected = [self.labels_of(r) for r in records]
        labels = [*self.labels, *sorted({name for names in expected for name in names} - set(self.label2id))]
        y_true = metrics.indicator(expected, labels)
        y_pred = metrics.indicator([p["labels"] for p in predictions], labels)
        counts = (y_true & y_pred).sum(0), y_pred.sum(0), y_true.sum(0)
        return metrics.drop_undefined(
            {
                "micro_f1": metrics.micro_f1(*counts),
                "macro_f1": metrics.macro_f1(*counts),
                "auc": metrics.macro_auc(self.scores(predictions), y_true[:, : len(self.labels)]),
                "accuracy": float((y_true == y_pred).all(-1).mean()) if len(expected) else None,
            }
        )

    def details(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
        predicted = [p["labels"] for p in predictions]
        return details.multi_label_details(
            records, self.labels, self.scores(predictions), predicted, self.thresholds, self.temperature
        )


class Regression(SingleLabel):
    """A record has a number. The model is trained on standardized values; after training, the mean and standard deviation
    are folded into its last layer."""

    problem_type, primary_metric = "regression", "r2"
    output: ClassVar[Output] = "number"

    @classmethod
    def fit_state(cls, records: Sequence[Record], labels: Sequence[str], class_weight: str) -> dict[str, Any]:
        values = np.array([r["label"] for r in records], np.float64)
        return {"labels": [VALUE], "mean": float(values.mean()), "sd": float(values.std()) or 1.0}

    @property
    def scale(self) -> tuple[float, float]:
        return self.task_state.get("mean", 0.0), self.task_state.get("sd", 1.0)

    def stratify_key(self, record: Record) -> str:
        """Return the bin of the number; bins are half a standard deviation wide."""
        mean, sd = self.scale
        return str(round(float(np.clip(2 * (record["label"] - mean) / sd, -4, 4))))

    def describe(self, records: Sequence[Record]) -> str:
        values = np.array([r["label"] for r in records], np.float64)
        return f"a number from {values.min():g} to {values.max():g}, mean {values.mean():.4g}, sd {values.std():.4g}"

    def encode_target(self, record: Record) -> np.ndarray:
        mean, sd = self.scale
        return np.array([(record["label"] - mean) / sd], np.float32)

    def calibrate(self, logits: np.ndarray, records: Sequence[Record]) -> dict[str, Any]:
        return {}

    def decode(self, logits: np.ndarray) -> list[dict[str, Any]]:
        mean, sd = self.scale
        return [{VALUE: float(x * sd + mean)} for x in logits[:, 0]]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        return metrics.regression([r["label"] for r in records], [p[VALUE] for p in predictions])

    def details(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
        expected = np.array([r["label"] for r in records], np.float64)
        return details.regression_details(records, expected, np.array([p[VALUE] for p in predictions], np.float64))


TARGETS: dict[str, type[SingleLabel]] = {
    "single_label": SingleLabel,
    "multi_label": MultiLabel,
    "regression": Regression,
}


def compute_class_weights(counts: Sequence[int], class_weight: str) -> list[float] | None:
    """Return a weight per label, proportional to n^-0.5 (n is at least MIN_LABEL_RECORDS), with mean 1 over the records.

    Return None if labels are not weighted.

    >>> compute_class_weights([100, 400], "balanced")
    [1.6666666666666667, 0.8333333333333334]
    >>> [compute_class_weights(n, "auto") is not None for n in ([100, 400], [4, 400], [40, 400])]
    [False, False, True]
    """
    frequent = [n for n in counts if n >= MIN_LABEL_RECORDS]
    is_balanced = len(frequent) < 2 or max(frequent) < IMBALANCE_RATIO * min(frequent)
    if class_weight == "none" or (class_weight == "auto" and is_balanced):
        return None
    n = np.array(counts, np.float64)
    weights = np.maximum(n, MIN_LABEL_RECORDS) ** -0.5
    return (weights * n.sum() / (weights @ n)).tolist() if n.sum() else None
