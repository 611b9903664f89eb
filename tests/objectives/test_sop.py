"""SOP rows: both segments are from one document, in their original order half of the time."""

import numpy as np
import pytest
from objectives.test_nsp import TOKENIZER, documents_of

from unmask.batch import StepConfig
from unmask.errors import UserError
from unmask.text.rows import RowDataset


def test_half_are_swapped_and_segments_are_adjacent_in_one_document() -> None:
    rng = np.random.default_rng(0)
    split = documents_of(rng.integers(1, 30, 300).tolist())
    split.documents_of_token = split.tokens.copy()
    split.tokens = np.where(split.tokens == 3, 3, 10 + np.arange(len(split.tokens)))  # a token encodes its position
    rows = RowDataset(split, TOKENIZER, seed=1, kind="order")
    step_config, count, swapped, seen = StepConfig(0, 64), rows.count(64), 0, 0
    for epoch in range(20_000 // count + 1):
        for i in range(count):
            e = rows.example(epoch, i, step_config)
            middle = int(np.flatnonzero(e.input_ids == 3)[0])
            first, second = e.input_ids[1:middle] - 10, e.input_ids[middle + 1 : -1] - 10
            assert len(e) <= 64
            assert len(first)
            assert len(second)
            home = split.documents_of_token[np.concatenate([first, second])]
            assert len(set(home.tolist())) == 1, "the segments are from two documents"
            assert int(e.labels["sop"][0]) == int(first[0] > second[0]), "label and order disagree"
            assert (e.token_type_ids == (np.arange(len(e)) > middle)).all()
            assert "nsp" not in e.labels
            swapped += int(e.labels["sop"][0])
            seen += 1
    assert swapped / seen == pytest.approx(0.5, abs=0.01)


def test_single_document_works_but_single_sentence_raises() -> None:
    assert RowDataset(documents_of([20]), TOKENIZER, seed=0, kind="order").count(64)
    with pytest.raises(UserError, match="no document has two sentences"):
        RowDataset(documents_of([1, 1]), TOKENIZER, seed=0, kind="order").count(64)
