"""`unmask finetune --dry-run`: reads and checks the files, loads the model, and estimates steps, memory and time.

Nothing is written. The time is measured with a few training steps on real rows and a few predictions of dev records.
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
from unmask.train import precision
from unmask.train.fit import eval_interval
from unmask.train.loader import LengthBucketedLoader
from unmask.train.schedule import Plan

if TYPE_CHECKING:
    from unmask.runs.finetune import FinetuneJob

TIMING_SECONDS = 2.0  # duration of the timed steps


def estimate(job: "FinetuneJob", work: Workload, ctx: Context) -> dict[str, Any]:
    """Return the estimate as JSON-compatible values."""
    recipe, parts, train = job.recipe, job.parts, job.recipe.train
    loaders: dict[str, LengthBucketedLoader] = dict(zip(parts, getattr(work.loader, "loaders", [work.loader])))
    ctx.console.say("measuring training speed …")
    seconds, evaluation = budget.measure(work, recipe, TIMING_SECONDS)
    plan, (step,) = budget.plan_budget(recipe, work, seconds, evaluation), seconds.values()
    final = sum(seconds_per_prediction(part) * (len(part.sets.dev) + len(part.sets.test)) for part in parts.values())
    total = plan.steps * step + train.num_evals * evaluation + final
    memory = [_memory(part, loaders[name], work, plan) for name, part in parts.items()]
    return {
        "init_from": recipe.init_from,
        "tasks": {name or part.task.name: _part(part, loaders[name]) for name, part in parts.items()},
        "steps": plan.steps,
        "epochs": round(plan.length_phases[-1].rows / sum(work.rows.values()), 3),
        "batch": train.batch_size,
        "lr": train.lr,
        "evaluations": math.ceil(plan.steps / eval_interval(train, plan.steps)),
        "seeds": recipe.task.num_seeds,
        "precision": precision.describe_plan(recipe, work.model, work.loader, plan),  # type: ignore[arg-type]
        "seconds_per_step": step,
        "minutes": recipe.task.num_seeds * total / 60,
        "excluded_from_estimate": _excluded_from_estimate(recipe),
        "memory_bytes": max(memory, key=lambda parts: sum(parts.values())),
        "recipe": recipe.model_dump(mode="json"),
    }


def _part(part: Part, loader: LengthBucketedLoader) -> dict[str, Any]:
    task, findings, model = part.task, part.sets.findings, part.model
    lengths, tally = np.percentile(loader.lengths, [50, 95, 100]).tolist(), task.windowing.tally
    return {
        "task": task.name,
        "metric": part.metric,
        "columns": part.sets.columns,
        "labels": list(task.spec.labels),
        "text": part.description,
        "records": set_sizes(part.sets),
        "rows": len(loader.lengths),
        "tokens": dict(zip(("median", "p95", "longest"), map(int, lengths))) | {"row": task.windowing.length},
        "num_overflowing": tally.overflowing.total(),
        "overflow_action": "; ".join(tally.overflowing),
        "family": model.config.family,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "notes": [*part.notes, *tally.note_lines()],
        "warnings": len(findings),
        "findings": as_rows(findings),
    }


def _memory(part: Part, loader: LengthBucketedLoader, work: Workload, plan: Plan) -> dict[str, int]:
    """Estimate an upper bound of the memory in bytes, as if every row of a micro-batch had the maximum length."""
    size = part.recipe.train.micro_batch_size or part.recipe.train.batch_size
    batch = loader.batch(0, size, plan.step_config(0))
    recipe = part.recipe.changed(train={"batch_size": batch.rows, "micro_batch_size": 0, "max_length": work.length})
    counts = loader.objective.target_counts(batch)
    vocabulary_term = part.task.SPEC.terms[0] if part.task.SPEC.output == "text" else "mlm"
    memory = estimates.memory(part.model, recipe, counts.get(vocabulary_term, 0))
    trained = work.trainer(plan, part.recipe.train).parameters if work.model is part.model else part.model.parameters()
    fraction = sum(p.numel() for p in trained if p.requires_grad) * 4 / max(1, memory["weights"])
    return memory | {name: int(fraction * memory[name]) for name in ("gradients", "optimizer")}


def _excluded_from_estimate(recipe: Recipe) -> list[str]:
    options = {
        "computing the teacher's logits": recipe.task.teacher,
        "creating augmented records and training on them": recipe.task.augment_mlm,
        "the baselines": recipe.task.baseline,
    }
    return [name for name, enabled in options.items() if enabled]
