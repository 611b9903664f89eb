"""Loaders with random access: every micro-batch is a pure function of the seed, the step and its index.

So a thread can prefetch batches, a resumed run starts in the middle at no cost, and any number of processes sees the same
global batch.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np

from unmask.batch import Batch, Example, StepConfig, collate
from unmask.objectives.objective import Objective
from unmask.seeds import generator, permute, stable_seed
from unmask.train.distributed import World
from unmask.train.schedule import Plan


class RowDataset(Protocol):
    """The data source of a loader: `text.rows.RowDataset`, or the records of a task."""

    pad: int

    def count(self, length: int) -> int: ...
    def example(self, epoch: int, i: int, step_config: StepConfig) -> Example: ...


class Loader:
    """Rows of one split, corrupted by one objective."""

    def __init__(self, rows: RowDataset, objective: Objective, seed: int):
        self.rows, self.objective, self.seed = rows, objective, seed

    def example(self, number: int, step_config: StepConfig) -> Example:
        """Return example number `number`, counted over epochs."""
        return self.before_and_after(number, step_config)[1]

    def before_and_after(self, number: int, step_config: StepConfig) -> tuple[Example, Example]:
        """Return the example before and after the objective's corruption."""
        epoch, i = self.locate(number, step_config)
        version = epoch % self.objective.num_static_variants if self.objective.num_static_variants else epoch
        example = self.rows.example(version, i, step_config)
        rng = generator(self.seed, "mask", version, i, step_config.index)
        return example, self.objective.corrupt(example, rng, step_config)

    def locate(self, number: int, step_config: StepConfig) -> tuple[int, int]:
        """Return the epoch and the row of an example, given the epoch's shuffled order."""
        count = self.rows.count(step_config.length)
        epoch, i = divmod(number, count)
        return epoch, permute(i, count, stable_seed(self.seed, "order", epoch, step_config.index))

    def count(self, length: int) -> int:
        """Return the number of examples in an epoch."""
        return self.rows.count(length)

    def batch(self, first: int, end: int, step_config: StepConfig) -> Batch:
        return collate((self.example(n, step_config) for n in range(first, end)), self.rows.pad)


POOL_BATCHES = 32  # batches whose rows are sorted by length together


class LengthBucketedLoader(Loader):
    """Batches rows of similar length, which keeps padding low. Batches and their order are shuffled every epoch."""

    def __init__(
        self,
        rows: RowDataset,
        lengths: Sequence[int],
        batch: int,
        objective: Objective,
        seed: int,
        tokens: np.ndarray | None = None,
    ):
        """`tokens`: ids of all tokens that occur in the rows, if known."""
        super().__init__(rows, objective, seed)
        self.lengths, self.size, self.tokens = np.asarray(lengths), batch, tokens
        self._orders: dict[int, np.ndarray] = {}

    def locate(self, number: int, step_config: StepConfig) -> tuple[int, int]:
        epoch, i = divmod(number, len(self.lengths))
        return epoch, int(self.order(epoch)[i])

    def order(self, epoch: int) -> np.ndarray:
        """Return the order of an epoch's rows. Its first rows complete the last batch of the previous epoch."""
        if epoch not in self._orders:
            rng = generator(self.seed, "order", epoch)
            shuffled = rng.permutation(len(self.lengths))
            first = min(-epoch * len(shuffled) % self.size, len(shuffled))
            rest, pool = shuffled[first:], POOL_BATCHES * self.size
            pools = [rest[a : a + pool] for a in range(0, len(rest), pool)]
            ordered = np.concatenate([p[np.argsort(self.lengths[p], kind="stable")] for p in pools]) if pools else rest
            full = len(ordered) // self.size * self.size  # rows in full batches
            batches = ordered[:full].reshape(-1, self.size)
            order = np.concatenate([shuffled[:first], rng.permutation(batches).ravel(), ordered[full:]])
            self._orders = {e: o for e, o in self._orders.items() if e >= epoch - 1} | {epoch: order}
        return self._orders[epoch]


def micro_ranges(first: int, end: int, size: int) -> list[tuple[int, int]]:
    """Split the examples of a batch into micro-batches. The last one may be smaller.

    >>> micro_ranges(30, 40, 4)
    [(30, 34), (34, 38), (38, 40)]
    """
    return [(a, min(a + size, end)) for a in range(first, end, size)]


def micro_batch_rows(batch: int, micro_batch: int, world: int) -> int:
    """Return the rows per forward pass: `micro_batch` if set, but small enough that every process has work."""
    return min(micro_batch or batch, -(-batch // world))


def micro_batches(
    loader: Loader, rows: tuple[int, int], step_config: StepConfig, micro: int, world: World
) -> list[tuple[int, Batch]]:
    """Return this rank's (index, micro-batch) pairs of the batch with rows `rows` = (first, end)."""
    ranges = micro_ranges(*rows, micro)
    return [(m, loader.batch(*ranges[m], step_config)) for m in world.micro_batches(len(ranges))]


def steps(
    loader: Loader, plan: Plan, world: World, micro: int, start: int, prefetch: int
) -> Iterator[tuple[int, list[tuple[int, Batch]]]]:
    """Yield (step, this rank's (index, micro-batch) pairs) from step `start` on. A thread builds `prefetch` steps ahead."""

    def make(step: int) -> tuple[int, list[tuple[int, Batch]]]:
        return step, micro_batches(loader, plan.rows(step), plan.step_config(step), micro, world)

    with ThreadPoolExecutor(1, thread_name_prefix="unmask-batches") as pool:
        pending: deque[Future] = deque()
        try:
            for step in range(start, plan.steps):
                pending.append(pool.submit(make, step))
                if len(pending) >= prefetch:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
