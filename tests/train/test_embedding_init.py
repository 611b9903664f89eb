"""Embedding initialization from corpus statistics: similar for tokens used alike, deterministic, and applied to new
models."""

import os
import subprocess
import sys
import threading

import numpy as np
import torch
from near import near
from threadpoolctl import threadpool_info, threadpool_limits

from unmask.model.config import preset
from unmask.model.model import Model
from unmask.seeds import generator
from unmask.text import vectors
from unmask.text.flags import DOCUMENT
from unmask.text.vectors import SAMPLE_TOKENS, TokenSample, initial_vectors, log_frequencies
from unmask.train.embedding_init import init_embeddings_from_corpus


class Text:
    """The part of the Split interface that the co-occurrence counts use."""

    def __init__(self, tokens, starts):
        self.tokens = np.asarray(tokens, np.uint16)
        self.flags = np.zeros(len(tokens), np.uint8)
        self.flags[starts] = DOCUMENT


def sentences(count: int) -> TokenSample:
    """`5 verb 8` or `6 verb 9`; verbs 10–13 occur only after 5 and 6, nouns 20–23 only as the last token of the
    other pattern."""
    rng = generator(0, "text")
    rows = []
    for _ in range(count):
        rows.append(
            [5 + rng.integers(2), 10 + rng.integers(4), 8] if rng.random() < 0.5 else [7, 9, 20 + rng.integers(4)]
        )
    return TokenSample.from_split(Text(np.concatenate(rows), np.arange(0, 3 * count, 3)))


def test_tokens_with_similar_usage_get_similar_vectors():
    special = np.zeros(40, bool)
    special[:5] = True
    vectors = initial_vectors(sentences(4000), special, 16, seed=0)
    assert vectors.shape == (40, 16) and vectors.dtype == np.float32
    near = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = near @ near.T
    inside = np.concatenate(
        [similarity[10:14, 10:14][np.triu_indices(4, 1)], similarity[20:24, 20:24][np.triu_indices(4, 1)]]
    )
    assert (
        inside.min() > 0.25 > 0 > similarity[10:14, 20:24].max()
    )  # the passage half of the vector carries no information here


def test_vectors_are_deterministic_and_depend_on_the_seed():
    text, special = sentences(500), np.zeros(40, bool)
    first = initial_vectors(text, special, 16, 0)
    assert np.array_equal(first, initial_vectors(text, special, 16, 0))
    assert not np.array_equal(first, initial_vectors(text, special, 16, 1))


# A checksum of the vectors of a text so large that sums over two threads differ in their bits (observed with OpenBLAS).
ZIPF = """
import hashlib
import numpy as np
from unmask.text.vectors import TokenSample, initial_vectors
tokens = np.minimum(1500 * np.random.default_rng(0).random(30_000) ** 3, 1499).astype(np.int64)
made = initial_vectors(TokenSample(tokens, np.arange(30_000) // 200), np.zeros(1500, bool), 96, 0)
print(hashlib.sha256(made.tobytes()).hexdigest())
"""


def test_vectors_are_bit_identical_under_load_and_with_more_threads(capsys):
    """With other BLAS threads in this process, and in a new process that loads its libraries again, next to a busy
    thread."""
    stop, seen = threading.Event(), set()
    for threads in (1, 2):
        with threadpool_limits(threads):
            exec(ZIPF, {})
        seen.add(capsys.readouterr().out)

    def work() -> None:
        matrix = np.ones((300, 300))
        while not stop.is_set():
            matrix @ matrix

    busy = threading.Thread(target=work)
    busy.start()
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    try:
        done = subprocess.run(
            [sys.executable, "-c", ZIPF], env=os.environ | dict.fromkeys(names, "2"), capture_output=True, text=True
        )
    finally:
        stop.set()
        busy.join()
    assert done.returncode == 0, done.stderr
    assert {*seen, done.stdout} == {done.stdout}


def test_svd_uses_one_blas_thread(monkeypatch):
    seen = []
    factors = vectors._svd_factors

    def watched(*arguments):
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return factors(*arguments)

    monkeypatch.setattr(vectors, "_svd_factors", watched)
    text = sentences(50)
    with threadpool_limits(2):
        initial_vectors(text, np.zeros(40, bool), 16, 0)
        after = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert seen and set(seen) == {1}
    assert set(after) == {2}, "the thread limit must be restored"


def test_width_above_vocabulary_size_and_unseen_tokens():
    vectors = initial_vectors(sentences(50), np.zeros(40, bool), 128, 0)
    assert np.isfinite(vectors).all()
    assert (np.linalg.norm(vectors, axis=1) > 1).all()  # none is zero: unseen ones are random


def test_large_text_is_sampled_uniformly():
    class Large:
        tokens = np.broadcast_to(np.arange(2, dtype=np.uint16), (SAMPLE_TOKENS, 2)).T.reshape(-1)  # zeros, then ones
        flags = np.zeros(2 * SAMPLE_TOKENS, np.uint8)

    sample = TokenSample.from_split(Large())
    tokens, passages = sample
    assert len(tokens) <= SAMPLE_TOKENS and 0.45 < tokens.mean() < 0.55
    assert (np.diff(passages) >= 0).all()
    assert abs(float(np.exp(log_frequencies(sample, 2)).sum()) - 1) < 1e-5


def test_model_is_initialized_with_the_vectors(store):
    config = preset("bert-tiny", vocab_size=store.tokenizer.size + 3, hidden=32, heads=2)
    model = Model(config, ("mlm",)).init(0)
    initial = model.embedding.detach().clone()
    init_embeddings_from_corpus(model, store, 0)
    size = store.tokenizer.size
    assert torch.equal(model.embedding[size:], initial[size:])  # rows without a token
    assert not model.embedding[config.pad_id].any()
    counts = np.bincount(store.train.tokens, minlength=size)
    bias = model.heads["mlm"].bias.detach()
    assert int(bias.argmax()) == int(counts.argmax())
    assert float(bias[:size].exp().sum()) == near(1.0, 1e-4)
    assert bias[size:].max() <= bias[:size].min()


def test_text_is_read_once(store, monkeypatch):
    calls = []
    from_split = TokenSample.from_split
    monkeypatch.setattr(TokenSample, "from_split", lambda split: calls.append(split) or from_split(split))
    init_embeddings_from_corpus(
        Model(preset("bert-tiny", vocab_size=store.tokenizer.size, hidden=32, heads=2), ("mlm",)).init(0), store, 0
    )
    assert calls == [store.train]
