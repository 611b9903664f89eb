"""The kind of run that fine-tunes: labelled files → a model that answers, of one task or of several that share an encoder.

A run has parts: {"": part} of one task, a part per name of several (`shared.py`). What a part is made of is in `part.py`.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import nn

from unmask.console import Console, plain
from unmask.errors import UserError
from unmask.files import write_text
from unmask.labels.findings import MAX_KEPT_PER_KIND, as_rows, by_kind
from unmask.labels.record_sets import set_sizes
from unmask.model import hf
from unmask.recipe import Recipe, TrainRecipe
from unmask.renamed import upgrade_task_state
from unmask.runs import dry_run, shared
from unmask.runs.budget import Work
from unmask.runs.context import Context
from unmask.runs.lifecycle import Job, ResumeState, TrainingKind
from unmask.runs.part import Part, load_one, open_teacher, prepare, remarks_of, rows_of, seconds_per_answer, seen
from unmask.tasks import aux_mlm, on_model
from unmask.tasks.intervals import intervals
from unmask.train import checkpoint
from unmask.train.fit import Evaluation, State, describe, doubt_of
from unmask.train.loader import Loader
from unmask.train.run import Run
from unmask.train.schedule import Plan
from unmask.train.trainer import Trainer


@dataclass
class FinetuneJob(Job):
    parts: dict[str, Part] = field(kw_only=True)

    @property
    def one(self) -> Part | None:
        """The part of a run of one task."""
        return self.parts.get("")

    def save(self, folder: Path) -> None:
        for name, part in self.parts.items():
            part.save(folder / name)

    def headline(self, run: Run) -> str:
        return "\n".join((f"{name}: " if name else "") + announce(part, run) for name, part in self.parts.items())


class Finetune(TrainingKind[FinetuneJob]):
    name = folder = "finetune"

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        check_unused(recipe)
        if recipe.tasks:
            shared.check(recipe)
        return recipe

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> FinetuneJob:
        parts = self.parts(recipe, ctx, resume_state)
        recipe = parts[""].recipe if "" in parts else shared.settled(recipe, parts)
        name = parts[""].task.name if "" in parts else "several"
        for part in parts.values():  # one that does not fit is said before anything is written
            part.teacher = open_teacher(part, ctx.console.say)
        job = FinetuneJob(recipe, name, parts=parts)
        key = " ".join(part.sets.fingerprint() for part in parts.values())
        if resume_state and key != resume_state.run.read_json("data.json")["key"]:
            raise UserError(
                f"the labelled files of {resume_state.run.path} have changed since it was begun",
                hint="a new run: unmask finetune with another --out",
            )
        findings = [f for part in parts.values() for f in part.sets.findings]
        if not ctx.watch:  # a trial of many says nothing; how many texts are too long is said where they are read
            job.warnings = [str(group) for group in by_kind(f for f in findings if f.kind != "length")]
        job.files = {
            "data.json": {"records": _by_part({n: set_sizes(p.sets) for n, p in parts.items()}), "key": key},
            "task_state.json": _by_part({n: p.task.task_state for n, p in parts.items()}),
            "findings.json": as_rows(findings, MAX_KEPT_PER_KIND),
        }
        return job

    def parts(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None) -> dict[str, Part]:
        weights = resume_state.weights if resume_state else None
        task_state = resume_state.run.read_json(resume_state.run.task_state_file) if resume_state else None
        if not recipe.tasks:
            return {"": prepare(recipe, weights, task_state and upgrade_task_state(task_state), ctx.cache)}
        return {
            name: prepare(
                own, weights and weights / name, task_state and upgrade_task_state(task_state[name]), ctx.cache
            )
            for name, own in shared.recipes(recipe).items()
        }

    def work(self, job: FinetuneJob, ctx: Context, run: Run | None = None) -> Work:
        recipe, parts, train = job.recipe, job.parts, job.recipe.train
        if job.one:
            loader, records = load_one(job.one, ctx, run)
            model: nn.Module = job.one.model
            loaders, remarks = [loader], remarks_of(job.one, ctx, records, gathered=not recipe.task.teacher)

            def trainer(plan: Plan) -> Trainer:
                return Trainer(model, loader.objective, train, plan, recipe.seed, ctx.world, loader.tokens)  # type: ignore[arg-type]

            every: Loader = loader
        else:
            loaders = [rows_of(part) for part in parts.values()]
            remarks = [text for part in parts.values() for text in remarks_of(part, ctx, len(part.sets.train))]
            model = together = shared.Shared({name: part.model for name, part in parts.items()})
            objective, every = shared.Several(parts), (taking := shared.Taking(loaders, train.batch_size, recipe.seed))

            def trainer(plan: Plan) -> Trainer:
                return shared.SharedTrainer(together, objective, taking, train, plan, recipe.seed, ctx.world)

        length = max(8, *(int(each.lengths.max()) for each in loaders))
        rows = {length: sum(len(each.lengths) for each in loaders)}
        evaluation = evaluation_of(job, ctx)
        return Work(
            model, every, length, rows, trainer, lambda trainer: evaluation,
            lambda trainer: sum(seconds_per_answer(part) * len(seen(part)) for part in parts.values()), job.save,
            uniform_steps=False, notes=lambda plan: remarks, models=lambda run: [run.model / name for name in parts],
        )  # fmt: skip

    def finish(self, job: FinetuneJob, run: Run, state: State, ctx: Context) -> dict[str, Any]:
        """The best model, thresholds from the dev set, the model's folder, and what it is worth on dev and test."""
        for part in job.parts.values():
            aux_mlm.remove_aux_head(part.model, part.task.heads)
        best = state.best
        if best and best["step"] < state.step:
            for name, part in job.parts.items():
                restore(part, run.checkpoints / "best" / "model" / name)
            score = f"mean {best['mean']:.1%}" if not job.one else describe({job.one.metric: best[job.one.metric]})
            ctx.console.say(
                f"the model{'' if job.one else 's'} of step {best['step']:,} {'is' if job.one else 'are'} kept: {score}"
            )
        return judge(job, run, state, ctx.console)

    def estimate(self, recipe: Recipe, ctx: Context) -> dict[str, Any]:
        job = self.prepare(recipe, ctx)
        return dry_run.estimate(job, self.work(job, ctx), ctx)

    def complete(self, run: Run, ctx: Context) -> bool:
        """--baseline: what the model has to beat, beside its own results."""
        recipe = ctx.once(run.recipe)  # which the first process may have written last
        if not recipe.task.baseline or "baselines" in ctx.once(run.results):
            return False
        from unmask.runs.baseline import add_baselines  # scikit-learn takes a second to import

        add_baselines(recipe, run, ctx)
        return True


PRETRAINING = {  # settings of `train` that only pre-training reads → what to give instead
    "document_attention": "", "embedding_init": "", "compile": "", "max_length": "--max-length N (task.max_length)",
}  # fmt: skip


def check_unused(recipe: Recipe) -> None:
    """Settings that fine-tuning would pass over."""
    train, usual = recipe.train, TrainRecipe()
    if train.tokens is not None:
        raise UserError(
            f"train.tokens={train.tokens}: labelled records differ in length, so tokens say little of how often each is seen",
            expected="train.epochs, train.steps or train.minutes",
            hint="--epochs 3",
        )
    for name, instead in PRETRAINING.items():
        if (value := getattr(train, name)) != getattr(usual, name):
            raise UserError(
                f"train.{name}={value}: only pre-training reads it", hint=instead or f"leave train.{name} out"
            )


def evaluation_of(job: FinetuneJob, ctx: Context) -> Evaluation | None:
    """Of one task its scores, of which its metric decides; of several the metric of each, whose mean decides."""
    records = {name: seen(part) for name, part in job.parts.items() if part.sets.dev}
    if not records:
        return None
    counts = {_key(name, job.parts[name].metric): len(found) for name, found in records.items()}

    def measure() -> dict[str, Any]:
        scores: dict[str, Any] = {}
        for name, found in records.items():
            task = job.parts[name].task
            scores[name] = task.score(task.predict(job.parts[name].model, found), found)
        if job.one:
            return dict(scores[""])
        metrics = {name: job.parts[name].metric for name in scores}
        values = {
            _key(name, metric): scores[name][metric] for name, metric in metrics.items() if metric in scores[name]
        }
        return ({"mean": fmean(values.values())} if values else {}) | values

    settings, one = job.recipe.task, job.one
    # a model that needs no new head answers before it is trained
    shown = one and not type(one.task).heads and not ctx.watch
    return Evaluation(
        measure, one.metric if one else "mean", higher=True, patience=settings.patience,
        first="shown" if shown else "no", doubt=doubt_of(counts, settings.selection_margin),
    )  # fmt: skip


def _key(part: str, metric: str) -> str:
    return f"{part}.{metric}" if part else metric


# ------------------------------------------------------------------------------------------------------------ the end


def restore(part: Part, folder: Path) -> None:
    """The weights of a checkpoint's model into the part's."""
    kept = hf.load(folder, part.task.heads, dict(part.task.bound.config_overrides)).model
    part.model.load_state_dict(kept.state_dict())


def judge(job: FinetuneJob, run: Run, state: State, console: Console) -> dict[str, Any]:
    """The results of the model as it is, which is saved."""
    scores, details = {}, {}
    for name, part in job.parts.items():
        scores[name], details[name] = assess(part, run, console, f"{name}." if name else "")
    reached = {"step": state.step, "best": state.best}
    ended = {"seconds": round(state.elapsed, 1), "model": str(run.model)}
    if one := job.one:
        results = {"task": one.task.name, "metric": one.metric, **reached, **scores[""], "lr": job.recipe.train.lr}
    else:
        tasks = {
            name: {"task": p.task.name, "metric": p.metric, **scores[name], "model": str(run.model / name)}
            for name, p in job.parts.items()
        }
        results = {"task": "several", "metric": "mean", **reached, "tasks": tasks}
    checkpoint.write_folder(run.model, job.save)
    run.write_json("details.json", _by_part(details))
    return results | ended


def assess(part: Part, run: Run, console: Console, prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """(scores, details) on dev and test; what is tuned is tuned on dev. The answers go to `dev.predictions.jsonl` …"""
    task, model, sets = part.task, part.model, part.sets
    results: dict[str, Any] = {}
    details: dict[str, Any] = {}
    between: dict[str, Any] = {}
    on_model.fold_scale_into_head(task, model)
    for name, records in (("dev", sets.dev), ("test", sets.test)):
        if not records:
            continue
        task.windowing.reset()
        with console.bar(name) as update:
            outputs = task.compute_outputs(model, records, update)
        for what in task.windowing.truncation_notes(len(records)):
            console.warn(f"{name}: {what}")
        if name == "dev":
            task.task_state |= task.calibrate(outputs, records)
        answers = task.extend_predictions(model, task.decode(outputs), records)
        results[name] = {"records": len(records), **task.score(answers, records)}
        between[name] = intervals(task, answers, records, results[name])
        details[name] = task.details(answers, records)
        lines = [{"location": r["location"], **a} for r, a in zip(records, answers)]
        text = "".join(json.dumps(line, ensure_ascii=False, default=plain) + "\n" for line in lines)
        write_text(run.path / f"{prefix}{name}.predictions.jsonl", text)
    return results | {"intervals": between}, details


def announce(part: Part, run: Run) -> str:
    sets = ", ".join(f"{n:,} {name}" for name, n in set_sizes(part.sets).items() if n)
    trained = sum(p.numel() for p in part.model.parameters() if p.requires_grad)
    columns = ", ".join(f"{role} ← {name}" for role, name in part.sets.columns.items())
    taken = "; ".join(text for text in (columns, part.about) if text)
    return (f"{part.task.name}: {taken}\n" if taken else "") + (
        f"{part.task.name}: {sets} records; {part.recipe.init_from}, {trained:,} parameters to train, "
        f"lr {part.recipe.train.lr:.2g} → {run.path}"
    )


def _by_part(values: dict[str, Any]) -> Any:
    """Of one task its value alone, of several all by name."""
    return values.get("", values)
