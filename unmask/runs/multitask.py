"""Several tasks, one encoder (Caruana 1997; MT-DNN 1901.11504): each task keeps its head, its labels and its folder.

Every step is of one task, which is a function of (seed, step): drawn in proportion to the square root of its number of rows, so
that a small task is seen more often than its size says and a large one does not drown it. An epoch is as many rows as all
tasks have together. The mean of the tasks' own scores on their dev sets says whether an earlier model was better than the last.

Each `Model` holds the same encoder module; `Shared` is what the trainer sees. A task that a step is not of gets no gradient there,
and its head stays as it is.
"""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from unmask import report
from unmask.batch import Batch, Phase
from unmask.console import Console, clock
from unmask.errors import UserError
from unmask.labels.record_sets import sizes, warn_of
from unmask.model.model import Model
from unmask.objectives.objective import Objective, Terms
from unmask.recipe import Recipe
from unmask.runs import budget, finetune
from unmask.runs.job import Job
from unmask.seeds import generator
from unmask.settings import merge
from unmask.tasks.objective import objective_of
from unmask.train import checkpoint
from unmask.train.distributed import World
from unmask.train.fit import Evaluation, doubt_of, fit
from unmask.train.loader import Bucketed, Loader
from unmask.train.run import Run
from unmask.train.schedule import Plan
from unmask.train.trainer import Step, Trainer

NUMBER = "task"  # label of a batch: the number of its task
OF_ALL = ("patience", "margin", "seeds", "baseline")  # settings of the run, not of one of its tasks


class Shared(nn.Module):
    """The encoder once, then what each task has of its own. Names of parameters: encoder.…, tasks.NAME.heads.…"""

    def __init__(self, models: Mapping[str, Model]):
        super().__init__()
        first = next(iter(models.values()))
        self.config, self.encoder = first.config, first.encoder
        for model in models.values():
            model.encoder = first.encoder
        self.tasks = nn.ModuleDict(models)

    def own(self, name: str) -> list[nn.Parameter]:
        """What a step of that task trains."""
        return [p for p in self.tasks[name].parameters() if p.requires_grad]


class Several(Objective):
    """The loss of the task that a batch is of; its terms are called NAME.TERM."""

    name = "several"

    def __init__(self, jobs: Mapping[str, Job]):
        first = next(iter(jobs.values()))
        super().__init__(first.recipe, first.task.tokenizer)
        self.names, self.tasks = list(jobs), [objective_of(job.task) for job in jobs.values()]
        self.terms = tuple(f"{name}.{term}" for name, task in zip(jobs, self.tasks) for term in task.terms)
        self.weights = {f"{name}.{t}": w for name, task in zip(jobs, self.tasks) for t, w in task.weights.items()}

    def counts(self, batch: Batch) -> dict[str, int]:
        n = int(batch.labels[NUMBER])
        found = self.tasks[n].counts(batch)
        return dict.fromkeys(self.terms, 0) | {f"{self.names[n]}.{term}": count for term, count in found.items()}

    def loss(self, model: Any, batch: Batch) -> Terms:
        n = int(batch.labels[NUMBER])
        found = self.tasks[n].loss(model.tasks[self.names[n]], batch)
        terms: Terms = dict.fromkeys(self.terms, (torch.zeros((), device=batch.ids.device), 0))
        return terms | {f"{self.names[n]}.{term}": value for term, value in found.items()}


class Taking(Loader):
    """Batches of the tasks' own loaders, a task for each step."""

    def __init__(self, loaders: list[Bucketed], batch: int, seed: int):
        self.loaders, self.size, self.seed = loaders, batch, seed
        weights = np.sqrt([len(loader.lengths) for loader in loaders])
        self.shares = weights / weights.sum()
        self._drawn = np.empty(0, np.int64)

    def task(self, step: int) -> int:
        """The number of the task that a step is of: the draws before it are the same however many follow."""
        if step >= len(self._drawn):
            rng = generator(self.seed, "tasks")
            self._drawn = np.searchsorted(self.shares.cumsum()[:-1], rng.random(max(1024, 2 * step)), side="right")
        return int(self._drawn[step])

    def batch(self, first: int, end: int, phase: Phase) -> Batch:
        step = first // self.size
        n = self.task(step)
        before = int((self._drawn[:step] == n).sum()) * self.size  # rows of this task in the steps before
        start = before + first - step * self.size
        made = self.loaders[n].batch(start, start + end - first, phase)
        made.labels[NUMBER] = torch.tensor([n])
        return made


class SharedTrainer(Trainer):
    """Clips and updates the encoder and the head of the step's task, and says nothing of terms that were not computed."""

    def __init__(self, shared: Shared, objective: Several, loader: Taking, *rest: Any):
        super().__init__(shared, objective, *rest)  # type: ignore[arg-type]
        self.names, self.loader, self.shared = objective.names, loader, shared

    def step(self, step: int, batches: list[tuple[int, Batch]]) -> Step:
        name = self.names[self.loader.task(step)]
        self.parameters = self.shared.own(name)
        done = super().step(step, batches)
        others = {t for t in self.objective.terms if not t.startswith(f"{name}.")}
        return replace(done, values={key: value for key, value in done.values.items() if key not in others})


# --------------------------------------------------------------------------------------------------------------- the run


@dataclass
class Jobs:
    recipe: Recipe
    parts: dict[str, Job]

    def save(self, folder: Path) -> None:
        for name, job in self.parts.items():
            job.save(folder / name)

    def keys(self) -> str:
        return " ".join(job.sets.fingerprint() for job in self.parts.values())


def prepare(recipe: Recipe, weights: Path | None = None, learnt: Mapping[str, Any] | None = None) -> Jobs:
    """A job per task; `task` of the recipe holds what they have in common."""
    if recipe.task.train or recipe.task.kind != "auto":
        raise UserError(
            "both `task` and `tasks` name files or a kind", fix="give each of `tasks` its own train, dev, test"
        )
    wrong = next((name for name in recipe.tasks if not name.isidentifier()), None)
    if wrong is not None:
        raise UserError(f"tasks: {wrong!r}", valid="names of letters, digits and _, as they become folders")
    common, parts = recipe.task.model_dump(exclude_unset=True), {}
    for name, own in recipe.tasks.items():
        values = recipe.model_dump() | {"tasks": {}, "task": merge(common, own.model_dump(exclude_unset=True))}
        values["train"]["few_batch"] = 0  # a batch is one of all tasks
        other = {key for key in OF_ALL if getattr(own, key) != getattr(recipe.task, key)} & own.model_fields_set
        if shared := min(other, default=None):
            raise UserError(f"tasks.{name}.{shared}: all tasks have it in common", fix=f"task: {{{shared}: …}}")
        if alone := next((key for key in ("aux", "augment", "teacher") if values["task"].get(key)), None):
            raise UserError(
                f"tasks.{name}.{alone}: of one task alone, not of several at once", fix=f"leave {alone} out"
            )
        parts[name] = finetune.prepare(
            Recipe.build(values), weights / name if weights else None, learnt[name] if learnt else None
        )
    if len({job.recipe.task.freeze for job in parts.values()}) > 1:
        raise UserError("tasks that share an encoder freeze it or not together", fix="task: {freeze: encoder}")
    first = next(iter(parts.values()))
    train = first.recipe.train.model_copy(update={"eval_rows": recipe.train.eval_rows})  # each task has its own number
    settled = {"tasks": {name: job.recipe.task for name, job in parts.items()}, "train": train}
    return Jobs(recipe.model_copy(update=settled), parts)


def run_tasks(recipe: Recipe, run: Run, world: World, console: Console) -> dict[str, Any]:
    jobs = prepare(recipe)
    with run.lock() if world.main else nullcontext():
        if world.main:
            parts = jobs.parts
            records = {name: sizes(job.sets) for name, job in parts.items()}
            learnt = {name: job.task.learnt for name, job in parts.items()}
            findings = [f for job in parts.values() for f in job.sets.findings]
            finetune.write_down(run, jobs.recipe, records, jobs.keys(), learnt, findings)
            warn_of(findings, console)
        console.say("\n".join(f"{name}: {finetune.announce(job, run)}" for name, job in jobs.parts.items()))
        return _end(jobs, run, world, console, train(jobs, run, world, console))


def resume_tasks(run: Run, last: checkpoint.Checkpoint | None, world: World, console: Console) -> dict[str, Any]:
    """For `finetune.resume`, which holds the run's lock."""
    jobs = prepare(run.recipe(), last.model if last else None, run.read_json("learnt.json"))
    finetune.go_on(run, last, jobs.keys(), world, console)
    return _end(jobs, run, world, console, train(jobs, run, world, console, last))


def train(
    jobs: Jobs, run: Run, world: World, console: Console, resume: checkpoint.Checkpoint | None = None
) -> dict[str, Any]:
    recipe, parts = jobs.recipe, jobs.parts
    loaders = [finetune.rows_of(job) for job in parts.values()]
    longest = max(int(loader.lengths.max()) for loader in loaders)
    for job in parts.values():
        finetune.say_remarks(job, console, world, len(job.sets.train))
    seen = {name: finetune.seen_of(job, console) for name, job in parts.items() if job.sets.dev}
    shared = Shared({name: job.model for name, job in parts.items()})
    loader, objective = Taking(loaders, recipe.train.batch, recipe.seed), Several(parts)

    def trainer_of(p: Plan) -> SharedTrainer:
        return SharedTrainer(shared, objective, loader, recipe.train, p, recipe.seed, world)

    def look() -> None:
        for name, records in seen.items():
            parts[name].task.answer(parts[name].model, records)

    rows = sum(len(loader.lengths) for loader in loaders)
    p, recipe = finetune.settle(
        run, recipe, resume, world,
        lambda: budget.make_plan(recipe, longest, rows, loader, trainer_of, look, world, console),
    )  # fmt: skip
    trainer = trainer_of(p)

    def measure() -> dict[str, Any]:
        values: dict[str, float] = {}
        for name, records in seen.items():
            task, model = parts[name].task, parts[name].model
            score = task.score(task.answer(model, records), records).get(task.metric)
            if score is not None:  # it is not defined on every dev set
                values[f"{name}.{task.metric}"] = score
        return ({"mean": fmean(values.values())} if values else {}) | values

    counts = {f"{name}.{parts[name].task.metric}": len(records) for name, records in seen.items()}
    doubt = doubt_of(counts, recipe.task.margin)
    evaluation = Evaluation(measure, "mean", higher=True, patience=recipe.task.patience, first=False, doubt=doubt)
    state = fit(run, trainer, loader, evaluation if seen else None, jobs.save, console, resume=resume, title="finetune")
    world.barrier()
    best = state["best"]
    if best and best["step"] < state["step"]:
        for name, job in parts.items():
            finetune.restore(job, run.checkpoints / "best" / "model" / name)
        console.say(f"the models of step {best['step']:,} are kept: mean {best['mean']:.1%}")
    return state


def _end(jobs: Jobs, run: Run, world: World, console: Console, state: dict[str, Any]) -> dict[str, Any]:
    if not world.main:
        return {}
    begun, tasks, details = time.monotonic(), {}, {}
    for name, job in jobs.parts.items():
        scores, details[name] = finetune.assess(job, run, console, f"{name}.")
        tasks[name] = {"task": job.task.name, "metric": job.task.metric, **scores, "model": str(run.model / name)}
    results = {"task": "several", "metric": "mean", "step": state["step"], "best": state["best"], "tasks": tasks}
    results |= {"seconds": round(state["elapsed"], 1), "model": str(run.model)}
    checkpoint.write_folder(run.model, jobs.save)
    run.write_json("details.json", details)
    run.write_json("results.json", results)
    report.write(run)
    console.say(
        f"done in {clock(state['elapsed'] + time.monotonic() - begun)}: {', '.join(str(run.model / name) for name in tasks)}"
    )
    return results
