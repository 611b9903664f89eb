"""What a fine-tuned model has to beat on the same records: counted words (tasks/NAME/baseline.py), and the same model without pre-training."""

import importlib
import shutil
from collections.abc import Sequence
from typing import Any

from unmask.console import Console
from unmask.labels.records import Record
from unmask.recipe import Recipe
from unmask.runs import finetune
from unmask.tasks.task import Task
from unmask.train import checkpoint
from unmask.train.distributed import World
from unmask.train.run import Run

SCRATCH = "without pre-training"


def scratch(recipe: Recipe, folder: Run, world: World, console: Console) -> dict[str, Any]:
    """The results of the same model with drawn weights, in a folder of its own; a finished one is not done again."""
    if (folder.path / "results.json").exists():
        return folder.read_json("results.json")
    if (folder.path / "learnt.json").exists() and checkpoint.latest(folder.checkpoints, console.warn):
        return finetune.resume(folder, world, console)
    task = recipe.task.model_copy(
        update={"freeze": "none", "seeds": 1, "baseline": False, "augment": "", "teacher": ""}
    )
    begun = finetune.prepare(recipe.model_copy(update={"task": task}))
    own = begun.recipe.train.model_copy(update={"lr": begun.recipe.task.baseline_lr, "layer_decay": 1.0})
    job = finetune.Job(begun.recipe.model_copy(update={"train": own}), begun.task, begun.model, begun.sets, [])
    job.model.init(recipe.seed)
    if world.main:  # what was begun without a checkpoint is begun again
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.path.mkdir(parents=True)
    world.barrier()
    return finetune.run_job(job, folder, world, console, SCRATCH)


def baselines(recipe: Recipe, run: Run, world: World, console: Console) -> list[dict[str, Any]]:
    """What each baseline reaches on the test records, or on the dev records where there are none; a dict per baseline."""
    job = finetune.prepare(recipe)
    name, judged = ("test", job.sets.test) if job.sets.test else ("dev", job.sets.dev)
    if not judged:
        console.warn("--baseline: no records to judge by; give --test or --dev")
        return []
    found: list[dict[str, Any]] = []
    if world.main:
        for baseline, scores in counted(job.task, job.sets.train, job.sets.dev, judged, console).items():
            if job.task.metric in scores:
                console.say(f"{baseline}: {job.task.metric} {scores[job.task.metric]:.4f}")
            found.append({"baseline": baseline, "on": name, "records": len(judged), **scores})
    results = scratch(recipe, Run(run.path / "without-pretraining"), world, console)
    if world.main:
        found.append({"baseline": SCRATCH, "on": name, "lr": results.get("lr"), **results[name]})
    return found


def counted(
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
