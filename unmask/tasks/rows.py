"""What is done to rows: texts that are longer are cut to fit, or read in windows; tokens are hidden, further rows drawn, windows weighed;
scores stand in a table by record.
"""

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


def hide(example: Example, tokenizer: Tokenizer, share: float, rng: np.random.Generator) -> Example:
    """A share of the tokens stands behind [MASK], others each epoch: few labels last longer."""
    if not share:
        return example
    mask = tokenizer.unk if tokenizer.mask is None else tokenizer.mask
    hidden = (rng.random(len(example)) < share) & ~tokenizer.special[example.ids]
    return replace(example, ids=np.where(hidden, mask, example.ids))


def draw(example: Example, count: int, rng: np.random.Generator) -> Example:
    """With `count` of its further rows, others each epoch."""
    if len(example.more) <= count:
        return example
    return replace(example, more=[example.more[n] for n in sorted(rng.permutation(len(example.more))[:count])])


def even_out(spec: TaskSpec, encoded: Sequence[Sequence[Example]]) -> None:
    """A record of five windows counts as much as one of a single row: each row by 1 / windows, 1 on the mean over all rows."""
    rows = sum(map(len, encoded))
    if not spec.training.equal_windows or rows == len(encoded):
        return
    for several in encoded:
        for row in several:
            count = len(row.labels[f"{spec.terms[0]}.targets"])
            weights = np.full(count, rows / len(encoded) / len(several), np.float32)
            row.labels = {**row.labels, WEIGHTS: weights}


def fit_pair(a: list[int], b: list[int], room: int) -> tuple[list[int], list[int]]:
    """Both, cut at the end until they fit; the longer one gives way first.

    >>> fit_pair([1, 2, 3, 4, 5], [6, 7], 5)
    ([1, 2, 3], [6, 7])
    >>> fit_pair([1, 2, 3, 4], [5, 6, 7, 8], 5)
    ([1, 2, 3], [5, 6])
    """
    keep_b = min(len(b), max(room // 2, room - len(a)))
    return a[: room - keep_b], b[:keep_b]


def windows(ids: list[int], size: int) -> list[list[int]]:
    """As few windows of `size` as cover everything, evenly spread.

    >>> windows([1, 2, 3, 4, 5], 3)
    [[1, 2, 3], [3, 4, 5]]
    >>> windows([1, 2], 3)
    [[1, 2]]
    """
    count = -(-len(ids) // size)
    if count < 2:
        return [ids]
    starts = [round(n * (len(ids) - size) / (count - 1)) for n in range(count)]
    return [ids[start : start + size] for start in starts]


def by_record(scores: Tensor, counts: Tensor, fill: float = -np.inf) -> Tensor:
    """(rows,) scores, `counts` (records,) of them each → (records, most rows of one), filled up."""
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence(list(scores.split(counts.tolist())), batch_first=True, padding_value=fill)
