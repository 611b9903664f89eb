import itertools
import math

import pytest

from unmask.errors import UserError
from unmask.recipe import Recipe, TrainRecipe
from unmask.train.schedule import learning_rate, length_schedule, plan


def test_budgets() -> None:
    rows = {64: 1000, 128: 500}
    assert plan(Recipe.build({}, ["train.steps=7"]), rows).steps == 7
    assert plan(Recipe.build({}, ["train.tokens=409600"]), rows).steps == 100  # of 32 × 128
    epochs = plan(Recipe.build({}, ["train.epochs=2"]), rows)
    assert (epochs.steps, epochs.rows(epochs.steps - 1)) == (32, (992, 1000))  # the last batch is smaller
    minutes = plan(Recipe.build({}, ["train.minutes=1"]), rows, {128: 0.5})
    assert minutes.steps == 120


def test_lengths_and_mask_rate_follow_the_step() -> None:
    p = plan(
        Recipe.build({"mlm": {"mask_rate": "0.3:0.15"}}, ["train.steps=10", "train.max_length=64:0.8,128:0.2"]),
        {64: 9, 128: 9},
    )
    assert [p.step_config(s).length for s in range(10)] == [64] * 8 + [128] * 2
    assert p.step_config(0).mask_rate == pytest.approx(0.3)
    assert p.step_config(9).mask_rate == pytest.approx(0.15)
    assert p.step_config(8).index == 1
    assert p.rows(8) == (0, 32)  # examples are counted from 0 in each phase
    assert type(p).from_dict(p.as_dict()) == p


@pytest.mark.parametrize("bad", ["64:0.5", "x", "64:0.5,128:0.6", "4"])
def test_invalid_lengths_raise(bad: str) -> None:
    with pytest.raises(UserError, match=r"train\.max_length"):
        length_schedule(TrainRecipe(max_length=bad))


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd", "constant"])
def test_learning_rate(schedule: str) -> None:
    t = TrainRecipe(schedule=schedule, warmup=10)
    values = [learning_rate(s, 100, t) for s in range(100)]
    assert values[:10] == pytest.approx([(s + 1) / 10 for s in range(10)])
    assert values[10] == pytest.approx(1, abs=0.02)
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(values[10:]))
    assert (values[-1] < 0.06) == (schedule != "constant")
    falling = {"linear": 21 / 90, "cosine": 0.5 * (1 - math.cos(math.pi * 21 / 90))}
    assert values[79] == pytest.approx(falling.get(schedule, 1.0), abs=0.02)
