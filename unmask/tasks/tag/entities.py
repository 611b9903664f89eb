"""Scores of entities: an entity is right when its beginning, its end and its label are.

The figures are seqeval's: micro is over all entities, macro the mean over the labels that occur in the truth or in the answers,
and what would be divided by nothing is 0. Tags that are not valid are read as conlleval and seqeval's default do (`schemes.read`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from unmask.tasks.metrics import f1_scores


def _counts(wanted: Sequence[Iterable[Any]], found: Sequence[Iterable[Any]]) -> list[Counter[str]]:
    """How many entities of each label are right, found, wanted."""
    pairs = [(set(a), set(b)) for a, b in zip(wanted, found, strict=True)]
    kinds = [a & b for a, b in pairs], [b for _, b in pairs], [a for a, _ in pairs]
    return [Counter(entity[2] for sentence in kind for entity in sentence) for kind in kinds]


def per_label(wanted: Sequence[Iterable[Any]], found: Sequence[Iterable[Any]]) -> list[dict[str, Any]]:
    """A line per label; `wanted` and `found` hold each sentence's (start, end, label)."""
    right, given, there = _counts(wanted, found)
    lines = []
    for label in sorted(given | there):
        precision, recall, f1 = f1_scores(right[label], given[label], there[label])
        lines.append({"label": label, "precision": precision, "recall": recall, "f1": f1, "support": there[label]})
    return lines


def scores(wanted: Sequence[Iterable[Any]], found: Sequence[Iterable[Any]]) -> dict[str, float]:
    """
    >>> scores([{(0, 1, "loc")}, set()], [{(0, 1, "loc")}, {(2, 3, "per")}])["f1"]
    0.6666666666666666
    """
    precision, recall, f1 = f1_scores(*(count.total() for count in _counts(wanted, found)))
    lines = per_label(wanted, found)
    macro = sum(line["f1"] for line in lines) / len(lines) if lines else 0.0
    return {"f1": f1, "precision": precision, "recall": recall, "macro_f1": macro}


def accuracy(wanted: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """Share of words with the right tag.

    >>> accuracy([["O", "B-loc"], ["O"]], [["O", "O"], ["O"]])
    0.6666666666666666
    """
    pairs = [(a, b) for x, y in zip(wanted, found, strict=True) for a, b in zip(x, y, strict=True)]
    return sum(a == b for a, b in pairs) / max(1, len(pairs))
