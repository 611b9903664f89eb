"""Schedules of learning rate, row length and mask rate. Each is a function of the step alone.

A budget (minutes, tokens, steps or epochs) is converted to a `Plan` once, before the first step, and saved in the run folder.
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
    """Consecutive steps with the same row length."""

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

    def step_config(self, step: int) -> StepConfig:
        index = max(i for i, s in enumerate(self.length_phases) if step >= s.start)
        first, last = self.mask_rate
        progress = step / max(1, self.steps - 1)
        return StepConfig(index, self.length_phases[index].length, first + (last - first) * progress)

    def final_step_config(self) -> StepConfig:
        return self.step_config(self.steps - 1)

    def rows(self, step: int) -> tuple[int, int]:
        """Return (first, end) of the step's examples, counted from the start of its length phase."""
        length_phase = self.length_phases[self.step_config(step).index]
        first = (step - length_phase.start) * self.batch
        return first, min(first + self.batch, length_phase.rows)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Plan":
        length_phases = tuple(LengthPhase(**s) for s in values["length_phases"])
        return cls(length_phases, values["batch"], tuple(values["mask_rate"]))


def length_schedule(train: TrainRecipe) -> list[tuple[int, float]]:
    """Return the row lengths of `train.max_length` with their fractions of the budget.

    >>> length_schedule(TrainRecipe(max_length="64:0.9,128:0.1"))
    [(64, 0.9), (128, 0.1)]
    """
    try:
        parts = [p.split(":") for p in str(train.max_length).split(",")]
        pairs = [(int(p[0]), float(p[1]) if len(p) > 1 else 1.0) for p in parts]
    except (ValueError, IndexError):
        pairs = []
    if not pairs or abs(sum(s for _, s in pairs) - 1) > 1e-6 or any(n < 8 or fraction <= 0 for n, fraction in pairs):
        raise UserError(
            f"train.max_length={train.max_length!r} is not a valid length schedule",
            expected="a number of at least 8, or LENGTH:FRACTION,LENGTH:FRACTION whose fractions add up to 1, e.g. 128:0.9,512:0.1",
            hint="--max-length 128",
        )
    return pairs


def parse_mask_rate(rate: str | float) -> tuple[float, float]:
    """Return the mask rate of the first and of the last step.

    >>> parse_mask_rate("0.3:0.15"), parse_mask_rate(0.15)
    ((0.3, 0.15), (0.15, 0.15))
    """
    ends = [float(x) for x in str(rate).split(":")]
    return ends[0], ends[-1]


DEFAULT_STEPS = 1000


def plan(
    recipe: Recipe, rows_per_epoch: Mapping[int, int], seconds_per_step: Mapping[int, float] | None = None
) -> Plan:
    """Convert the budget to steps. Both mappings are by row length; a budget in minutes needs `seconds_per_step`."""
    train = recipe.train
    batch, start, length_phases = train.batch_size, 0, []
    pairs = length_schedule(train)
    for n, (length, fraction) in enumerate(pairs):
        if train.epochs is not None:
            rows = max(1, round(train.epochs * fraction * rows_per_epoch[length]))
        else:
            if train.tokens is not None:
                steps = train.tokens * fraction / (batch * length)
            elif train.minutes is not None:
                assert seconds_per_step is not None
                steps = train.minutes * 60 * fraction / seconds_per_step[length]
            else:
                total = train.steps or DEFAULT_STEPS
                before = sum(s for _, s in pairs[:n])
                steps = round(total * (before + fraction)) - round(total * before)
            rows = max(1, round(steps)) * batch
        length_phases.append(LengthPhase(length, start, -(-rows // batch), rows))
        start += length_phases[-1].steps
    return Plan(tuple(length_phases), batch, parse_mask_rate(recipe.mlm.mask_rate))


def learning_rate(step: int, steps: int, train: TrainRecipe) -> float:
    """Return the learning rate at a step (0-based) as a factor of its peak: linear warm-up, then the schedule.

    >>> t = TrainRecipe(schedule="linear", warmup=0.1)
    >>> [round(learning_rate(s, 100, t), 2) for s in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.01]
    """
    warmup = int(train.warmup if train.warmup >= 1 else round(train.warmup * steps))
    if step < warmup:
        return (step + 1) / warmup
    remaining = (steps - step) / max(1, steps - warmup)  # 1 → 0
    if train.schedule == "linear":
        return remaining
    if train.schedule == "cosine":
        return 0.5 * (1 - math.cos(math.pi * remaining))
    if train.schedule == "wsd":
        return min(1.0, (steps - step) / max(1, train.wsd_decay_fraction * steps))
    return 1.0
