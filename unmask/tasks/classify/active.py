"""Choose the texts whose labels help most: uncertain and different from each other (Zhdanov 1901.05954).

The candidates are the most uncertain texts. Their vectors are clustered by k-means with the uncertainty as weight, and the text
closest to each center is chosen. If all texts are equally uncertain (there is no model yet), the candidates are a random sample.
"""

import numpy as np
from sklearn.cluster import KMeans

CANDIDATES_PER_TEXT = 10


def choose_texts_to_label(probabilities: np.ndarray, vectors: np.ndarray, count: int = 50, seed: int = 0) -> list[int]:
    """Return the indices of at most `count` texts, the most uncertain first. `probabilities`: (N, K); `vectors`: (N, d).

    Texts with equal vectors are duplicates, so only one of them is returned.

    >>> probabilities = np.array([[0.99, 0.01], [0.5, 0.5], [0.5, 0.5], [0.6, 0.4]])
    >>> choose_texts_to_label(probabilities, np.array([[0.0], [1.0], [1.0], [2.0]]), count=2)
    [1, 3]
    """
    weights = uncertainty(probabilities)
    order = np.lexsort((np.random.default_rng(seed).permutation(len(weights)), -weights.round(9)))
    candidates = _distinct(vectors, order, CANDIDATES_PER_TEXT * count)
    if len(candidates) <= count:
        return candidates.tolist()
    rows, weight = vectors[candidates], weights[candidates]
    if np.ptp(weight) < 1e-9 or weight.max() <= 0:
        weight = np.ones(len(candidates))
    clusters = KMeans(count, n_init=1, random_state=seed).fit(rows, sample_weight=np.maximum(weight, 1e-6))
    distances = clusters.transform(rows)  # (candidates, count)
    own = np.where(clusters.labels_[:, None] == np.arange(count), distances, np.inf)
    chosen = own.argmin(0)[np.isfinite(own).any(0)]  # a cluster can be empty
    return candidates[sorted(chosen)].tolist()


def uncertainty(probabilities: np.ndarray) -> np.ndarray:
    """Return (N,): 1 minus the margin between the two most probable labels.

    >>> uncertainty(np.array([[0.5, 0.5], [0.75, 0.25]])).tolist()
    [1.0, 0.5]
    """
    if probabilities.shape[1] < 2:
        return np.ones(len(probabilities))
    top = np.sort(probabilities, -1)
    return 1 - (top[:, -1] - top[:, -2])


def _distinct(vectors: np.ndarray, order: np.ndarray, limit: int) -> np.ndarray:
    """Return the first `limit` indices of `order` whose vectors differ."""
    seen: set[bytes] = set()
    kept: list[int] = []
    for index in order:
        if len(kept) == limit:
            break
        key = (vectors[index] + 0.0).tobytes()  # -0.0 becomes 0.0
        if key not in seen:
            seen.add(key)
            kept.append(int(index))
    return np.array(kept, int)
