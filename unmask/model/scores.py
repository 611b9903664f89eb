"""Scores of the next token, (N, V) float32 in numpy → what settings allow, the best ones, or one that is drawn.

Arrays are changed in place: a step's logits are read once. Row by row where that keeps a row in the processor's cache.
"""

import numpy as np

from unmask.model.generation import GenerationConfig
from unmask.seeds import generator

COLUMNS = 64  # entries of which `best` first looks at the greatest alone
MIN_TEMPERATURE = 1e-30  # temperature: below it, as above its inverse, float32 has no number for a score
BLOCK = 256  # weights that `pick` first looks at as one


def process_logits(scores: np.ndarray, rows: np.ndarray, how: GenerationConfig, start: int, longest: int) -> None:
    """Change the scores (N, V) of the tokens after `rows` (N, L) as the settings say, in transformers' order.

    >>> scores = np.array([[1.0, 3.0, 2.0]], np.float32)
    >>> process_logits(scores, np.array([[1, 1]]), GenerationConfig(no_repeat_ngram_size=2), start=2, longest=9)
    >>> scores.tolist()
    [[1.0, -inf, 2.0]]
    """
    length = rows.shape[1]
    if how.repetition_penalty != 1.0:
        seen = np.take_along_axis(scores, rows, 1)  # (N, L)
        seen = np.where(seen < 0, seen * how.repetition_penalty, seen / how.repetition_penalty)
        np.put_along_axis(scores, rows, seen, 1)
    if how.no_repeat_ngram_size:
        for row, banned in zip(scores, banned_ngram_tokens(rows.tolist(), how.no_repeat_ngram_size), strict=True):
            row[banned] = -np.inf
    if how.eos_token_ids and (length < how.min_length or length - start < how.min_new_tokens):
        scores[:, [end for end in how.eos_token_ids if 0 <= end < scores.shape[1]]] = -np.inf
    for token, here in ((how.forced_bos_token_id, 1), (how.forced_eos_token_id, longest - 1)):
        if token is not None and length == here:
            scores[:] = -np.inf
            scores[:, token] = 0.0


def banned_ngram_tokens(rows: list[list[int]], n: int) -> list[list[int]]:
    """For each row, the tokens that would repeat n tokens that it already has.

    >>> banned_ngram_tokens([[1, 2, 3, 1, 2]], 3)
    [[3]]
    """
    out = []
    for row in rows:
        tail = row[len(row) - n + 1 :] if len(row) >= n - 1 else None
        out.append([row[i + n - 1] for i in range(len(row) - n + 1) if row[i : i + n - 1] == tail])
    return out


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """The same array, as log-probabilities.

    >>> np.exp(log_softmax(np.array([[0.0, 0.0, 0.0, 0.0]], np.float32))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    for row in scores:
        row -= row.max()
        row -= np.log(np.exp(row).sum())
    return scores


def top_indices(scores: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` greatest of (V,), greatest first, of equal ones the first.

    Each of COLUMNS-th of the entries has its greatest; the count-th of those is a bound that at least `count` entries
    reach, and few others: so that hardly anything is sorted.

    >>> top_indices(np.array([5.0, 9.0, 7.0, 9.0]), 3).tolist()
    [1, 3, 2]
    """
    folds = len(scores) // COLUMNS
    if folds < count:
        found = np.arange(len(scores))
    else:
        greatest = scores[: folds * COLUMNS].reshape(COLUMNS, folds).max(0)  # (folds,)
        found = np.flatnonzero(scores >= np.partition(greatest, folds - count)[folds - count])
    return found[np.argsort(-scores[found], kind="stable")[:count]]


def sample_tokens(scores: np.ndarray, how: GenerationConfig, numbers: list[int], step: int) -> np.ndarray:
    """A token for each of (N, V): temperature, then the top_k likeliest, then the likeliest that make up top_p.

    What is drawn is addressed by (seed, number of the prompt, step).
    """
    scores /= min(max(how.temperature, MIN_TEMPERATURE), 1 / MIN_TEMPERATURE)
    out = np.empty(len(scores), np.int64)
    for n, (row, number) in enumerate(zip(scores, numbers, strict=True)):
        tokens, weights = filter_logits(row, how)
        out[n] = tokens[sample_index(weights, generator(how.seed, "generate", number, step).random())]
    return out


def sample_index(weights: np.ndarray, lot: float) -> int:
    """The index that a lot, 0 ≤ lot < 1, falls on, each as often as its weight says: first a block, then inside it.

    >>> [sample_index(np.array([1.0, 0.0, 3.0, 0.0], np.float32), lot) for lot in (0.0, 0.24, 0.25, 1 - 2**-53)]
    [0, 0, 2, 2]
    """
    sums = np.add.reduceat(weights, np.arange(0, len(weights), BLOCK))
    block, rest = _invert_cumulative(sums, lot * sums.sum(dtype=np.float64))
    return block * BLOCK + _invert_cumulative(weights[block * BLOCK : (block + 1) * BLOCK], rest)[0]


def _invert_cumulative(weights: np.ndarray, lot: float) -> tuple[int, float]:
    """The index that a lot falls on, below the sum of weights, and how far it falls into it."""
    edges = np.cumsum(weights, dtype=np.float64)
    last = np.searchsorted(edges, edges[-1])  # of those that weigh anything: a lot may be rounded up to the sum
    index = int(min(np.searchsorted(edges, lot, side="right"), last))
    return index, lot - float(edges[index - 1]) if index else lot


def filter_logits(scores: np.ndarray, how: GenerationConfig) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that may be drawn by (V,) scores, and their weights: probabilities but for a factor.

    >>> tokens, weights = filter_logits(np.log(np.array([0.1, 0.5, 0.4])), GenerationConfig(top_p=0.6))
    >>> tokens.tolist(), (weights / weights.sum()).round(2).tolist()
    ([1, 2], [0.56, 0.44])
    """
    tokens, top = np.arange(len(scores)), scores.max()
    if top == -np.inf:  # nothing is allowed: the first, as the greedy search takes
        return tokens[:1], np.ones(1)
    if 0 < how.top_k < len(scores):
        tokens = np.flatnonzero(scores >= scores[top_indices(scores, how.top_k)[-1]])  # ties stay
        scores = scores[tokens]
    weights = np.exp(scores - top)
    if how.top_p < 1.0:
        # Those below this bound have less than 1 − top_p together: they are never among the likeliest, and need no order.
        total = weights.sum(dtype=np.float64)
        some = np.flatnonzero(weights >= total * (1 - how.top_p) / len(weights))
        ordered = np.sort(weights[some])[::-1]
        before = np.cumsum(ordered, dtype=np.float64) - ordered  # of all that are likelier; the first stays
        count = max(1, int(np.count_nonzero(before < how.top_p * total)))
        above = weights[some] > ordered[count - 1]
        equal = np.flatnonzero(weights[some] == ordered[count - 1])
        above[equal[: count - np.count_nonzero(above)]] = True  # of equal ones the first
        tokens, weights = tokens[some[above]], weights[some[above]]
    return tokens, weights
