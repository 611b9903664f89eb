"""Batches by address: micro-batch m of step s is a pure function, so a thread can make it ahead of time, a resumed run
starts in the middle at no cost, and any number of processes sees the same global batch.
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
    """What a loader reads: `text.rows.Rows`, or a task's records."""

    pad: int

    def count(self, length: int) -> int: ...
    def example(self, epoch: int, i: int, phase: StepConfig) -> Example: ...


class Loader:
    """Rows of one split, corrupted by one objective."""

    def __init__(self, rows: RowDataset, objective: Objective, seed: int):
        self.rows, self.objective, self.seed = rows, objective, seed

    def example(self, number: int, phase: StepConfig) -> Example:
        """Example `number` of a phase, counted over epochs."""
        return self.before_and_after(number, phase)[1]

    def before_and_after(self, number: int, phase: StepConfig) -> tuple[Example, Example]:
        """The same before and after the objective's corruption."""
        epoch, i = self.locate(number, phase)
        version = epoch % self.objective.num_static_variants if self.objective.num_static_variants else epoch
        example = self.rows.example(version, i, phase)
        rng = generator(self.seed, "mask", version, i, phase.index)
        return example, self.objective.corrupt(example, rng, phase)

    def locate(self, number: int, phase: StepConfig) -> tuple[int, int]:
        """The epoch, and the row that stands there in its order."""
        count = self.rows.count(phase.length)
        epoch, i = divmod(number, count)
        return epoch, permute(i, count, stable_seed(self.seed, "order", epoch, phase.index))

    def count(self, length: int) -> int:
        """Examples in an epoch."""
        return self.rows.count(length)

    def batch(self, first: int, end: int, phase: StepConfig) -> Batch:
        return collate((self.example(n, phase) for n in range(first, end)), self.rows.pad)


POOL_BATCHES = 32  # batches whose rows are sorted by length together


class LengthBucketedLoader(Loader):
    """Rows of like length in one batch, so that little is padding; which ones, and in which order, is drawn each epoch."""

    def __init__(
        self,
        rows: RowDataset,
        lengths: Sequence[int],
        batch: int,
        objective: Objective,
        seed: int,
        tokens: np.ndarray | None = None,
    ):
        """`tokens`: all that the rows can hold, where that is known."""
        super().__init__(rows, objective, seed)
        self.lengths, self.size, self.tokens = np.asarray(lengths), batch, tokens
        self._orders: dict[int, np.ndarray] = {}

    def locate(self, number: int, phase: StepConfig) -> tuple[int, int]:
        epoch, i = divmod(number, len(self.lengths))
        return epoch, int(self.order(epoch)[i])

    def order(self, epoch: int) -> np.ndarray:
        """An epoch's rows as they are read. The first few end the batch that the epoch before could not fill."""
        if epoch not in self._orders:
            rng = generator(self.seed, "order", epoch)
            drawn = rng.permutation(len(self.lengths))
            first = min(-epoch * len(drawn) % self.size, len(drawn))
            rest, pool = drawn[first:], POOL_BATCHES * self.size
            pools = [rest[a : a + pool] for a in range(0, len(rest), pool)]
            ordered = np.concatenate([p[np.argsort(self.lengths[p], kind="stable")] for p in pools]) if pools else rest
            whole = len(ordered) // self.size * self.size
            batches = ordered[:whole].reshape(-1, self.size)
            order = np.concatenate([drawn[:first], rng.permutation(batches).ravel(), ordered[whole:]])
            self._orders = {e: o for e, o in self._orders.items() if e >= epoch - 1} | {epoch: order}
        return self._orders[epoch]


def micro_ranges(first: int, end: int, size: int) -> list[tuple[int, int]]:
    """A batch's examples cut into micro-batches; the last may be smaller.

    >>> micro_ranges(30, 40, 4)
    [(30, 34), (34, 38), (38, 40)]
    """
    return [(a, min(a + size, end)) for a in range(first, end, size)]


def micro_batch_rows(batch: int, micro_batch: int, world: int) -> int:
    """Rows per forward pass: as asked for, but small enough that every process has work."""
    return min(micro_batch or batch, -(-batch // world))


def micro_batches(
    loader: Loader, rows: tuple[int, int], phase: StepConfig, micro: int, world: World
) -> list[tuple[int, Batch]]:
    """This rank's (number, micro-batch) pairs of a batch whose rows are `rows` (first, end)."""
    ranges = micro_ranges(*rows, micro)
    return [(m, loader.batch(*ranges[m], phase)) for m in world.micro_batches(len(ranges))]


def steps(
    loader: Loader, plan: Plan, world: World, micro: int, start: int, prefetch: int
) -> Iterator[tuple[int, list[tuple[int, Batch]]]]:
    """From step `start` on: (step, this rank's (number, micro-batch) pairs), `ahead` steps made in a thread."""

    def make(step: int) -> tuple[int, list[tuple[int, Batch]]]:
        return step, micro_batches(loader, plan.rows(step), plan.phase(step), micro, world)

    with ThreadPoolExecutor(1, thread_name_prefix="unmask-batches") as pool:
        waiting: deque[Future] = deque()
        try:
            for step in range(start, plan.steps):
                waiting.append(pool.submit(make, step))
                if len(waiting) >= prefetch:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for made in waiting:
                made.cancel()
