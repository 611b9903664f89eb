"""Length bucketing: each epoch contains every row once, batches stay within a bucket and an epoch, and there is
little padding."""

import numpy as np
import pytest

from unmask.batch import Example, StepConfig
from unmask.objectives.objective import Objective
from unmask.train.loader import LengthBucketedLoader, Loader


class Rows:
    """Rows of given lengths, each filled with its own index."""

    pad = 0

    def __init__(self, lengths: np.ndarray):
        self.lengths = lengths

    def count(self, length: int) -> int:
        return len(self.lengths)

    def example(self, epoch: int, i: int, step_config: StepConfig) -> Example:
        return Example(np.full(self.lengths[i], i + 1))


class Plain(Objective):
    num_static_variants = 1

    def __init__(self) -> None:
        pass

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        return example


LENGTHS = np.random.default_rng(0).gamma(2.0, 20.0, 1003).astype(int) + 2
PHASE = StepConfig(0, 512)


def loader(size: int = 16, seed: int = 0, lengths: np.ndarray = LENGTHS) -> LengthBucketedLoader:
    return LengthBucketedLoader(Rows(lengths), lengths.tolist(), size, Plain(), seed)


def padding(loader: Loader, size: int, batches: int) -> float:
    """Fraction of padding in the first batches."""
    loaded = [loader.batch(n * size, (n + 1) * size, PHASE) for n in range(batches)]
    return sum(int((b.input_ids == 0).sum()) for b in loaded) / sum(b.input_ids.numel() for b in loaded)


@pytest.mark.parametrize("size", [1, 7, 16, 1003, 5000])
def test_every_epoch_contains_every_row_once(size: int) -> None:
    bucketed = loader(size)
    for epoch in range(4):
        located = [bucketed.locate(epoch * 1003 + i, PHASE) for i in range(1003)]
        assert {e for e, _ in located} == {epoch}
        assert sorted(i for _, i in located) == list(range(1003))


@pytest.mark.parametrize("size", [7, 16, 50])
def test_batches_have_one_length_even_if_epochs_end_inside_a_batch(size: int) -> None:
    """1,003 rows are not a multiple of the batch size: if an epoch started where the last one ended, its batches
    would mix two buckets."""
    bucketed = loader(size)
    spread = []
    for epoch in range(3):
        first = -(-epoch * 1003 // size)  # the first batch that belongs to this epoch only
        for n in range(first, (epoch + 1) * 1003 // size):
            lengths = LENGTHS[[bucketed.locate(number, PHASE)[1] for number in range(n * size, (n + 1) * size)]]
            spread.append((lengths.max() - lengths.min()) / lengths.max())
        assert np.median(spread[-(1003 // size) :]) < 0.2, f"epoch {epoch}"


def test_padding_is_small() -> None:
    assert padding(loader(), 16, 62) < 0.06
    assert padding(Loader(Rows(LENGTHS), Plain(), 0), 16, 62) > 0.4


def test_order_depends_only_on_seed_and_epoch() -> None:
    whole, again, other = loader(), loader(), loader(seed=1)
    orders = [whole.order(epoch).tolist() for epoch in range(3)]
    assert [again.order(epoch).tolist() for epoch in (2, 0, 1)] == [orders[2], orders[0], orders[1]]
    assert other.order(0).tolist() != orders[0] and orders[0] != orders[1]
    # the position of a batch does not depend on its length
    means = np.array([LENGTHS[whole.order(0)[n * 16 : n * 16 + 16]].mean() for n in range(62)])
    assert abs(np.corrcoef(means, np.arange(62))[0, 1]) < 0.3


def test_batches_are_random_access() -> None:
    whole = loader()
    batches = [whole.batch(n * 16, n * 16 + 16, PHASE).input_ids for n in range(130)]  # a bit more than two epochs
    for n in (129, 62, 63, 5):
        assert loader().batch(n * 16, n * 16 + 16, PHASE).input_ids.equal(batches[n])


def test_fewer_rows_than_a_batch() -> None:
    small = loader(16, lengths=np.array([5, 9, 3]))
    assert sorted(small.locate(i, PHASE)[1] for i in range(3)) == [0, 1, 2]
    assert small.batch(0, 16, PHASE).input_ids.shape == (16, 9)
