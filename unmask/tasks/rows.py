"""Operations on rows: mask tokens, sample grouped rows, set the weights of windows, and pad scores by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unmask.batch import Example
from unmask.tasks.spec import TaskSpec
from unmask.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "weights"  # label of a row: the weight of each of its targets, if not 1


def mask_tokens(example: Example, tokenizer: Tokenizer, mask_rate: float, rng: np.random.Generator) -> Example:
    """Replace a random fraction of the tokens with [MASK], as regularization for small training sets."""
    if not mask_rate:
        return example
    mask = tokenizer.unk if tokenizer.mask is None else tokenizer.mask
    is_masked = (rng.random(len(example)) < mask_rate) & ~tokenizer.special[example.input_ids]
    return replace(example, input_ids=np.where(is_masked, mask, example.input_ids))


def sample_more(example: Example, count: int, rng: np.random.Generator) -> Example:
    """Keep a random sample of `count` grouped rows, different in each epoch."""
    rows = example.grouped_rows
    if len(rows) <= count:
        return example
    return replace(example, grouped_rows=[rows[n] for n in sorted(rng.permutation(len(rows))[:count])])


def set_row_weights(spec: TaskSpec, encoded: Sequence[Sequence[Example]]) -> None:
    """Weight each row by 1 / (windows of its record), scaled to a mean of 1, so that every record has the same weight."""
    num_rows = sum(map(len, encoded))
    if not spec.training.equal_record_weights or num_rows == len(encoded):
        return
    for windows in encoded:
        for row in windows:
            count = len(row.labels[f"{spec.terms[0]}.targets"])
            weights = np.full(count, num_rows / len(encoded) / len(windows), np.float32)
            row.labels = {**row.labels, WEIGHTS: weights}


def pad_by_record(scores: Tensor, counts: Tensor, fill: float = -np.inf) -> Tensor:
    """Arrange scores (rows,) as (records, max rows of a record), padded with `fill`. `counts`: (records,) rows per record."""
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence(list(scores.split(counts.tolist())), batch_first=True, padding_value=fill)
