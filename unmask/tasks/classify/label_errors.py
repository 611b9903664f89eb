"""Find labels that look wrong: confident learning (Northcutt et al. 1911.00068).

The probabilities must be out-of-fold: a model that was trained on a wrong label agrees with it.

The same records are found as by `find_label_issues(filter_by="confident_learning")` of cleanlab 2, with one exception for three or
more labels: if several labels are confident, cleanlab takes the most probable of all labels, and this module, like the paper, the
most probable of the confident ones (`docs/log.md`).
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LabelError:
    index: int  # of the record
    given: int  # label
    suggested: int  # label
    score: float  # normalized margin: 0 is certainly wrong, 0.5 undecided, 1 certainly right


def find_label_errors(probabilities: np.ndarray, y: np.ndarray) -> list[LabelError]:
    """Return records whose label looks wrong, the most suspicious first. `probabilities`: (N, K), out-of-fold; `y`: (N,).

    The threshold of a label is its mean probability over the records with that label. A record is a suspect if the most probable
    of the labels above their threshold is not the given one. So the number of suspects is the off-diagonal sum of the confident
    joint. A record whose most probable label is the given one is not a suspect.

    >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.3, 0.7]])
    >>> find_label_errors(probabilities, np.array([0, 0, 0, 1, 1]))
    [LabelError(index=2, given=0, suggested=1, score=0.1)]
    """
    if not len(y):
        return []
    rows = np.arange(len(y))
    confident = probabilities >= thresholds(probabilities, y) - 1e-9  # equal values must not differ by rounding
    suggested = np.where(confident, probabilities, -1.0).argmax(-1)
    suspect = confident.any(-1) & (suggested != y) & (probabilities.argmax(-1) != y)
    others = probabilities.copy()
    others[rows, y] = -1.0
    scores = (probabilities[rows, y] - others.max(-1) + 1) / 2
    found = np.flatnonzero(suspect)
    return [
        LabelError(int(n), int(y[n]), int(suggested[n]), round(float(scores[n]), 6))
        for n in found[np.argsort(scores[found], kind="stable")]
    ]


def thresholds(probabilities: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for each label its mean probability over the records with that label; infinite for a label without records."""
    counts = np.bincount(y, minlength=probabilities.shape[1])
    sums = np.bincount(y, probabilities[np.arange(len(y)), y], minlength=probabilities.shape[1])
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
