"""How many steps a fine-tuning run has. Minutes are turned into steps once, by timing some; the weights are then put back."""

import time
from collections.abc import Callable

from unmask.console import Console
from unmask.errors import UserError
from unmask.recipe import Recipe
from unmask.train import loader as loading
from unmask.train.distributed import World
from unmask.train.schedule import Plan, plan
from unmask.train.trainer import CALIBRATION, Trainer

WARM, FEWEST, MOST = 2, 4, 40  # steps: not timed; timed at least, and at most


def check(recipe: Recipe) -> None:
    if recipe.train.tokens is not None:
        raise UserError(
            f"train.tokens={recipe.train.tokens}: labelled records differ in length, so tokens say little of how often each is seen",
            valid="train.epochs, train.steps or train.minutes",
            fix="--epochs 3",
        )


def make_plan(
    recipe: Recipe,
    longest: int,
    rows: int,
    loader: loading.Loader,
    trainer_of: Callable[[Plan], Trainer],
    look: Callable[[], object],
    world: World,
    console: Console,
) -> tuple[Plan, Recipe]:
    """The plan, and the recipe with its budget frozen. `look`: what an evaluation does, which takes its part of the minutes."""
    minutes = recipe.train.minutes
    if minutes is None:
        return planned(recipe, longest, rows), recipe
    console.say("measuring the speed of this machine …")
    trainer = trainer_of(planned(ten_steps(recipe), longest, rows))
    kept = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    step = seconds_per_step(trainer, loader)
    begun = time.perf_counter()
    look()
    spent = recipe.train.evaluations * (time.perf_counter() - begun)
    trainer.model.load_state_dict(kept)
    steps = world.share(steps_in(minutes, step, spent))
    frozen = recipe.model_copy(update={"train": recipe.train.model_copy(update={"minutes": None, "steps": steps})})
    return planned(frozen, longest, rows), frozen


def ten_steps(recipe: Recipe) -> Recipe:
    """The recipe with a budget that is only there to be timed."""
    train = recipe.train.model_copy(update={"minutes": None, "epochs": None, "steps": 10})
    return recipe.model_copy(update={"train": train})


def planned(recipe: Recipe, longest: int, rows: int) -> Plan:
    """The plan of a budget that is not in minutes, over rows of which the longest has so many tokens."""
    length = max(8, longest)
    train = recipe.train.model_copy(update={"length": length})
    return plan(recipe.model_copy(update={"train": train}), {length: rows})


def steps_in(minutes: float, step: float, spent: float) -> int:
    """Steps of `step` seconds beside the seconds that evaluations take, which get half of the time at most.

    >>> steps_in(1, 0.5, 10), steps_in(1, 0.5, 50)
    (100, 60)
    """
    return max(1, round(max(60 * minutes - spent, 30 * minutes) / step))


def seconds_per_step(trainer: Trainer, loader: loading.Loader, seconds: float = CALIBRATION) -> float:
    """The mean: batches differ in length, so the fastest ones would say too little. The caller restores the weights."""
    phase, rows = trainer.plan.phase(0), trainer.plan.batch
    times: list[float] = []
    more = True
    while more:
        begun, n = time.perf_counter(), len(times)
        trainer.step(0, loading.micro_batches(loader, (n * rows, (n + 1) * rows), phase, trainer.micro, trainer.world))
        times.append(time.perf_counter() - begun)
        timed = len(times) - WARM
        more = trainer.world.share(timed < FEWEST or (sum(times) < seconds and timed < MOST))
    return sum(times[WARM:]) / len(times[WARM:])
