"""The workload of a run, and the conversion of its budget to steps.

A budget in minutes is converted once, by timing some steps. The weights are restored afterwards. The precision is chosen before that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from unmask.recipe import BUDGETS, Recipe, TrainRecipe
from unmask.runs.context import Context
from unmask.train import precision
from unmask.train.diagnostics import LossMonitor
from unmask.train.fit import Evaluation
from unmask.train.loader import Loader
from unmask.train.run import Run
from unmask.train.schedule import Plan
from unmask.train.schedule import plan as plan_steps
from unmask.train.trainer import CALIBRATION_SECONDS, Trainer, seconds_per_step


@dataclass
class Workload:
    """What a run trains, independent of its kind."""

    model: nn.Module
    loader: Loader
    length: str | int  # `train.max_length` of the plan: tokens per row, or a length schedule
    rows: Mapping[int, int]  # row length → rows per epoch
    trainer: Callable[[Plan, TrainRecipe], Trainer]
    evaluation: Callable[[Trainer], Evaluation | None]
    evaluation_seconds: Callable[[Trainer], float]  # estimated from part of an evaluation
    save: Callable[[Path], None]  # saves the model in a folder
    uniform_steps: bool = True  # whether all steps of one row length take the same time
    # Called before the first step with (plan, is_new_run): compiles the model, initializes a new one, and yields messages.
    before_training: Callable[[Plan, bool], Iterable[str]] = lambda plan, is_new_run: ()
    notes: Callable[[Plan], Iterable[str]] = lambda plan: ()  # printed before the first step
    warnings: Sequence[str] = ()
    monitor: Callable[[Plan], LossMonitor | None] = lambda plan: None
    models: Callable[[Run], Sequence[Path]] = lambda run: [run.model]  # folders, for the last message


def make_plan(work: Workload, recipe: Recipe, ctx: Context) -> tuple[Plan, Recipe]:
    """Return the plan, and the recipe with the chosen precision and with a budget in minutes replaced by steps."""
    recipe = choose_precision(work, recipe, ctx)
    if recipe.train.minutes is None:
        return plan_budget(recipe, work), recipe
    ctx.console.say("measuring training speed …")
    plan = plan_budget(recipe, work, *ctx.world.broadcast(measure(work, recipe)))
    return plan, freeze_budget(recipe, plan)


def choose_precision(work: Workload, recipe: Recipe, ctx: Context) -> Recipe:
    """Return the recipe with precision `auto` replaced by the result of a trial, if the run is long enough for one."""
    plan = plan_budget(recipe if recipe.train.minutes is None else timing_recipe(recipe), work)

    def try_both() -> precision.Choice | None:
        if not precision.needs_trial(recipe, work.model, work.loader, plan):  # type: ignore[arg-type]
            return None
        ctx.console.say("comparing the speed of fp32 and bf16 …")
        return precision.choose_by_trial(work.trainer(plan, recipe.train), work.loader, recipe)

    choice = ctx.on_main(try_both)
    if not choice:
        return recipe
    ctx.console.say(choice.text)
    return recipe.changed(train={"precision": choice.precision})


def plan_budget(
    recipe: Recipe, work: Workload, seconds: Mapping[int, float] | None = None, evaluation: float = 0.0
) -> Plan:
    """Return the plan of a budget.

    A budget in minutes needs the seconds per step by row length, and those of an evaluation. Evaluations get at most half of it.
    """
    train: dict[str, Any] = {"max_length": work.length}
    if (minutes := recipe.train.minutes) is not None:
        train["minutes"] = max(60 * minutes - recipe.train.num_evals * evaluation, 30 * minutes) / 60
    return plan_steps(recipe.changed(train=train), work.rows, seconds)


def measure(work: Workload, recipe: Recipe, seconds: float = CALIBRATION_SECONDS) -> tuple[dict[int, float], float]:
    """Measure the seconds per step by row length, and those of an evaluation. The weights do not change."""
    weights = {name: value.clone() for name, value in work.model.state_dict().items()}
    plan = plan_budget(timing_recipe(recipe), work)
    trainer = work.trainer(plan, recipe.train)
    steps = {
        s.length: seconds_per_step(trainer, work.loader, plan.step_config(s.start), seconds, work.uniform_steps)
        for s in plan.length_phases
    }
    evaluation = work.evaluation_seconds(trainer)
    work.model.load_state_dict(weights)
    return steps, evaluation


def timing_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe with a budget of ten steps, for timing."""
    return recipe.changed(train=dict.fromkeys(BUDGETS) | {"steps": 10})


def freeze_budget(recipe: Recipe, plan: Plan) -> Recipe:
    """Return the recipe with steps instead of minutes, so that it means the same on every machine."""
    schedule = ",".join(f"{s.length}:{s.steps / plan.steps:.9g}" for s in plan.length_phases)
    length = {"max_length": schedule} if len(plan.length_phases) > 1 else {}
    return recipe.changed(train={"minutes": None, "steps": plan.steps, **length})
