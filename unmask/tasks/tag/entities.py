"""Scores of entities: an entity is right when its beginning, its end and its label are.

The figures are seqeval's: micro is over all entities, macro the mean over the labels that occur in the truth or in the answers,
and what would be divided by nothing is 0. Tags that are not valid are read as conlleval and seqeval's default do (`schemes.read`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any


def rates(right: int, found: int, wanted: int) -> tuple[float, float, float]:
    """Precision, recall and F1.

    >>> rates(1, 2, 1), rates(0, 0, 3)
    ((0.5, 1.0, 0.6666666666666666), (0.0, 0.0, 0.0))
    """
    precision, recall = right / found if found else 0.0, right / wanted if wanted else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


def per_label(wanted: Sequence[Iterable[Any]], found: Sequence[Iterable[Any]]) -> list[dict[str, Any]]:
    """A line per label; `wanted` and `found` hold each sentence's (start, end, label)."""
    counts = {"right": Counter[str](), "found": Counter[str](), "wanted": Counter[str]()}
    for truth, answer in zip(wanted, found, strict=True):
        a, b = set(truth), set(answer)
        counts["wanted"].update(e[2] for e in a)
        counts["found"].update(e[2] for e in b)
        counts["right"].update(e[2] for e in a & b)
    lines = []
    for label in sorted(counts["wanted"] | counts["found"]):
        precision, recall, f1 = rates(*(counts[name][label] for name in ("right", "found", "wanted")))
        lines.append(
            {"label": label, "precision": precision, "recall": recall, "f1": f1, "support": counts["wanted"][label]}
        )
    return lines


def scores(wanted: Sequence[Iterable[Any]], found: Sequence[Iterable[Any]]) -> dict[str, float]:
    """
    >>> scores([{(0, 1, "loc")}, set()], [{(0, 1, "loc")}, {(2, 3, "per")}])["f1"]
    0.6666666666666666
    """
    sets = [(set(a), set(b)) for a, b in zip(wanted, found, strict=True)]
    precision, recall, f1 = rates(
        sum(len(a & b) for a, b in sets), sum(len(b) for _, b in sets), sum(len(a) for a, _ in sets)
    )
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
