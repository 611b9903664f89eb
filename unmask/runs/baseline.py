"""Baselines of a fine-tuned model: word-count models (tasks/NAME/baseline.py), and the same model without pre-training."""

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
    """Add the scores of each baseline on the test records, or on the dev records if there are none, to results.json."""
    part = prepare(recipe, cache=ctx.cache)
    split, records = ("test", part.sets.test) if part.sets.test else ("dev", part.sets.dev)
    baselines: list[dict[str, Any]] = []
    if records:
        ctx.console.say(f"baseline: {SCRATCH}")
        scratch = run_or_resume(Finetune(), without_pretraining(recipe), run.path / FOLDER, ctx.with_title(SCRATCH))
        if ctx.is_main:
            count_based = count_based_baselines(part.task, part.sets.train, part.sets.dev, records, ctx.console)
            for name, scores in count_based.items():
                if part.metric in scores:
                    ctx.console.say(f"{name}: {part.metric} {scores[part.metric]:.4f}")
                baselines.append({"baseline": name, "split": split, "records": len(records), **scores})
            baselines.append({"baseline": SCRATCH, "split": split, "lr": scratch.get("lr"), **scratch[split]})
    else:
        ctx.console.warn("--baseline: there are no records to evaluate on; give --test or --dev")
    if ctx.is_main:
        run.write_json("results.json", run.results() | {"baselines": baselines})


def without_pretraining(recipe: Recipe) -> Recipe:
    """Return the recipe of a finished run for the same model with random weights, at its own learning rate."""
    disabled = {"num_seeds": 1, "baseline": False, "augment_mlm": 0.0, "teacher": ""}
    train = {"lr": recipe.task.baseline_lr, "layerwise_lr_decay": 1.0}
    return recipe.changed(task={"init": "random", "freeze": "none", **disabled}, train=train)


def count_based_baselines(
    task: Task, train: Sequence[Record], dev: Sequence[Record], test: Sequence[Record], console: Console
) -> dict[str, dict[str, float]]:
    """Return baseline → scores on `test` of the word-count baselines in the task's spec."""
    if not task.SPEC.baseline:
        console.warn(f"--baseline: the task {task.SPEC.name} has no baseline except the model without pre-training")
        return {}
    module, _, function = task.SPEC.baseline.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(task, train, dev, test)
    except ValueError as error:  # raised by scikit-learn for texts without words
        console.warn(f"--baseline: no word-count baseline can be trained on these texts: {error}")
        return {}
