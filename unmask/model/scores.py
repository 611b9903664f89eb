"""Logits processing, top-k and sampling for text generation, in numpy: scores (N, V) float32 → allowed or chosen tokens.

Functions change their arrays in place, because the logits of a step are read once. Loops over rows keep one row at a
time in the processor's cache.
"""

import numpy as np

from unmask.model.generation import GenerationConfig
from unmask.seeds import generator

FOLD_SIZE = 64  # `top_indices` first compares the maxima of groups of this many entries
MIN_TEMPERATURE = 1e-30  # below it, and above its inverse, scores overflow float32
SUM_BLOCK = 256  # `sample_index` first searches the sums of blocks of this many weights


def process_logits(
    scores: np.ndarray, rows: np.ndarray, options: GenerationConfig, start: int, max_length: int
) -> None:
    """Apply the options to the scores (N, V) of the tokens after `rows` (N, L), in the order of transformers.

    >>> scores = np.array([[1.0, 3.0, 2.0]], np.float32)
    >>> process_logits(scores, np.array([[1, 1]]), GenerationConfig(no_repeat_ngram_size=2), start=2, max_length=9)
    >>> scores.tolist()
    [[1.0, -inf, 2.0]]
    """
    length = rows.shape[1]
    if options.repetition_penalty != 1.0:
        penalized = np.take_along_axis(scores, rows, 1)  # (N, L)
        penalized = np.where(
            penalized < 0, penalized * options.repetition_penalty, penalized / options.repetition_penalty
        )
        np.put_along_axis(scores, rows, penalized, 1)
    if options.no_repeat_ngram_size:
        for row, banned in zip(scores, banned_ngram_tokens(rows.tolist(), options.no_repeat_ngram_size), strict=True):
            row[banned] = -np.inf
    if options.eos_token_ids and (length < options.min_length or length - start < options.min_new_tokens):
        scores[:, [end for end in options.eos_token_ids if 0 <= end < scores.shape[1]]] = -np.inf
    for token, forced_at in ((options.forced_bos_token_id, 1), (options.forced_eos_token_id, max_length - 1)):
        if token is not None and length == forced_at:
            scores[:] = -np.inf
            scores[:, token] = 0.0


def banned_ngram_tokens(rows: list[list[int]], n: int) -> list[list[int]]:
    """Return, for each row, the tokens that would repeat an n-gram of the row.

    >>> banned_ngram_tokens([[1, 2, 3, 1, 2]], 3)
    [[3]]
    """
    banned = []
    for row in rows:
        tail = row[len(row) - n + 1 :] if len(row) >= n - 1 else None
        banned.append([row[i + n - 1] for i in range(len(row) - n + 1) if row[i : i + n - 1] == tail])
    return banned


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Turn the scores into log-probabilities, in place, and return the same array.

    >>> np.exp(log_softmax(np.array([[0.0, 0.0, 0.0, 0.0]], np.float32))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    for row in scores:
        row -= row.max()
        row -= np.log(np.exp(row).sum())
    return scores


def top_indices(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest of (V,), largest first; among equal scores the first index wins.

    To avoid sorting all scores, they are folded into groups of FOLD_SIZE entries. The count-th largest of the group
    maxima is a lower bound that at least `count` entries reach, and few others.

    >>> top_indices(np.array([5.0, 9.0, 7.0, 9.0]), 3).tolist()
    [1, 3, 2]
    """
    folds = len(scores) // FOLD_SIZE
    if folds < count:
        candidates = np.arange(len(scores))
    else:
        maxima = scores[: folds * FOLD_SIZE].reshape(FOLD_SIZE, folds).max(0)  # (folds,)
        candidates = np.flatnonzero(scores >= np.partition(maxima, folds - count)[folds - count])
    return candidates[np.argsort(-scores[candidates], kind="stable")[:count]]


def sample_tokens(scores: np.ndarray, options: GenerationConfig, prompt_numbers: list[int], step: int) -> np.ndarray:
    """Sample a token for each row of (N, V), after temperature, top_k and top_p, in this order.

    The random number depends only on (seed, number of the prompt, step).
    """
    scores /= min(max(options.temperature, MIN_TEMPERATURE), 1 / MIN_TEMPERATURE)
    sampled = np.empty(len(scores), np.int64)
    for n, (row, number) in enumerate(zip(scores, prompt_numbers, strict=True)):
        tokens, weights = filter_logits(row, options)
        sampled[n] = tokens[sample_index(weights, generator(options.seed, "generate", number, step).random())]
    return sampled


def sample_index(weights: np.ndarray, uniform: float) -> int:
    """Return an index with probability proportional to its weight, for a uniform random number in [0, 1).

    The search first finds the block of SUM_BLOCK weights, then the index in it.

    >>> [sample_index(np.array([1.0, 0.0, 3.0, 0.0], np.float32), u) for u in (0.0, 0.24, 0.25, 1 - 2**-53)]
    [0, 0, 2, 2]
    """
    sums = np.add.reduceat(weights, np.arange(0, len(weights), SUM_BLOCK))
    block, rest = _invert_cumulative(sums, uniform * sums.sum(dtype=np.float64))
    return block * SUM_BLOCK + _invert_cumulative(weights[block * SUM_BLOCK : (block + 1) * SUM_BLOCK], rest)[0]


def _invert_cumulative(weights: np.ndarray, target: float) -> tuple[int, float]:
    """Return the index whose interval of the cumulative sum contains `target`, and the distance from its lower edge."""
    edges = np.cumsum(weights, dtype=np.float64)
    last = np.searchsorted(edges, edges[-1])  # the last weight above 0: rounding may raise the target to the total
    index = int(min(np.searchsorted(edges, target, side="right"), last))
    return index, target - float(edges[index - 1]) if index else target


def filter_logits(scores: np.ndarray, options: GenerationConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that pass top_k and top_p for scores (V,), and their unnormalized probabilities.

    >>> tokens, weights = filter_logits(np.log(np.array([0.1, 0.5, 0.4])), GenerationConfig(top_p=0.6))
    >>> tokens.tolist(), (weights / weights.sum()).round(2).tolist()
    ([1, 2], [0.56, 0.44])
    """
    tokens, top = np.arange(len(scores)), scores.max()
    if top == -np.inf:  # no token is allowed: return the first, as greedy search does
        return tokens[:1], np.ones(1)
    if 0 < options.top_k < len(scores):
        tokens = np.flatnonzero(scores >= scores[top_indices(scores, options.top_k)[-1]])  # keeps ties
        scores = scores[tokens]
    weights = np.exp(scores - top)
    if options.top_p < 1.0:
        # Weights below this bound sum to less than 1 − top_p, so they are never selected and need not be sorted.
        total = weights.sum(dtype=np.float64)
        candidates = np.flatnonzero(weights >= total * (1 - options.top_p) / len(weights))
        ordered = np.sort(weights[candidates])[::-1]
        before = np.cumsum(ordered, dtype=np.float64) - ordered  # sum of all larger weights
        count = max(1, int(np.count_nonzero(before < options.top_p * total)))
        selected = weights[candidates] > ordered[count - 1]
        equal = np.flatnonzero(weights[candidates] == ordered[count - 1])
        selected[equal[: count - np.count_nonzero(selected)]] = True  # among equal weights, the first tokens
        tokens, weights = tokens[candidates[selected]], weights[candidates[selected]]
    return tokens, weights
