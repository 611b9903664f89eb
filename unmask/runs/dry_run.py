"""`unmask finetune --dry-run`: what a run would be. Files are read and examined, the model is opened; nothing is trained or written.

Time is measured, not guessed: a few steps on the real rows and a few answers to dev records, on a model that is thrown away.
"""

import math
import time
from typing import Any

import numpy as np

from unmask.console import Console
from unmask.labels.findings import as_rows
from unmask.labels.record_sets import sizes
from unmask.recipe import Recipe
from unmask.runs import budget, estimate, finetune, multi_seed, multitask
from unmask.runs.job import Job, open_teacher
from unmask.tasks import aux_mlm
from unmask.tasks.objective import objective_of
from unmask.train.distributed import World
from unmask.train.fit import eval_every
from unmask.train.loader import Bucketed
from unmask.train.trainer import Trainer

SECONDS = 2.0  # of steps that are timed, at least
ANSWERED = 16  # dev records that are answered to see how long it takes


def rehearse(recipe: Recipe, console: Console) -> dict[str, Any]:
    """A recipe of one task or of several → what is known before the first step, as plain values."""
    multi_seed.check(recipe)
    if recipe.tasks:
        jobs = multitask.prepare(recipe)
        parts, settled = jobs.parts, jobs.recipe
    else:
        job = finetune.prepare(recipe)
        parts, settled = {"": job}, job.recipe
    for job in parts.values():
        open_teacher(job, console.say)
    loaders = {name: finetune.rows_of(job, objective=_trained(job)) for name, job in parts.items()}
    console.say("measuring the speed of this machine …")
    trainers = {name: _trainer(job, loaders[name], alone=len(parts) == 1) for name, job in parts.items()}
    times = {name: _seconds(job, loaders[name], trainers[name]) for name, job in parts.items()}
    shares = multitask.Taking(list(loaders.values()), settled.train.batch, settled.seed).shares
    step = float(shares @ [each["step"] for each in times.values()])
    spent = sum(each["evaluations"] for each in times.values())
    longest, rows = max(int(x.lengths.max()) for x in loaders.values()), sum(len(x.lengths) for x in loaders.values())
    train = settled.train
    if train.minutes is not None:
        train = train.model_copy(update={"minutes": None, "steps": budget.steps_in(train.minutes, step, spent)})
    plan = budget.planned(settled.model_copy(update={"train": train}), longest, rows)
    seconds = plan.steps * step + spent + sum(each["end"] for each in times.values())
    memory = [_memory(job, loaders[name], trainers[name], longest) for name, job in parts.items()]
    return {
        "start": settled.start,
        "tasks": {name or job.task.name: _part(job, loaders[name]) for name, job in parts.items()},
        "steps": plan.steps,
        "epochs": round(plan.stretches[-1].rows / rows, 3),
        "batch": train.batch,
        "lr": train.lr,
        "evaluations": math.ceil(plan.steps / eval_every(train, plan.steps)),
        "seeds": settled.task.seeds,
        "seconds_per_step": step,
        "minutes": settled.task.seeds * seconds / 60,
        "not_counted": _not_counted(settled),
        "memory_bytes": max(memory, key=lambda parts: sum(parts.values())),
        "recipe": settled.model_dump(mode="json"),
    }


def _trained(job: Job) -> Any:
    return aux_mlm.beside(objective_of(job.task))


def _part(job: Job, loader: Bucketed) -> dict[str, Any]:
    task, found, sizes_of = job.task, job.sets.findings, np.percentile(loader.lengths, [50, 95, 100]).tolist()
    model, tally = job.model, task.windowing.tally
    return {
        "task": task.name,
        "metric": task.metric,
        "columns": job.sets.columns,
        "labels": list(task.learnt.get("labels", ())),
        "text": task.describe(job.sets.train),
        "records": sizes(job.sets),
        "rows": len(loader.lengths),
        "tokens": dict(zip(("median", "p95", "longest"), map(int, sizes_of))) | {"row": task.windowing.length},
        "longer": tally.longer.total(),
        "fate": "; ".join(tally.longer),
        "family": model.config.family,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "notes": [*job.notes, *tally.remarks()],
        "warnings": len(found),
        "findings": as_rows(found),
    }


def _trainer(job: Job, loader: Bucketed, alone: bool) -> Trainer:
    """Of several tasks each would train all token vectors."""
    ten = budget.ten_steps(job.recipe)
    plan = budget.planned(ten, int(loader.lengths.max()), len(loader.lengths))
    return Trainer(
        job.model, loader.objective, ten.train, plan, ten.seed, World(0, 1), loader.tokens if alone else None
    )


def _seconds(job: Job, loader: Bucketed, trainer: Trainer) -> dict[str, float]:
    """Of a step, of all evaluations while training, and of answering dev and test at the end."""
    step = budget.seconds_per_step(trainer, loader, SECONDS)
    some, begun = job.sets.dev[:ANSWERED], time.perf_counter()
    if some:
        job.task.answer(job.model, some)
    each = (time.perf_counter() - begun) / max(1, len(some))
    seen = len(job.sets.dev[: job.recipe.train.eval_rows])
    return {
        "step": step,
        "evaluations": job.recipe.train.evaluations * each * seen,
        "end": each * (len(job.sets.dev) + len(job.sets.test)),
    }


def _memory(job: Job, loader: Bucketed, trainer: Trainer, longest: int) -> dict[str, int]:
    """Bytes, roughly and at most: as if every row of a micro-batch were as long as the longest."""
    size = job.recipe.train.micro_batch or job.recipe.train.batch
    batch = loader.batch(0, size, trainer.plan.phase(0))
    train = job.recipe.train.model_copy(update={"batch": batch.rows, "micro_batch": 0, "length": max(8, longest)})
    counts = trainer.objective.counts(batch)
    found = estimate.memory(
        job.model, job.recipe.model_copy(update={"train": train}), counts.get("generate", counts.get("mlm", 0))
    )
    share = sum(p.numel() for p in trainer.parameters) * 4 / max(1, found["weights"])
    return found | {name: int(share * found[name]) for name in ("gradients", "optimizer")}


def _not_counted(recipe: Recipe) -> list[str]:
    asked = {
        "what the teacher says of each record": recipe.task.teacher,
        "rewriting rows, and the rows that it adds": recipe.task.augment,
        "the baselines": recipe.task.baseline,
    }
    return [what for what, given in asked.items() if given]
