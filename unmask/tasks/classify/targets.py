"""The three things that a classifier can be asked for: one label, several labels, a number.

Each says how a label is aimed at (`aim`; the loss of its `output` is a term of tasks/terms.py), what is learnt from the dev set (`tune`),
and how logits become answers (`decode`) and answers scores. `learnt` is the task's: what is kept in its folder.

| target  | loss of a row           | decides                                     | from the dev set                        |
|---------|-------------------------|---------------------------------------------|-----------------------------------------|
| one     | cross entropy           | accuracy; macro F1 where labels are weighed | temperature                             |
| several | BCE, summed over labels | micro F1; macro F1 where labels are weighed | temperature, then a threshold per label |
| number  | squared error           | r2, which orders models as the loss does    |                                         |
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

VALUE = "value"  # what the one output of a number is called
# Labels are weighed when the commonest has RARE times the records of the rarest, of those with FEW or more.
RARE, FEW = 10, 5
SHOWN = 12  # labels named when a file is described


class SingleLabel:
    """A record has one label."""

    problem_type: ClassVar[str] = "single_label_classification"  # what transformers calls it
    output: ClassVar[Output] = "choice"
    primary_metric: ClassVar[str] = "accuracy"
    min_labels: ClassVar[int] = 2  # labels

    def __init__(self, task_state: dict[str, Any]):
        self.task_state, self.labels = task_state, list(task_state["labels"])
        self.label2id = {label: k for k, label in enumerate(self.labels)}
        self.weights: list[float] | None = task_state.get("weights")

    @classmethod
    def names(cls, record: Record) -> list[str]:
        return [str(record["label"])]

    @classmethod
    def fit_state(cls, records: Sequence[Record], given: Sequence[str], choice: str) -> dict[str, Any]:
        """`given`: labels in the user's order; `choice`: whether rare ones weigh more."""
        counts = Counter(name for record in records for name in cls.names(record))
        labels = list(given) or sorted(counts)
        strange = [r["location"] for r in records if not set(labels).issuperset(cls.names(r))]
        if strange:
            raise UserError(
                f"{strange[0]}: a label that is not among those given ({len(strange):,} such records)",
                expected=", ".join(labels),
                hint="--labels with all of them, or without --labels: those of the file",
            )
        if len(labels) < cls.min_labels:
            raise UserError(
                f"{records[0]['location']}: every record has the label {''.join(labels)!r}",
                expected="two labels or more",
            )
        found: dict[str, Any] = {"labels": labels, "counts": [counts[label] for label in labels]}
        weights = compute_class_weights(found["counts"], choice)
        return found | ({"weights": weights} if weights else {})

    @property
    def metric(self) -> str:
        return self.primary_metric if self.weights is None else "macro_f1"

    @property
    def positive_label(self) -> str:
        """Of two labels the second one, in the model's order (--labels, else sorted): 1, yes, positive. It is the one that f1 and auc are of,
        as it is scikit-learn's `classes_[1]`."""
        return self.labels[1] if len(self.labels) == 2 else ""

    def stratify_key(self, record: Record) -> str:
        return str(record["label"])

    def describe(self, records: Sequence[Record]) -> str:
        counts = Counter(name for record in records for name in self.names(record))
        said = ", ".join(f"{label} {n:,}" for label, n in counts.most_common(SHOWN)) + (
            " …" if len(counts) > SHOWN else ""
        )
        weighed = "" if self.weights is None else f"; rare labels weigh more, {self.metric.replace('_', ' ')} decides"
        positive_label = f"; f1 and auc are of {self.positive_label}" if self.positive_label else ""
        return f"{len(self.labels)} labels: {said}{weighed}{positive_label}"

    def encode_target(self, record: Record) -> np.ndarray:
        """The label as the loss reads it."""
        return np.array([self.label2id[str(record["label"])]])

    @property
    def temperature(self) -> float:
        return float(self.task_state.get("temperature", 1.0))

    def calibrate(self, logits: np.ndarray, records: Sequence[Record]) -> dict[str, Any]:
        known = [n for n, r in enumerate(records) if str(r["label"]) in self.label2id]
        truth = np.array([self.label2id[str(records[n]["label"])] for n in known], np.int64)
        return {"temperature": metrics.fit_temperature(logits[known], truth)}

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
        """(N, labels) probabilities."""
        return np.array([[a["scores"][name] for name in self.labels] for a in predictions]).reshape(
            -1, len(self.labels)
        )

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """A label that the model does not know counts as wrong."""
        expected = [str(r["label"]) for r in records]
        label2id = self.label2id | {
            name: len(self.label2id) + n for n, name in enumerate(sorted(set(expected) - set(self.label2id)))
        }
        aims = np.array([label2id[name] for name in expected], np.int64)
        table = metrics.confusion(aims, [label2id[a["label"]] for a in predictions], len(label2id))
        first = 1 if self.positive_label else 0  # of two labels that exclude each other, one says everything
        truth = aims[:, None] == np.arange(first, len(self.labels))
        return metrics.drop_undefined(
            {
                "accuracy": metrics.accuracy(table),
                "f1": metrics.micro_f1(table[1, 1], table[:, 1].sum(), table[1].sum()) if self.positive_label else None,
                "macro_f1": metrics.macro_f1(np.diag(table), table.sum(0), table.sum(1)),
                "mcc": metrics.mcc(table),
                "auc": metrics.macro_auc(self.scores(predictions)[:, first:], truth),
            }
        )

    def details(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
        expected = [str(r["label"]) for r in records]
        return details.single_label_details(records, self.labels, self.scores(predictions), expected, self.temperature)


class MultiLabel(SingleLabel):
    """A record has any number of labels, also none."""

    problem_type, primary_metric, min_labels = "multi_label_classification", "micro_f1", 1
    output: ClassVar[Output] = "binary"

    @classmethod
    def names(cls, record: Record) -> list[str]:
        return list(record["label"])

    def stratify_key(self, record: Record) -> str:
        """The rarest one."""
        counts = dict(zip(self.labels, self.task_state.get("counts", ())))
        return min(record["label"], key=lambda name: (counts.get(name, 0), name), default="")

    def describe(self, records: Sequence[Record]) -> str:
        none = sum(not r["label"] for r in records)
        return f"several of {super().describe(records)}; {none:,} records have none"

    def encode_target(self, record: Record) -> np.ndarray:
        return metrics.indicator([record["label"]], self.labels).astype(np.float32)

    @property
    def thresholds(self) -> list[float]:
        return self.task_state.get("thresholds") or [0.5] * len(self.labels)

    def calibrate(self, logits: np.ndarray, records: Sequence[Record]) -> dict[str, Any]:
        """Thresholds with the best F1, of the labels that the dev set has enough of."""
        truth = metrics.indicator([r["label"] for r in records], self.labels)
        temperature = metrics.fit_temperature(logits, truth.astype(float))
        p = numeric.sigmoid(logits / temperature)
        thresholds = [
            metrics.best_threshold(p[:, k], truth[:, k]) if truth[:, k].sum() >= FEW else 0.5
            for k in range(len(self.labels))
        ]
        return {"temperature": temperature, "thresholds": thresholds}

    def decode(self, logits: np.ndarray) -> list[dict[str, Any]]:
        return [
            {
                "labels": [name for name, x, least in zip(self.labels, p, self.thresholds) if x >= least],
                "scores": dict(zip(self.labels, p)),
            }
            for p in numeric.sigmoid(logits / self.temperature).tolist()
        ]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Accuracy is the share of records with exactly their labels."""
        expected = [self.names(r) for r in records]
        labels = [*self.labels, *sorted({name for names in expected for name in names} - set(self.label2id))]
        truth, given = (
            metrics.indicator(expected, labels),
            metrics.indicator([a["labels"] for a in predictions], labels),
        )
        counts = (truth & given).sum(0), given.sum(0), truth.sum(0)
        return metrics.drop_undefined(
            {
                "micro_f1": metrics.micro_f1(*counts),
                "macro_f1": metrics.macro_f1(*counts),
                "auc": metrics.macro_auc(self.scores(predictions), truth[:, : len(self.labels)]),
                "accuracy": float((truth == given).all(-1).mean()) if len(expected) else None,
            }
        )

    def details(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
        predicted = [a["labels"] for a in predictions]
        return details.multi_label_details(
            records, self.labels, self.scores(predictions), predicted, self.thresholds, self.temperature
        )


class Regression(SingleLabel):
    """A record has a number. It is learnt in standard deviations from the mean, and at the end folded into the last layer."""

    problem_type, primary_metric = "regression", "r2"
    output: ClassVar[Output] = "number"

    @classmethod
    def fit_state(cls, records: Sequence[Record], given: Sequence[str], choice: str) -> dict[str, Any]:
        values = np.array([r["label"] for r in records], np.float64)
        return {"labels": [VALUE], "mean": float(values.mean()), "sd": float(values.std()) or 1.0}

    @property
    def scale(self) -> tuple[float, float]:
        return self.task_state.get("mean", 0.0), self.task_state.get("sd", 1.0)

    def stratify_key(self, record: Record) -> str:
        """Which half of a standard deviation it lies in."""
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
        return metrics.regression([r["label"] for r in records], [a[VALUE] for a in predictions])

    def details(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
        expected = np.array([r["label"] for r in records], np.float64)
        return details.regression_details(records, expected, np.array([a[VALUE] for a in predictions], np.float64))


TARGETS: dict[str, type[SingleLabel]] = {
    "single_label": SingleLabel,
    "multi_label": MultiLabel,
    "regression": Regression,
}


def compute_class_weights(counts: Sequence[int], choice: str) -> list[float] | None:
    """Weights of the labels: n^-0.5, 1 on the mean over the records (of a label with few records as if it had FEW).

    >>> compute_class_weights([100, 400], "balanced")
    [1.6666666666666667, 0.8333333333333334]
    >>> [compute_class_weights(n, "auto") is not None for n in ([100, 400], [4, 400], [40, 400])]
    [False, False, True]
    """
    enough = [n for n in counts if n >= FEW]
    if choice == "none" or (choice == "auto" and (len(enough) < 2 or max(enough) < RARE * min(enough))):
        return None
    n = np.array(counts, np.float64)
    weights = np.maximum(n, FEW) ** -0.5
    return (weights * n.sum() / (weights @ n)).tolist() if n.sum() else None
