"""What a fine-tuned model has to beat on the same records: counted words (tasks/NAME/baseline.py), and the same model without pre-training."""

import importlib
from collections.abc import Sequence
from typing import Any

from unmask.console import Console
from unmask.labels.records import Record
from unmask.recipe import Recipe
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import run_or_resume
from unmask.runs.part import prepare
from unmask.tasks.task import Task
from unmask.train.run import Run

SCRATCH, FOLDER = "without pre-training", "without-pretraining"


def add_baselines(recipe: Recipe, run: Run, ctx: Context) -> None:
    """The results of a run with what each baseline reaches on the test records, or on the dev records where there are none."""
    part = prepare(recipe, cache=ctx.cache)
    name, judged = ("test", part.sets.test) if part.sets.test else ("dev", part.sets.dev)
    found: list[dict[str, Any]] = []
    if judged:
        drawn = run_or_resume(Finetune(), without_pretraining(recipe), run.path / FOLDER, ctx.with_title(SCRATCH))
        if ctx.is_main:
            for baseline, scores in count_based_baselines(
                part.task, part.sets.train, part.sets.dev, judged, ctx.console
            ).items():
                if part.metric in scores:
                    ctx.console.say(f"{baseline}: {part.metric} {scores[part.metric]:.4f}")
                found.append({"baseline": baseline, "split": name, "records": len(judged), **scores})
            found.append({"baseline": SCRATCH, "split": name, "lr": drawn.get("lr"), **drawn[name]})
    else:
        ctx.console.warn("--baseline: no records to judge by; give --test or --dev")
    if ctx.is_main:
        run.write_json("results.json", run.results() | {"baselines": found})


def without_pretraining(recipe: Recipe) -> Recipe:
    """The recipe of a finished run for the same model with drawn weights, at a learning rate of its own."""
    alone = {"num_seeds": 1, "baseline": False, "augment_mlm": 0.0, "teacher": ""}
    train = {"lr": recipe.task.baseline_lr, "layerwise_lr_decay": 1.0}
    return recipe.changed(task={"init": "random", "freeze": "none", **alone}, train=train)


def count_based_baselines(
    task: Task, train: Sequence[Record], dev: Sequence[Record], judged: Sequence[Record], console: Console
) -> dict[str, dict[str, float]]:
    """Baseline → its scores: those that the task's spec names, made of counted words."""
    if not task.SPEC.baseline:
        console.warn(f"--baseline: the task {task.SPEC.name} names none beside the model without pre-training")
        return {}
    module, _, function = task.SPEC.baseline.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(task, train, dev, judged)
    except ValueError as error:  # scikit-learn's, of texts without a single word
        console.warn(f"--baseline: none can be counted from these texts: {error}")
        return {}
