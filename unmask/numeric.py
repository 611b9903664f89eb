"""Small numpy functions that several packages share."""

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """
    >>> log_softmax(np.array([[0.0, 0.0]])).round(4).tolist()
    [[-0.6931, -0.6931]]
    """
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -logits))


def l2_normalize(vectors: np.ndarray, normalize: bool = True) -> np.ndarray:
    """Scale vectors to length 1, unless `normalize` is False."""
    if not normalize:
        return vectors
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """Return the 95% confidence interval of a fraction (Wilson 1927).

    >>> [round(x, 3) for x in wilson_interval(5, 10)], [round(x, 3) for x in wilson_interval(10, 10)]
    ([0.237, 0.763], [0.722, 1.0])
    """
    from scipy.stats import binomtest

    interval = binomtest(correct, n).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
