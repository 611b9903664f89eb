"""Entity metrics: an entity is correct if its start, its end and its label are.

The numbers equal seqeval's. Micro averages are over all entities, macro averages over the labels that occur in the references or
the predictions. A division by zero is 0. `schemes.tags_to_entities` reads invalid tags as conlleval and seqeval's default mode do.

`y_true` and `y_pred` contain (start, end, label) of the entities of each sentence.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from unmask.tasks.metrics import f1_scores


def _count_by_label(y_true: Sequence[Iterable[Any]], y_pred: Sequence[Iterable[Any]]) -> list[Counter[str]]:
    """Return the numbers of correct, predicted and expected entities of each label."""
    pairs = [(set(a), set(b)) for a, b in zip(y_true, y_pred, strict=True)]
    groups = [a & b for a, b in pairs], [b for _, b in pairs], [a for a, _ in pairs]
    return [Counter(entity[2] for sentence in group for entity in sentence) for group in groups]


def per_label(y_true: Sequence[Iterable[Any]], y_pred: Sequence[Iterable[Any]]) -> list[dict[str, Any]]:
    """Return a row of metrics per label."""
    correct, predicted, expected = _count_by_label(y_true, y_pred)
    rows = []
    for label in sorted(predicted | expected):
        precision, recall, f1 = f1_scores(correct[label], predicted[label], expected[label])
        rows.append({"label": label, "precision": precision, "recall": recall, "f1": f1, "support": expected[label]})
    return rows


def scores(y_true: Sequence[Iterable[Any]], y_pred: Sequence[Iterable[Any]]) -> dict[str, float]:
    """
    >>> scores([{(0, 1, "loc")}, set()], [{(0, 1, "loc")}, {(2, 3, "per")}])["f1"]
    0.6666666666666666
    """
    precision, recall, f1 = f1_scores(*(count.total() for count in _count_by_label(y_true, y_pred)))
    rows = per_label(y_true, y_pred)
    macro = sum(row["f1"] for row in rows) / len(rows) if rows else 0.0
    return {"f1": f1, "precision": precision, "recall": recall, "macro_f1": macro}


def accuracy(y_true: Sequence[Sequence[str]], y_pred: Sequence[Sequence[str]]) -> float:
    """Return the fraction of words with the right tag. Both arguments contain the tags of each sentence.

    >>> accuracy([["O", "B-loc"], ["O"]], [["O", "O"], ["O"]])
    0.6666666666666666
    """
    pairs = [(a, b) for x, y in zip(y_true, y_pred, strict=True) for a, b in zip(x, y, strict=True)]
    return sum(a == b for a, b in pairs) / max(1, len(pairs))
