"""What `unmask finetune --dry-run` says. Files are read and examined, the model is opened; nothing is trained or written.

Time is measured, not guessed: a few steps on the real rows and a few answers to dev records, on a model that is thrown away.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.labels.findings import as_rows
from unmask.labels.record_sets import set_sizes
from unmask.recipe import Recipe
from unmask.runs import budget
from unmask.runs import estimate as estimates
from unmask.runs.budget import Workload
from unmask.runs.context import Context
from unmask.runs.part import Part, seconds_per_prediction
from unmask.train.fit import eval_every
from unmask.train.loader import LengthBucketedLoader
from unmask.train.schedule import Plan

if TYPE_CHECKING:
    from unmask.runs.finetune import FinetuneJob

SECONDS = 2.0  # of steps that are timed, at least


def estimate(job: "FinetuneJob", work: Workload, ctx: Context) -> dict[str, Any]:
    """What is known before the first step, as plain values."""
    recipe, parts, train = job.recipe, job.parts, job.recipe.train
    loaders: dict[str, LengthBucketedLoader] = dict(zip(parts, getattr(work.loader, "loaders", [work.loader])))
    ctx.console.say("measuring the speed of this machine …")
    seconds, evaluation = budget.measure(work, recipe, SECONDS)
    plan, (step,) = budget.plan_budget(recipe, work, seconds, evaluation), seconds.values()
    answered = sum(seconds_per_prediction(part) * (len(part.sets.dev) + len(part.sets.test)) for part in parts.values())
    whole = plan.steps * step + train.num_evals * evaluation + answered
    memory = [_memory(part, loaders[name], work, plan) for name, part in parts.items()]
    return {
        "start": recipe.init_from,
        "tasks": {name or part.task.name: _part(part, loaders[name]) for name, part in parts.items()},
        "steps": plan.steps,
        "epochs": round(plan.length_phases[-1].rows / sum(work.rows.values()), 3),
        "batch": train.batch_size,
        "lr": train.lr,
        "evaluations": math.ceil(plan.steps / eval_every(train, plan.steps)),
        "seeds": recipe.task.num_seeds,
        "seconds_per_step": step,
        "minutes": recipe.task.num_seeds * whole / 60,
        "excluded_from_estimate": _excluded_from_estimate(recipe),
        "memory_bytes": max(memory, key=lambda parts: sum(parts.values())),
        "recipe": recipe.model_dump(mode="json"),
    }


def _part(part: Part, loader: LengthBucketedLoader) -> dict[str, Any]:
    task, found, sizes_of = part.task, part.sets.findings, np.percentile(loader.lengths, [50, 95, 100]).tolist()
    model, tally = part.model, task.windowing.tally
    return {
        "task": task.name,
        "metric": part.metric,
        "columns": part.sets.columns,
        "labels": list(task.spec.labels),
        "text": part.about,
        "records": set_sizes(part.sets),
        "rows": len(loader.lengths),
        "tokens": dict(zip(("median", "p95", "longest"), map(int, sizes_of))) | {"row": task.windowing.length},
        "num_overflowing": tally.overflowing.total(),
        "overflow_action": "; ".join(tally.overflowing),
        "family": model.config.family,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "notes": [*part.notes, *tally.note_lines()],
        "warnings": len(found),
        "findings": as_rows(found),
    }


def _memory(part: Part, loader: LengthBucketedLoader, work: Workload, plan: Plan) -> dict[str, int]:
    """Bytes, roughly and at most: as if every row of a micro-batch were as long as the longest."""
    size = part.recipe.train.micro_batch_size or part.recipe.train.batch_size
    batch = loader.batch(0, size, plan.phase(0))
    recipe = part.recipe.changed(train={"batch_size": batch.rows, "micro_batch_size": 0, "max_length": work.length})
    counts = loader.objective.target_counts(batch)
    written = part.task.SPEC.terms[0] if part.task.SPEC.output == "text" else "mlm"  # the term over the vocabulary
    found = estimates.memory(part.model, recipe, counts.get(written, 0))
    trained = work.trainer(plan).parameters if work.model is part.model else part.model.parameters()
    share = sum(p.numel() for p in trained if p.requires_grad) * 4 / max(1, found["weights"])
    return found | {name: int(share * found[name]) for name in ("gradients", "optimizer")}


def _excluded_from_estimate(recipe: Recipe) -> list[str]:
    asked = {
        "what the teacher says of each record": recipe.task.teacher,
        "rewriting rows, and the rows that it adds": recipe.task.augment_mlm,
        "the baselines": recipe.task.baseline,
    }
    return [what for what, given in asked.items() if given]
