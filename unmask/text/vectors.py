"""Initialize token embeddings from corpus statistics, which takes seconds and saves a new model hundreds of steps.

A model with random embeddings first learns token frequencies. Its loss stays near the unigram entropy until the embeddings show
which tokens are similar. Corpus statistics provide that at once. Half of each vector represents neighboring tokens (factorized
PPMI in a window of two: Levy & Goldberg 2014), the other half the passages that contain the token (latent semantic analysis,
Deerwester et al. 1990). The first half separates "good" from "goodness", the second "good" from "bad". The measurements are in
`docs/log.md`.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from unmask.seeds import generator
from unmask.text.flags import DOCUMENT
from unmask.text.store import Split

CONTEXT_WINDOW = 2  # tokens on each side that count as neighbors
PASSAGE_TOKENS = 512  # a longer document is split into several passages
MAX_PASSAGES = 50_000  # maximum; a larger sample is subsampled evenly
SAMPLE_TOKENS = 8_000_000  # maximum, in slices that are spread evenly over the text
SAMPLE_SLICES = 64
SMOOTHING = 0.75  # exponent of the context frequency, so that rare contexts do not dominate


class TokenSample(NamedTuple):
    """The tokens of a text from which the statistics are computed."""

    tokens: np.ndarray  # (N,) int64
    passages: np.ndarray  # (N,) int64: passage number of each token

    @classmethod
    def from_split(cls, split: Split) -> "TokenSample":
        total = len(split.tokens)
        if total <= SAMPLE_TOKENS:
            slices = [slice(0, total)]
        else:
            size = SAMPLE_TOKENS // SAMPLE_SLICES
            starts = np.linspace(0, total - size, SAMPLE_SLICES).astype(np.int64)
            slices = [slice(start, start + size) for start in starts]
        tokens = np.concatenate([split.tokens[part] for part in slices]).astype(np.int64)
        is_start = np.concatenate([split.flags[part] & DOCUMENT > 0 for part in slices])
        is_start[np.cumsum([0, *(part.stop - part.start for part in slices[:-1])])] = True
        first = np.flatnonzero(is_start)
        offset = np.arange(len(tokens)) - np.repeat(first, np.diff([*first, len(tokens)]))  # within the document
        return cls(tokens, np.cumsum(is_start | (offset % PASSAGE_TOKENS == 0)) - 1)


def initial_vectors(sample: TokenSample, special: np.ndarray, width: int, seed: int) -> np.ndarray:
    """Return (V, width) float32 vectors whose coordinates are about standard normal.

    `special` (V,) bool marks special tokens. These, and tokens that do not occur, get random vectors.
    """
    import sklearn.utils.extmath  # noqa: F401  first: it loads another BLAS, and only loaded ones are limited below
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # a fixed order of summation gives the same bits on every run
        return _corpus_vectors(sample, special, width, seed)


def _corpus_vectors(sample: TokenSample, special: np.ndarray, width: int, seed: int) -> np.ndarray:
    vocabulary = len(special)
    tokens, passages = sample
    text = ~special[tokens]
    near = _svd_factors(_ppmi(tokens, passages, text, vocabulary), width - width // 2, 0.5, seed)
    far = _svd_factors(_tf_idf(tokens[text], passages[text], vocabulary), width // 2, 0.0, seed)
    rng = generator(seed, "first vectors")
    vectors = np.concatenate([near, far], 1)
    # A random rotation: an optimizer that scales each coordinate separately would treat the strongest like any other.
    vectors = vectors @ np.linalg.qr(rng.normal(size=(width, width)))[0]
    seen = np.bincount(tokens[text], minlength=vocabulary) > 0
    return np.where(seen[:, None], vectors, rng.normal(size=vectors.shape)).astype(np.float32)


def log_frequencies(sample: TokenSample, vocabulary: int) -> np.ndarray:
    """Return (V,) float32: log relative frequency of each token, with add-0.5 smoothing."""
    counts = np.bincount(sample.tokens, minlength=vocabulary) + 0.5
    return np.log(counts / counts.sum()).astype(np.float32)


def _ppmi(tokens: np.ndarray, passages: np.ndarray, text: np.ndarray, vocabulary: int) -> sparse.csr_matrix:
    """Return (V, V): positive pointwise mutual information of tokens within CONTEXT_WINDOW positions of each other."""
    counts = sparse.csr_matrix((vocabulary, vocabulary), dtype=np.float32)
    for distance in range(1, CONTEXT_WINDOW + 1):
        both = (passages[:-distance] == passages[distance:]) & text[:-distance] & text[distance:]
        pair = tokens[:-distance][both], tokens[distance:][both]
        counts = counts + sparse.csr_matrix((np.ones(len(pair[0]), np.float32), pair), shape=counts.shape)
    counts = (counts + counts.T).tocoo()
    margin = np.bincount(counts.row, weights=counts.data, minlength=vocabulary)
    context = margin**SMOOTHING / max((margin**SMOOTHING).sum(), 1.0)
    information = np.log(counts.data / (margin[counts.row] * context[counts.col]))
    positive = information > 0
    return sparse.csr_matrix(
        (information[positive].astype(np.float32), (counts.row[positive], counts.col[positive])), shape=counts.shape
    )


def _tf_idf(tokens: np.ndarray, passages: np.ndarray, vocabulary: int) -> sparse.csr_matrix:
    """Return (V, P): log counts times inverse passage frequency; the vector of each passage has length one."""
    if len(passages) and passages[-1] >= MAX_PASSAGES:
        step = int(passages[-1]) // MAX_PASSAGES + 1
        selected = passages % step == 0
        tokens, passages = tokens[selected], passages[selected] // step
    num_passages = int(passages[-1]) + 1 if len(passages) else 1
    counts = sparse.csr_matrix((np.ones(len(tokens), np.float32), (passages, tokens)), shape=(num_passages, vocabulary))
    counts.sum_duplicates()
    idf = np.log((num_passages + 1) / (np.bincount(counts.indices, minlength=vocabulary) + 1))
    weighted = counts.copy()
    weighted.data = np.log1p(counts.data) * idf[counts.indices]
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1)).ravel())
    scaled = sparse.diags(1 / np.maximum(norms, 1e-6)) @ weighted
    return scaled.T.tocsr().astype(np.float32)


def _svd_factors(matrix: sparse.csr_matrix, width: int, power: float, seed: int) -> np.ndarray:
    """Return (V, width): left singular vectors times singular values ** power; each row is scaled to length √width."""
    from sklearn.utils.extmath import randomized_svd  # takes a second to import

    rank = min(width, min(matrix.shape) - 1)
    out = np.zeros((matrix.shape[0], width))
    if rank < 1 or not matrix.nnz:
        return out
    left, singular, _ = randomized_svd(matrix, rank, n_iter=3, random_state=seed % 2**32)
    out[:, :rank] = left * singular**power
    out -= out.mean(0)
    return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-6) * np.sqrt(width)
