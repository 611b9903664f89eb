"""Fine-tuning runs: labeled files → a fine-tuned model of one task, or of several tasks that share an encoder.

`FinetuneJob.parts` is {"": part} for one task and {name: part, …} for several (`multitask.py`). `part.py` defines `Part`.
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
from unmask.runs import dry_run, multitask
from unmask.runs.budget import Workload
from unmask.runs.context import Context
from unmask.runs.lifecycle import Job, ResumeState, TrainingKind
from unmask.runs.part import (
    Part,
    build_loader,
    build_train_loader,
    dev_subset,
    open_teacher,
    prepare,
    seconds_per_prediction,
    training_notes,
)
from unmask.tasks import aux_mlm, blend, on_model
from unmask.tasks.intervals import intervals
from unmask.train import checkpoint
from unmask.train.fit import Evaluation, State, describe, standard_error_margin
from unmask.train.loader import Loader
from unmask.train.run import Run
from unmask.train.schedule import Plan
from unmask.train.trainer import Trainer


@dataclass
class FinetuneJob(Job):
    parts: dict[str, Part] = field(kw_only=True)

    @property
    def single(self) -> Part | None:
        """The only part of a run with one task; None if it has several."""
        return self.parts.get("")

    def save(self, folder: Path) -> None:
        for name, part in self.parts.items():
            part.save(folder / name)

    def headline(self, run: Run) -> str:
        return "\n".join((f"{name}: " if name else "") + run_banner(part, run) for name, part in self.parts.items())


class Finetune(TrainingKind[FinetuneJob]):
    name = folder = "finetune"

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        reject_unused_settings(recipe)
        if recipe.tasks:
            multitask.check(recipe)
        return recipe

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> FinetuneJob:
        parts = self.parts(recipe, ctx, resume_state)
        recipe = parts[""].recipe if "" in parts else multitask.resolve_settings(recipe, parts)
        name = parts[""].task.name if "" in parts else "several"
        for part in parts.values():  # before anything is written, in case a teacher does not fit
            part.teacher = open_teacher(part, ctx.console.say)
        job = FinetuneJob(recipe, name, parts=parts)
        fingerprint = " ".join(part.fingerprint() for part in parts.values())
        if resume_state and fingerprint != resume_state.run.read_json("data.json")["fingerprint"]:
            raise UserError(
                f"the training files of {resume_state.run.path} have changed since the run started",
                hint="start a new run with unmask finetune and a different --out",
            )
        findings = [f for part in parts.values() for f in part.sets.findings]
        if not ctx.eval_callback:  # trials of a search print nothing; `training_notes` reports long texts
            job.warnings = [str(group) for group in by_kind(f for f in findings if f.kind != "length")]
        job.files = {
            "data.json": {
                "records": _unwrap_single({n: set_sizes(p.sets) for n, p in parts.items()}),
                "fingerprint": fingerprint,
            },
            "task_state.json": _unwrap_single({n: p.task.task_state for n, p in parts.items()}),
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
            for name, own in multitask.recipes(recipe).items()
        }

    def work(self, job: FinetuneJob, ctx: Context, run: Run | None = None) -> Workload:
        recipe, parts, train = job.recipe, job.parts, job.recipe.train
        if job.single:
            loader, records = build_loader(job.single, ctx, run)
            model: nn.Module = job.single.model
            loaders, notes = [loader], training_notes(job.single, ctx, records, gathered=not recipe.task.teacher)

            def trainer(plan: Plan, train: TrainRecipe) -> Trainer:
                return Trainer(model, loader.objective, train, plan, recipe.seed, ctx.world, loader.tokens)  # type: ignore[arg-type]

            run_loader: Loader = loader
        else:
            loaders = [build_train_loader(part) for part in parts.values()]
            notes = [text for part in parts.values() for text in training_notes(part, ctx, len(part.sets.train))]
            model = shared_model = multitask.SharedEncoderModel({name: part.model for name, part in parts.items()})
            objective = multitask.MultiTaskObjective(parts)
            run_loader = multi_loader = multitask.MultiTaskLoader(loaders, train.batch_size, recipe.seed)

            def trainer(plan: Plan, train: TrainRecipe) -> Trainer:
                return multitask.MultiTaskTrainer(
                    shared_model, objective, multi_loader, train, plan, recipe.seed, ctx.world
                )

        length = max(8, *(int(task_loader.lengths.max()) for task_loader in loaders))
        rows = {length: sum(len(task_loader.lengths) for task_loader in loaders)}
        evaluation = make_evaluation(job, ctx)
        return Workload(
            model, run_loader, length, rows, trainer, lambda trainer: evaluation,
            lambda trainer: sum(seconds_per_prediction(part) * len(dev_subset(part)) for part in parts.values()), job.save,
            uniform_steps=False, notes=lambda plan: notes, models=lambda run: [run.model / name for name in parts],
        )  # fmt: skip

    def finish(self, job: FinetuneJob, run: Run, state: State, ctx: Context) -> dict[str, Any]:
        """Restore the best checkpoint, calibrate on the dev set, save the model and evaluate it on dev and test."""
        for part in job.parts.values():
            aux_mlm.remove_aux_head(part.model, part.task.heads)
        best = state.best
        if best and best["step"] < state.step:
            for name, part in job.parts.items():
                restore(part, run.checkpoints / "best" / "model" / name)
            single = job.single
            score = describe({single.metric: best[single.metric]}) if single else f"mean {best['mean']:.1%}"
            ctx.console.say(f"restored the best checkpoint, from step {best['step']:,}: {score}")
        return evaluate_and_save(job, run, state, ctx.console)

    def estimate(self, recipe: Recipe, ctx: Context) -> dict[str, Any]:
        job = self.prepare(recipe, ctx)
        return dry_run.estimate(job, self.work(job, ctx), ctx)

    def extend_results(self, run: Run, ctx: Context) -> bool:
        """Add the results of --baseline."""
        recipe = ctx.on_main(run.recipe)  # the main process may have just written it
        if not recipe.task.baseline or "baselines" in ctx.on_main(run.results):
            return False
        from unmask.runs.baseline import add_baselines  # scikit-learn takes a second to import

        add_baselines(recipe, run, ctx)
        return True


PRETRAINING_ONLY = {  # settings of `train` that only pre-training uses → replacement
    "document_attention": "", "embedding_init": "", "compile": "", "max_length": "--max-length N (task.max_length)",
}  # fmt: skip


def reject_unused_settings(recipe: Recipe) -> None:
    """Raise a UserError for settings that fine-tuning would ignore."""
    train, defaults = recipe.train, TrainRecipe()
    if train.tokens is not None:
        raise UserError(
            f"train.tokens={train.tokens}: fine-tuning does not support a budget in tokens",
            expected="train.epochs, train.steps or train.minutes",
            hint="use --epochs 3, for example",
        )
    for name, replacement in PRETRAINING_ONLY.items():
        if (value := getattr(train, name)) != getattr(defaults, name):
            hint = f"use {replacement}" if replacement else f"remove train.{name}"
            raise UserError(f"train.{name}={value}: fine-tuning does not use this setting of pre-training", hint=hint)


def make_evaluation(job: FinetuneJob, ctx: Context) -> Evaluation | None:
    """Return the evaluation on the dev sets: all scores of one task, or the metric of each of several and their mean."""
    dev_sets = {name: dev_subset(part) for name, part in job.parts.items() if part.sets.dev}
    if not dev_sets:
        return None
    counts = {_key(name, job.parts[name].metric): len(records) for name, records in dev_sets.items()}

    def evaluate() -> dict[str, Any]:
        scores: dict[str, Any] = {}
        for name, records in dev_sets.items():
            task = job.parts[name].task
            scores[name] = task.score(task.predict(job.parts[name].model, records), records)
        if job.single:
            return dict(scores[""])
        metrics = {name: job.parts[name].metric for name in scores}
        values = {
            _key(name, metric): scores[name][metric] for name, metric in metrics.items() if metric in scores[name]
        }
        return ({"mean": fmean(values.values())} if values else {}) | values

    settings, single = job.recipe.task, job.single
    # a task without a new head can be evaluated before training
    eval_on_start = single and not type(single.task).heads and not ctx.eval_callback
    return Evaluation(
        evaluate, single.metric if single else "mean", greater_is_better=True, patience=settings.patience,
        eval_on_start="log" if eval_on_start else "off", min_delta=standard_error_margin(counts, settings.selection_margin),
    )  # fmt: skip


def _key(part: str, metric: str) -> str:
    return f"{part}.{metric}" if part else metric


# ------------------------------------------------------------------------------------------------ final evaluation


def restore(part: Part, folder: Path) -> None:
    """Load the weights of a checkpoint into the part's model."""
    loaded = hf.load(folder, part.task.heads, dict(part.task.bound.config_overrides)).model
    part.model.load_state_dict(loaded.state_dict())


def evaluate_and_save(job: FinetuneJob, run: Run, state: State, console: Console) -> dict[str, Any]:
    """Evaluate the model on dev and test, save it and return the results."""
    scores, details = {}, {}
    for name, part in job.parts.items():
        scores[name], details[name] = evaluate_splits(part, run, console, f"{name}." if name else "")
    progress = {"step": state.step, "best": state.best}
    if single := job.single:
        header = {"task": single.task.name, "metric": single.metric}
        results = header | progress | scores[""] | {"lr": job.recipe.train.lr}
    else:
        tasks = {
            name: {"task": p.task.name, "metric": p.metric, **scores[name], "model": str(run.model / name)}
            for name, p in job.parts.items()
        }
        results = {"task": "several", "metric": "mean", **progress, "tasks": tasks}
    checkpoint.write_folder(run.model, job.save)
    run.write_json("details.json", _unwrap_single(details))
    return results | {"seconds": round(state.elapsed, 1), "model": str(run.model)}


def evaluate_splits(part: Part, run: Run, console: Console, prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Calibrate on dev and return (scores, details) on dev and test. Write predictions to `dev.predictions.jsonl`, …"""
    task, model, sets = part.task, part.model, part.sets
    results: dict[str, Any] = {}
    details: dict[str, Any] = {}
    confidence: dict[str, Any] = {}
    on_model.fold_scale_into_head(task, model)
    if part.recipe.task.blend != "none":
        task.blend = blend.fit_blend(task, model, sets, part.unlabeled, console)
    component_scores = blend.ComponentScores(task, part.recipe)
    for name, records in (("dev", sets.dev), ("test", sets.test)):
        if not records:
            continue
        task.windowing.reset()
        with console.bar(name) as update:
            outputs = task.compute_outputs(model, records, update)
        for text in task.windowing.truncation_notes(len(records)):
            console.warn(f"{name}: {text}")
        component_scores.add(name, outputs, records)
        if name == "dev":
            task.task_state |= task.calibrate(outputs, records)
        predictions = task.extend_predictions(model, task.decode(outputs), records)
        results[name] = {"records": len(records), **task.score(predictions, records)}
        confidence[name] = intervals(task, predictions, records, results[name])
        details[name] = task.details(predictions, records)
        lines = [{"location": r["location"], **p} for r, p in zip(records, predictions)]
        text = "".join(json.dumps(line, ensure_ascii=False, default=plain) + "\n" for line in lines)
        write_text(run.path / f"{prefix}{name}.predictions.jsonl", text)
    components = {"components": component_scores.rows} if component_scores.rows else {}
    return results | {"intervals": confidence} | components, details


def run_banner(part: Part, run: Run) -> str:
    sets = ", ".join(f"{n:,} {name}" for name, n in set_sizes(part.sets).items() if n)
    trained = sum(p.numel() for p in part.model.parameters() if p.requires_grad)
    columns = ", ".join(f"{role} ← {name}" for role, name in part.sets.columns.items())
    data = "; ".join(text for text in (columns, part.description) if text)
    return (f"{part.task.name}: {data}\n" if data else "") + (
        f"{part.task.name}: {sets} records; {part.recipe.init_from}, {trained:,} parameters to train, "
        f"lr {part.recipe.train.lr:.2g} → {run.path}"
    )


def _unwrap_single(values: dict[str, Any]) -> Any:
    """Return the value of the only task, or the values of several tasks by name."""
    return values.get("", values)
