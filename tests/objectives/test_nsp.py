"""P5: pairs of sentences, half true, the false halves always from another document."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from unmask.batch import Phase
from unmask.data.chunks import greedy
from unmask.data.rows import Rows
from unmask.errors import UserError


def documents_of(sentences_per_document: list[int], words: int = 12, vocabulary: int = 60_000):
    """A split in memory in which a token says which document it is from: id = 10 + document."""
    tokens, flags, starts, bounds, sentences = [], [], [0], [0], []
    for number, count in enumerate(sentences_per_document):
        for s in range(count):
            sentences.append(len(tokens))
            tokens += [10 + number] * (words + s % 5)
            flags += [3 if s else 7] + [1] * (words + s % 5 - 1)
        tokens.append(3)
        flags.append(0)
        starts.append(len(tokens))
        bounds.append(len(sentences))
    split = SimpleNamespace(
        tokens=np.array(tokens),
        flags=np.array(flags, np.uint8),
        documents=np.array(starts),
        sentences=np.array([*sentences, len(tokens)]),
        document_sentences=np.array(bounds),
    )
    ends = split.sentences[1:].copy()
    ends[split.document_sentences[1:] - 1] -= 1
    split.sentence_end = lambda s: int(ends[s])
    split.chunks = cache(lambda length: greedy(split.sentences, split.document_sentences, length - 3))
    return split


TOKENIZER = SimpleNamespace(cls=2, sep=3, pad=0)


def test_half_are_true_and_false_ones_are_from_another_document() -> None:
    rng = np.random.default_rng(0)
    rows = Rows(documents_of(rng.integers(1, 30, 400).tolist()), TOKENIZER, seed=1, kind="pairs")
    phase, count = Phase(0, 64), rows.count(64)
    true = seen = 0
    singles_as_negatives = 0
    for epoch in range(40_000 // count + 1):
        for i in range(count):
            e = rows.example(epoch, i, phase)
            assert len(e.ids) <= 64
            assert e.ids[0] == 2
            assert e.ids[-1] == 3
            middle = int(np.flatnonzero(e.ids == 3)[0])
            a, b = set(e.ids[1:middle].tolist()), set(e.ids[middle + 1 : -1].tolist())
            assert len(a) == len(b) == 1
            assert (e.segments[: middle + 1] == 0).all()
            assert (e.segments[middle + 1 :] == 1).all()
            is_next = int(e.labels["nsp"][0]) == 0
            assert (a == b) == is_next, "label and documents disagree"
            true += is_next
            seen += 1
            singles_as_negatives += not is_next and middle > 0
    assert seen >= 40_000
    assert true / seen == pytest.approx(0.5, abs=0.01)


def test_one_sentence_documents_serve_only_as_negatives() -> None:
    rows = Rows(documents_of([1, 6, 1, 8]), TOKENIZER, seed=0, kind="pairs")
    first, second = set(), set()
    for epoch in range(200):
        for i in range(rows.count(64)):
            e = rows.example(epoch, i, Phase(0, 64))
            middle = int(np.flatnonzero(e.ids == 3)[0])
            first.add(int(e.ids[1]))
            second.add(int(e.ids[middle + 1]))
    assert first == {11, 13}
    assert second == {10, 11, 12, 13}


def test_one_document_is_refused() -> None:
    with pytest.raises(UserError, match="two documents"):
        Rows(documents_of([20]), TOKENIZER, seed=0, kind="pairs")


def test_only_one_sentence_documents_is_refused() -> None:
    with pytest.raises(UserError, match="no document has two sentences"):
        Rows(documents_of([1, 1, 1]), TOKENIZER, seed=0, kind="pairs").count(64)


def test_stream_rows_cover_the_text_and_begin_at_words(store) -> None:
    rows = Rows(store.train, store.tokenizer, seed=3)
    phase, count = Phase(0, 64), rows.count(64)
    assert count == len(store.train.tokens) // 62
    covered = 0
    for i in range(count):
        e = rows.example(0, i, phase)
        assert len(e) == 64
        assert e.flags is not None
        assert e.flags[1] & 1, "a row begins inside a word"
        covered += len(e) - 2
    assert covered >= 0.99 * len(store.train.tokens) - 64
    assert any(rows.example(0, 0, phase).ids != rows.example(1, 0, phase).ids)
    assert (rows.example(5, 7, phase).ids == Rows(store.train, store.tokenizer, seed=3).example(5, 7, phase).ids).all()
