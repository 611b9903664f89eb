"""What is trained (`Work`), and how many steps its budget is. Minutes are turned into steps once, by timing some; the weights are then put back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from unmask.recipe import BUDGETS, Recipe
from unmask.runs.context import Context
from unmask.train.diagnostics import LossMonitor
from unmask.train.fit import Evaluation
from unmask.train.loader import Loader
from unmask.train.run import Run
from unmask.train.schedule import Plan, plan
from unmask.train.trainer import CALIBRATION_SECONDS, Trainer, seconds_per_step


@dataclass
class Workload:
    """What a run trains, whatever its kind."""

    model: nn.Module
    loader: Loader
    length: str | int  # `train.max_length` of the plan: tokens of a row, or a schedule of them
    rows: Mapping[int, int]  # row length → rows of an epoch
    trainer: Callable[[Plan], Trainer]
    evaluation: Callable[[Trainer], Evaluation | None]
    evaluation_seconds: Callable[[Trainer], float]  # estimated from a part of one
    save: Callable[[Path], None]  # the model, into a folder
    uniform_steps: bool = True  # steps of one length take the same time: the faster ones count, else the mean
    # The last thing before the first step: compiling, and in a run without a checkpoint the first weights. Gives what is said.
    ready: Callable[[Plan, bool], Iterable[str]] = lambda plan, fresh: ()
    notes: Callable[[Plan], Iterable[str]] = lambda plan: ()  # said before the first step
    warnings: Sequence[str] = ()
    health: Callable[[Plan], LossMonitor | None] = lambda plan: None
    models: Callable[[Run], Sequence[Path]] = lambda run: [run.model]  # folders, for the last message


def make_plan(work: Workload, recipe: Recipe, ctx: Context) -> tuple[Plan, Recipe]:
    """The plan, and the recipe with its budget frozen."""
    if recipe.train.minutes is None:
        return plan_budget(recipe, work), recipe
    ctx.console.say("measuring the speed of this machine …")
    found = plan_budget(recipe, work, *ctx.world.broadcast(measure(work, recipe)))
    return found, freeze_budget(recipe, found)


def plan_budget(
    recipe: Recipe, work: Workload, seconds: Mapping[int, float] | None = None, evaluation: float = 0.0
) -> Plan:
    """The plan of a budget. One in minutes needs the seconds of a step per row length; evaluations get half of the time at most."""
    train: dict[str, Any] = {"max_length": work.length}
    if (minutes := recipe.train.minutes) is not None:
        train["minutes"] = max(60 * minutes - recipe.train.num_evals * evaluation, 30 * minutes) / 60
    return plan(recipe.changed(train=train), work.rows, seconds)


def measure(work: Workload, recipe: Recipe, seconds: float = CALIBRATION_SECONDS) -> tuple[dict[int, float], float]:
    """Seconds of a step per row length, and of an evaluation. The weights stay as they are."""
    kept = {name: value.clone() for name, value in work.model.state_dict().items()}
    rough = plan_budget(timing_recipe(recipe), work)
    trainer = work.trainer(rough)
    phases = {s.length: rough.phase(s.start) for s in rough.length_phases}
    steps = {
        n: seconds_per_step(trainer, work.loader, phase, seconds, work.uniform_steps) for n, phase in phases.items()
    }
    evaluation = work.evaluation_seconds(trainer)
    work.model.load_state_dict(kept)
    return steps, evaluation


def timing_recipe(recipe: Recipe) -> Recipe:
    """The recipe with a budget that is only there to be timed."""
    return recipe.changed(train=dict.fromkeys(BUDGETS) | {"steps": 10})


def freeze_budget(recipe: Recipe, found: Plan) -> Recipe:
    """The recipe with so many steps in place of minutes: the same number wherever it is run again."""
    shares = ",".join(f"{s.length}:{s.steps / found.steps:.9g}" for s in found.length_phases)
    length = {"max_length": shares} if len(found.length_phases) > 1 else {}
    return recipe.changed(train={"minutes": None, "steps": found.steps, **length})
