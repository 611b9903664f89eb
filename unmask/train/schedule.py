"""What happens at which step: learning rate, row length, mask rate. All read the step alone.

A budget (minutes, tokens, steps or epochs) is turned into a `Plan` once, before the first step, and frozen in the run.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from unmask.batch import StepConfig
from unmask.errors import UserError
from unmask.recipe import Recipe, TrainRecipe


@dataclass(frozen=True)
class LengthPhase:
    """Steps of one row length."""

    length: int
    start: int  # first step
    steps: int
    rows: int  # examples used; the last batch may be smaller than the others


@dataclass(frozen=True)
class Plan:
    length_phases: tuple[LengthPhase, ...]
    batch: int
    mask_rate: tuple[float, float]

    @property
    def steps(self) -> int:
        return self.length_phases[-1].start + self.length_phases[-1].steps

    @property
    def tokens(self) -> int:
        return sum(s.rows * s.length for s in self.length_phases)

    def phase(self, step: int) -> StepConfig:
        index = max(i for i, s in enumerate(self.length_phases) if step >= s.start)
        first, last = self.mask_rate
        done = step / max(1, self.steps - 1)
        return StepConfig(index, self.length_phases[index].length, first + (last - first) * done)

    def final_phase(self) -> StepConfig:
        return self.phase(self.steps - 1)

    def rows(self, step: int) -> tuple[int, int]:
        """(first, end) of the step's examples, counted from the start of its stretch."""
        s = self.length_phases[self.phase(step).index]
        first = (step - s.start) * self.batch
        return first, min(first + self.batch, s.rows)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Plan":
        length_phases = tuple(LengthPhase(**s) for s in values["length_phases"])
        return cls(length_phases, values["batch"], tuple(values["mask_rate"]))


def length_schedule(train: TrainRecipe) -> list[tuple[int, float]]:
    """`"64:0.9,128:0.1"` → [(64, 0.9), (128, 0.1)]: row lengths with their fractions of the budget.

    >>> length_schedule(TrainRecipe(max_length="64:0.9,128:0.1"))
    [(64, 0.9), (128, 0.1)]
    """
    try:
        parts = [p.split(":") for p in str(train.max_length).split(",")]
        pairs = [(int(p[0]), float(p[1]) if len(p) > 1 else 1.0) for p in parts]
    except (ValueError, IndexError):
        pairs = []
    if not pairs or abs(sum(s for _, s in pairs) - 1) > 1e-6 or any(n < 8 or share <= 0 for n, share in pairs):
        raise UserError(
            f"train.max_length: {train.max_length!r}",
            expected="a number of at least 8, or LENGTH:FRACTION,LENGTH:FRACTION whose fractions add up to 1, e.g. 128:0.9,512:0.1",
        )
    return pairs


def parse_mask_rate(rate: str | float) -> tuple[float, float]:
    """`"0.3:0.15"` → (0.3, 0.15); a number stands for both ends."""
    ends = [float(x) for x in str(rate).split(":")]
    return ends[0], ends[-1]


def plan(recipe: Recipe, rows_of: Mapping[int, int], seconds_of: Mapping[int, float] | None = None) -> Plan:
    """The budget as steps. Per length: `rows_of` in an epoch, `seconds_of` a step (for minutes only)."""
    train = recipe.train
    batch, start, length_phases = train.batch_size, 0, []
    pairs = length_schedule(train)
    for n, (length, share) in enumerate(pairs):
        if train.epochs is not None:
            rows = max(1, round(train.epochs * share * rows_of[length]))
        else:
            if train.tokens is not None:
                steps = train.tokens * share / (batch * length)
            elif train.minutes is not None:
                assert seconds_of is not None
                steps = train.minutes * 60 * share / seconds_of[length]
            else:
                total = train.steps or DEFAULT_STEPS
                done = sum(s for _, s in pairs[:n])
                steps = round(total * (done + share)) - round(total * done)
            rows = max(1, round(steps)) * batch
        length_phases.append(LengthPhase(length, start, -(-rows // batch), rows))
        start += length_phases[-1].steps
    return Plan(tuple(length_phases), batch, parse_mask_rate(recipe.mlm.mask_rate))


DEFAULT_STEPS = 1000


def learning_rate(step: int, steps: int, train: TrainRecipe) -> float:
    """Factor of the peak learning rate at a step (0-based): a linear warm-up, then the schedule.

    >>> t = TrainRecipe(schedule="linear", warmup=0.1)
    >>> [round(learning_rate(s, 100, t), 2) for s in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.01]
    """
    warmup = int(train.warmup if train.warmup >= 1 else round(train.warmup * steps))
    if step < warmup:
        return (step + 1) / warmup
    left = (steps - step) / max(1, steps - warmup)  # 1 → 0
    if train.schedule == "linear":
        return left
    if train.schedule == "cosine":
        return 0.5 * (1 - math.cos(math.pi * left))
    if train.schedule == "wsd":
        return min(1.0, (steps - step) / max(1, train.wsd_decay_fraction * steps))
    return 1.0
