"""Sentence pairs: half are true, and false second segments always come from another document."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from unmask.batch import StepConfig
from unmask.errors import UserError
from unmask.recipe import DataRecipe, TokenizerRecipe
from unmask.runs.setup import describe_pairs
from unmask.text.chunks import bert_equivalent_length, greedy_chunks
from unmask.text.corpus import Corpus
from unmask.text.prepare import prepare
from unmask.text.rows import RowDataset
from unmask.text.tokenizer import Tokenizer


def documents_of(sentences_per_document: list[int], words: int = 12, vocabulary: int = 60_000):
    """Build an in-memory split in which a token encodes its document: id = 10 + document."""
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
    split.chunks = cache(lambda length: greedy_chunks(split.sentences, split.document_sentences, length - 3))
    return split


TOKENIZER = Tokenizer.train(["a"], TokenizerRecipe(type="byte"))  # [PAD] 0, [CLS] 2, [SEP] 3


def test_half_are_true_and_negatives_come_from_another_document() -> None:
    rng = np.random.default_rng(0)
    rows = RowDataset(documents_of(rng.integers(1, 30, 400).tolist()), TOKENIZER, seed=1, kind="pairs")
    step_config, count = StepConfig(0, 64), rows.count(64)
    true = seen = 0
    singles_as_negatives = 0
    for epoch in range(40_000 // count + 1):
        for i in range(count):
            e = rows.example(epoch, i, step_config)
            assert len(e.input_ids) <= 64
            assert e.input_ids[0] == 2
            assert e.input_ids[-1] == 3
            middle = int(np.flatnonzero(e.input_ids == 3)[0])
            a, b = set(e.input_ids[1:middle].tolist()), set(e.input_ids[middle + 1 : -1].tolist())
            assert len(a) == len(b) == 1
            assert (e.token_type_ids[: middle + 1] == 0).all()
            assert (e.token_type_ids[middle + 1 :] == 1).all()
            is_next = int(e.labels["nsp"][0]) == 0
            assert (a == b) == is_next, "label and documents disagree"
            true += is_next
            seen += 1
            singles_as_negatives += not is_next and middle > 0
    assert seen >= 40_000
    assert true / seen == pytest.approx(0.5, abs=0.01)


def test_single_sentence_documents_are_only_used_as_negatives() -> None:
    rows = RowDataset(documents_of([1, 6, 1, 8]), TOKENIZER, seed=0, kind="pairs")
    first, second = set(), set()
    for epoch in range(200):
        for i in range(rows.count(64)):
            e = rows.example(epoch, i, StepConfig(0, 64))
            middle = int(np.flatnonzero(e.input_ids == 3)[0])
            first.add(int(e.input_ids[1]))
            second.add(int(e.input_ids[middle + 1]))
    assert first == {11, 13}
    assert second == {10, 11, 12, 13}


def test_single_document_raises() -> None:
    with pytest.raises(UserError, match="two documents"):
        RowDataset(documents_of([20]), TOKENIZER, seed=0, kind="pairs")


def test_only_single_sentence_documents_raises() -> None:
    with pytest.raises(UserError, match="no document has two sentences"):
        RowDataset(documents_of([1, 1, 1]), TOKENIZER, seed=0, kind="pairs").count(64)


def test_stream_rows_cover_the_text_and_start_at_word_boundaries(store) -> None:
    rows = RowDataset(store.train, store.tokenizer, seed=3)
    step_config, count = StepConfig(0, 64), rows.count(64)
    assert count == len(store.train.tokens) // 62
    covered = 0
    for i in range(count):
        e = rows.example(0, i, step_config)
        assert len(e) == 64
        assert e.flags is not None
        assert e.flags[1] & 1, "a row starts inside a word"
        covered += len(e) - 2
    assert covered >= 0.99 * len(store.train.tokens) - 64
    assert any(rows.example(0, 0, step_config).input_ids != rows.example(1, 0, step_config).input_ids)
    assert (
        rows.example(5, 7, step_config).input_ids
        == RowDataset(store.train, store.tokenizer, seed=3).example(5, 7, step_config).input_ids
    ).all()


@pytest.mark.parametrize("kind", ["pairs", "order"])
@pytest.mark.parametrize("template", ["bert", "albert", "roberta", "t5", "gpt2"])
def test_special_tokens_of_a_pair_follow_the_tokenizer_template(template: str, kind: str) -> None:
    """RoBERTa has two separators between the segments and no token types. T5 and GPT-2 start with the text, and
    GPT-2 has no separator."""
    t = Tokenizer.train(["a"], TokenizerRecipe(type="byte", template=template))
    split = documents_of([9] * 40, words=12)
    split.tokens = np.where(split.tokens == 3, t.sep, 200 + split.tokens % 40)  # bytes; none is a special token
    rows = RowDataset(split, t, seed=1, kind=kind)
    max_length = 0
    for i in range(rows.count(64)):
        e = rows.example(0, i, StepConfig(0, 64))
        max_length = max(max_length, len(e))
        text = np.flatnonzero(e.flags)  # special tokens have no flag, and every token here starts a word
        a, b = np.split(text, np.flatnonzero(np.diff(text) > 1) + 1)
        ids, segments = t.build_inputs_with_special_tokens(e.input_ids[a].tolist(), e.input_ids[b].tolist())
        if template == "gpt2":
            ids, segments = [*e.input_ids[a], t.sep, *e.input_ids[b], t.sep], [0] * (len(a) + 1) + [1] * (len(b) + 1)
        assert e.input_ids.tolist() == ids
        assert e.token_type_ids.tolist() == segments
    assert max_length <= 64
    assert bert_equivalent_length(64, t) == {"bert": 64, "albert": 64, "roberta": 63, "t5": 65, "gpt2": 65}[template]
    assert rows.count(64) == len(split.chunks(bert_equivalent_length(64, t)))


def test_chunk_length_depends_on_the_tokenizer_template() -> None:
    """Two sentences with 61 tokens in total fit a row of 64 with BERT's three special tokens, but not with RoBERTa's
    four."""
    split = documents_of([2] * 3 + [3] * 3, words=30)  # sentences of 30, 31 and 32 tokens
    for template, cut in (("bert", 0), ("roberta", 1)):
        t = Tokenizer.train(["a"], TokenizerRecipe(type="byte", template=template))
        rows = RowDataset(split, t, seed=1, kind="order")
        e = rows.example(0, 0, StepConfig(0, 64))
        assert int((e.flags > 0).sum()) == 61 - cut
        assert len(e) == 64


def test_store_indexes_pairs_for_its_tokenizer_template(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"One sentence {n}. And another one. And a third." for n in range(30)))
    tokenizer = Tokenizer.train(["a"], TokenizerRecipe(type="byte", template="roberta"))
    settings = DataRecipe(corpus=[str(text)], eval_fraction=0.2, workers=1)
    store = prepare(Corpus([str(text)], settings), tokenizer, settings, tmp_path / "store", lengths=[64])
    assert (store.path / "train" / "chunks-63.bin").exists()
    before = {file.name for file in (store.path / "train").iterdir()}
    rows = RowDataset(store.train, store.tokenizer, 0, "pairs")
    assert rows.count(64) > 10
    describe_pairs(store, [64])
    assert {file.name for file in (store.path / "train").iterdir()} == before, "the index was rebuilt"
