"""What is done to rows: tokens are hidden, further rows drawn, windows weighed; scores stand in a table by record."""

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

WEIGHTS = "weights"  # label of a row: what each of its targets counts, where that is not 1


def mask_tokens(example: Example, tokenizer: Tokenizer, mask_rate: float, rng: np.random.Generator) -> Example:
    """A share of the tokens stands behind [MASK], others each epoch: few labels last longer."""
    if not mask_rate:
        return example
    mask = tokenizer.unk if tokenizer.mask is None else tokenizer.mask
    hidden = (rng.random(len(example)) < mask_rate) & ~tokenizer.special[example.input_ids]
    return replace(example, input_ids=np.where(hidden, mask, example.input_ids))


def sample_more(example: Example, count: int, rng: np.random.Generator) -> Example:
    """With `count` of its further rows, others each epoch."""
    if len(example.grouped_rows) <= count:
        return example
    return replace(
        example,
        grouped_rows=[example.grouped_rows[n] for n in sorted(rng.permutation(len(example.grouped_rows))[:count])],
    )


def set_row_weights(spec: TaskSpec, encoded: Sequence[Sequence[Example]]) -> None:
    """A record of five windows counts as much as one of a single row: each row by 1 / windows, 1 on the mean over all rows."""
    rows = sum(map(len, encoded))
    if not spec.training.equal_record_weights or rows == len(encoded):
        return
    for several in encoded:
        for row in several:
            count = len(row.labels[f"{spec.terms[0]}.targets"])
            weights = np.full(count, rows / len(encoded) / len(several), np.float32)
            row.labels = {**row.labels, WEIGHTS: weights}


def pad_by_record(scores: Tensor, counts: Tensor, fill: float = -np.inf) -> Tensor:
    """(rows,) scores, `counts` (records,) of them each → (records, most rows of one), filled up."""
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence(list(scores.split(counts.tolist())), batch_first=True, padding_value=fill)
