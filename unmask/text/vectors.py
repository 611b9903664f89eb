"""First vectors for a new model's tokens, from counts alone: seconds that save a model its first hundreds of steps.

A model that starts from random vectors first learns how often tokens occur, and stays on that shelf (the loss near the
unigram entropy) until its embedding says which tokens are alike. Counting says so at once. Half of each vector is what
stands next to the token (PPMI within two places, factorised: Levy & Goldberg 2014), half is which passages it occurs in
(latent semantic analysis, Deerwester et al. 1990): the first knows "good" from "goodness", the second "good" from "bad".
`docs/log.md` has the figures.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from unmask.seeds import generator
from unmask.text.flags import DOCUMENT
from unmask.text.store import Split

CONTEXT_WINDOW = 2  # places to either side that count as next to a token
PASSAGE_TOKENS = 512  # tokens; a longer document counts as several passages
MAX_PASSAGES = 50_000  # looked at, at most: evenly spread
SAMPLE_TOKENS = 8_000_000  # tokens looked at, at most: from the start, the middle … in equal pieces
SAMPLE_SLICES = 64  # that the sample is taken in
SMOOTHING = 0.75  # of the context's frequency, so that rare contexts do not decide


class TokenSample(NamedTuple):
    """What is counted of a text, read once."""

    tokens: np.ndarray  # (N,) int64
    passages: np.ndarray  # (N,) int64: the number of each token's passage

    @classmethod
    def from_split(cls, split: Split) -> "TokenSample":
        total = len(split.tokens)
        if total <= SAMPLE_TOKENS:
            pieces = [slice(0, total)]
        else:
            size = SAMPLE_TOKENS // SAMPLE_SLICES
            pieces = [
                slice(start, start + size) for start in np.linspace(0, total - size, SAMPLE_SLICES).astype(np.int64)
            ]
        tokens = np.concatenate([split.tokens[piece] for piece in pieces]).astype(np.int64)
        starts = np.concatenate([split.flags[piece] & DOCUMENT > 0 for piece in pieces])
        starts[np.cumsum([0, *(piece.stop - piece.start for piece in pieces[:-1])])] = True
        first = np.flatnonzero(starts)
        inside = np.arange(len(tokens)) - np.repeat(first, np.diff([*first, len(tokens)]))
        return cls(tokens, np.cumsum(starts | (inside % PASSAGE_TOKENS == 0)) - 1)


def initial_vectors(sample: TokenSample, special: np.ndarray, width: int, seed: int) -> np.ndarray:
    """(V, width) float32, every coordinate about standard normal; `special` (V,) bool says which tokens are no text.

    Tokens that do not occur, and special ones, get random vectors.
    """
    import sklearn.utils.extmath  # noqa: F401  first: it loads one more BLAS, and only those that are there are limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # sums in one order: the same bits however busy the machine is
        return _corpus_vectors(sample, special, width, seed)


def _corpus_vectors(sample: TokenSample, special: np.ndarray, width: int, seed: int) -> np.ndarray:
    vocabulary = len(special)
    tokens, passages = sample
    text = ~special[tokens]
    near = _svd_factors(_ppmi(tokens, passages, text, vocabulary), width - width // 2, 0.5, seed)
    far = _svd_factors(_tf_idf(tokens[text], passages[text], vocabulary), width // 2, 0.0, seed)
    rng = generator(seed, "first vectors")
    vectors = np.concatenate([near, far], 1)
    # Spread over all coordinates: an optimizer that scales each on its own would treat the strongest as any other.
    vectors = vectors @ np.linalg.qr(rng.normal(size=(width, width)))[0]
    seen = np.bincount(tokens[text], minlength=vocabulary) > 0
    return np.where(seen[:, None], vectors, rng.normal(size=vectors.shape)).astype(np.float32)


def log_frequencies(sample: TokenSample, vocabulary: int) -> np.ndarray:
    """(V,) float32: log of each token's share of the text, as if every token had half an occurrence more."""
    counts = np.bincount(sample.tokens, minlength=vocabulary) + 0.5
    return np.log(counts / counts.sum()).astype(np.float32)


def _ppmi(tokens: np.ndarray, passages: np.ndarray, text: np.ndarray, vocabulary: int) -> sparse.csr_matrix:
    """(V, V) positive pointwise mutual information of tokens that stand within REACH places of each other."""
    counts = sparse.csr_matrix((vocabulary, vocabulary), dtype=np.float32)
    for away in range(1, CONTEXT_WINDOW + 1):
        both = (passages[:-away] == passages[away:]) & text[:-away] & text[away:]
        pair = tokens[:-away][both], tokens[away:][both]
        counts = counts + sparse.csr_matrix((np.ones(len(pair[0]), np.float32), pair), shape=counts.shape)
    counts = (counts + counts.T).tocoo()
    margin = np.bincount(counts.row, weights=counts.data, minlength=vocabulary)
    context = margin**SMOOTHING / max((margin**SMOOTHING).sum(), 1.0)
    information = np.log(counts.data / (margin[counts.row] * context[counts.col]))
    kept = information > 0
    return sparse.csr_matrix(
        (information[kept].astype(np.float32), (counts.row[kept], counts.col[kept])), shape=counts.shape
    )


def _tf_idf(tokens: np.ndarray, passages: np.ndarray, vocabulary: int) -> sparse.csr_matrix:
    """(V, P): log counts weighted by how rare a token is, every passage of length one."""
    if len(passages) and passages[-1] >= MAX_PASSAGES:
        every = int(passages[-1]) // MAX_PASSAGES + 1
        kept = passages % every == 0
        tokens, passages = tokens[kept], passages[kept] // every
    number = int(passages[-1]) + 1 if len(passages) else 1
    counts = sparse.csr_matrix((np.ones(len(tokens), np.float32), (passages, tokens)), shape=(number, vocabulary))
    counts.sum_duplicates()
    rarity = np.log((number + 1) / (np.bincount(counts.indices, minlength=vocabulary) + 1))
    weighted = counts.copy()
    weighted.data = np.log1p(counts.data) * rarity[counts.indices]
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1)).ravel())
    scaled = sparse.diags(1 / np.maximum(norms, 1e-6)) @ weighted
    return scaled.T.tocsr().astype(np.float32)


def _svd_factors(matrix: sparse.csr_matrix, width: int, power: float, seed: int) -> np.ndarray:
    """(V, width): the rows in the matrix's strongest directions, weighted by strength ** power; rows of length √width."""
    from sklearn.utils.extmath import randomized_svd  # here: a second that nobody else needs to wait for

    rank = min(width, min(matrix.shape) - 1)
    out = np.zeros((matrix.shape[0], width))
    if rank < 1 or not matrix.nnz:
        return out
    left, strength, _ = randomized_svd(matrix, rank, n_iter=3, random_state=seed % 2**32)
    out[:, :rank] = left * strength**power
    out -= out.mean(0)
    return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-6) * np.sqrt(width)
