"""First vectors from counts: alike where the text uses tokens alike, the same on every call, and worth their seconds."""

import numpy as np
import torch

from unmask.data.flags import DOCUMENT
from unmask.data.vectors import SAMPLE, _sample, first_vectors, log_frequencies
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.seeds import generator
from unmask.train.warm import warm


class Text:
    """As much of a Split as counting reads."""

    def __init__(self, tokens, starts):
        self.tokens = np.asarray(tokens, np.uint16)
        self.flags = np.zeros(len(tokens), np.uint8)
        self.flags[starts] = DOCUMENT


def sentences(count: int) -> Text:
    """`5 verb 8` or `6 verb 9`; verbs 10–13 stand only after 5 and 6, nouns 20–23 only as the last of another kind."""
    rng = generator(0, "text")
    rows = []
    for _ in range(count):
        rows.append(
            [5 + rng.integers(2), 10 + rng.integers(4), 8] if rng.random() < 0.5 else [7, 9, 20 + rng.integers(4)]
        )
    return Text(np.concatenate(rows), np.arange(0, 3 * count, 3))


def test_tokens_used_alike_get_vectors_alike():
    special = np.zeros(40, bool)
    special[:5] = True
    vectors = first_vectors(sentences(4000), special, 16, seed=0)
    assert vectors.shape == (40, 16) and vectors.dtype == np.float32
    near = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = near @ near.T
    inside = np.concatenate([alike[10:14, 10:14][np.triu_indices(4, 1)], alike[20:24, 20:24][np.triu_indices(4, 1)]])
    assert inside.min() > 0.25 > 0 > alike[10:14, 20:24].max()  # the half about passages knows nothing here


def test_the_same_on_every_call_and_another_for_another_seed():
    text, special = sentences(500), np.zeros(40, bool)
    first = first_vectors(text, special, 16, 0)
    assert np.array_equal(first, first_vectors(text, special, 16, 0))
    assert not np.array_equal(first, first_vectors(text, special, 16, 1))


def test_more_width_than_tokens_and_tokens_that_do_not_occur():
    vectors = first_vectors(sentences(50), np.zeros(40, bool), 128, 0)
    assert np.isfinite(vectors).all()
    assert (np.linalg.norm(vectors, axis=1) > 1).all()  # none is lost: unseen ones are random


def test_counts_of_a_large_text_come_from_all_of_it():
    class Large:
        tokens = np.broadcast_to(np.arange(2, dtype=np.uint16), (SAMPLE, 2)).T.reshape(-1)  # zeros, then ones
        flags = np.zeros(2 * SAMPLE, np.uint8)

    tokens, passages = _sample(Large())
    assert len(tokens) <= SAMPLE and 0.45 < tokens.mean() < 0.55
    assert (np.diff(passages) >= 0).all()
    assert abs(float(np.exp(log_frequencies(Large(), 2)).sum()) - 1) < 1e-5


def test_a_model_begins_with_them(store):
    config = preset("bert-tiny", vocab_size=store.tokenizer.size + 3, hidden=32, heads=2)
    model = Model(config, ("mlm",)).init(0)
    drawn = model.embedding.detach().clone()
    warm(model, store, 0)
    size = store.tokenizer.size
    assert torch.equal(model.embedding[size:], drawn[size:])  # rows that no token has
    assert not model.embedding[config.pad_id].any()
    counts = np.bincount(store.train.tokens, minlength=size)
    bias = model.heads["mlm"].bias.detach()
    assert int(bias.argmax()) == int(counts.argmax())
    assert torch.isclose(bias[:size].exp().sum(), torch.tensor(1.0), atol=1e-4)
    assert bias[size:].max() <= bias[:size].min()
