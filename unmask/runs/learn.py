"""`unmask learn`: labels, words and unlabeled text → the best classifier they allow.

    data         labeled records, unlabeled texts, test records (learn_data.py)
    pretrain     a small model on all text, unless --from names a model
    linear       a linear model, self-trained on the unlabeled texts (tasks/learner.py); it uses hidden states of the model
    finetune     the model on the labels and on the linear model's soft labels, then blended with the linear model
    decision     what each step gave, how much more labels would give, what to label next, which labels look wrong

Each step writes its files to the run folder, so an interrupted run continues with the step that was interrupted. For other kinds of
targets (several labels, numbers, pairs, tags), the linear step is left out.
"""

import csv
import io
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unmask.errors import UserError, command, quote
from unmask.files import new_file, write_lines, write_text
from unmask.labels.fields import labels_of
from unmask.labels.split import split
from unmask.model import hf
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.runs.context import Context
from unmask.runs.learn_data import (
    DATA_FILE,
    LearnData,
    check_inputs,
    check_settings,
    check_words,
    default_task,
    text_of,
)
from unmask.runs.learn_plan import LearnPlan
from unmask.runs.lifecycle import Job, ResumeState
from unmask.runs.loops import Child, Loop
from unmask.stopping import activity
from unmask.tasks.intervals import fraction_interval
from unmask.tasks.learner import LearnInputs, learner_class
from unmask.tasks.task import FitContext
from unmask.text.tokenizer import Tokenizer
from unmask.train import checkpoint
from unmask.train.run import Run

PRETRAIN, FINETUNE, LINEAR = "pretrain", "finetune", "linear"  # folders of the steps
LINEAR_RESULTS, HIDDEN, SPEED = "linear.json", "hidden.npy", "speed.json"
DEV_FRACTION, MIN_RECORDS_FOR_DEV, MAX_DEV = (
    0.1,
    500,
    500,
)  # fewer than 50 dev records could neither calibrate nor weight
NUM_TO_LABEL = 50
TO_LABEL, SUSPECTS = "to_label.csv", "suspicious_labels.csv"


@dataclass
class LearnJob(Job):
    data: LearnData = field(kw_only=True)


class Learn(Loop[LearnJob]):
    name = folder = "learn"

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        check_inputs(recipe)
        check_settings(recipe)
        if recipe.task.words:
            learner_class(TASKS[default_task()].SPEC).check_words(recipe.task.words)
        if recipe.init_from:
            hf.config_of(recipe.init_from)
        return recipe

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> LearnJob:
        if resume_state and (resume_state.run.path / DATA_FILE).exists():
            data = LearnData.load(resume_state.run.path, resume_state.run.read_json(DATA_FILE))
        else:
            data = LearnData.read(recipe)
            _check_words(recipe, data)
        if data.settings:
            recipe = recipe.model_copy(update={"task": data.settings.model_copy(update=_inputs(recipe))})
        if recipe.task.words and not recipe.task.labels:  # sorted, as those of labeled records are
            labels = sorted(learner_class(TASKS[data.spec.name].SPEC).check_words(recipe.task.words))
            recipe = recipe.model_copy(update={"task": recipe.task.model_copy(update={"labels": labels})})
        return LearnJob(recipe, data.spec.name, data=data)

    def estimate(self, recipe: Recipe, ctx: Context) -> dict[str, Any]:
        """Return what a run would do and how long each step takes. Nothing is trained or written."""
        job = self.prepare(recipe, ctx)
        plan = LearnPlan.make(job.recipe, job.data)
        return {"counts": job.data.counts(), "notes": job.data.notes, "steps": plan.describe(), "minutes": plan.minutes}

    def next(self, job: LearnJob, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> Child | None:
        plan = LearnPlan.make(job.recipe, job.data)
        if not done and ctx.is_main and not (run.path / DATA_FILE).exists():
            self._start(job, run, ctx)
        ctx.world.barrier()
        children = ["pretrain", "finetune"] if plan.pretrain_minutes else ["finetune"]
        if len(done) == len(children):
            return None
        if children[len(done)] == "pretrain":
            return Child(PRETRAIN, "pretrain", plan.pretrain_recipe(run.path), "pre-train")
        model = Path(job.recipe.init_from) if job.recipe.init_from else run.path / PRETRAIN / "model"
        if ctx.is_main and not (run.path / LINEAR_RESULTS).exists():
            _linear_step(job, run, model, plan, ctx)
        ctx.world.barrier()
        labels = run.read_json(LINEAR_RESULTS)["labels"] if (run.path / LINEAR).exists() else None
        recipe = plan.finetune_recipe(run.path, model, labels)
        return Child(FINETUNE, "finetune", recipe, "fine-tune")

    def _start(self, job: LearnJob, run: Run, ctx: Context) -> None:
        for note in job.data.notes:
            ctx.console.say(note)
        counts = ", ".join(f"{count:,} {name}" for name, count in job.data.counts().items())
        ctx.console.say(f"{job.data.spec.name}: {counts} → {run.path}")
        job.data.write(run.path)

    def finish(self, job: LearnJob, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        linear, tuned, data = run.read_json(LINEAR_RESULTS), done[-1], job.data
        metric = tuned["metric"]
        steps = linear["steps"] + _model_steps(tuned, metric)
        decision = {key: linear[key] for key in ("curve",) if linear.get(key)}
        for key, name in (("to_label", TO_LABEL), ("suspects", SUSPECTS)):
            if rows := linear.get(key):
                columns = job.recipe.task.columns if key == "to_label" else {}
                write_csv(run.path / name, rows, key == "to_label", columns)
                records = "texts" if key == "to_label" else "records"
                decision[key] = {"file": name, records: rows}
        tuned_model = run.path / FINETUNE / "model"
        checkpoint.write_folder(run.model, lambda folder: shutil.copytree(tuned_model, folder, dirs_exist_ok=True))
        seconds = sum(results.get("seconds", 0) for results in done) + linear["seconds"]
        labels = linear.get("labels") or sorted({x for r in data.labeled for x in labels_of(data.spec, r)})
        return {
            "path": str(run.path), "model": str(run.model), "metric": metric, "labels": labels, "counts": data.counts(),
            "steps": steps, **decision, "commands": _commands(job, run, labels, decision), "seconds": round(seconds, 1),
        }  # fmt: skip


def _check_words(recipe: Recipe, data: LearnData) -> None:
    """Raise UserError if the words do not fit the labels or hardly occur in the texts, before anything is trained."""
    if not recipe.task.words:
        return
    spec = TASKS[data.spec.name].SPEC
    if not spec.learner:
        raise UserError(f"--words: the task {spec.name} does not support it", expected="one label for each text")
    check_words(learner_class(spec).check_words(recipe.task.words, data.texts), data)


def _inputs(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of a recipe that reading files does not change."""
    return {name: getattr(recipe.task, name) for name in ("train", "dev", "test")}


def _linear_step(job: LearnJob, run: Run, model: Path, plan: LearnPlan, ctx: Context) -> None:
    """Train the linear model, and write the rows that the encoder is fine-tuned on."""
    start_time, data, recipe = time.monotonic(), job.data, job.recipe
    task_class = TASKS[data.spec.name]
    spec = task_class.SPEC
    words = learner_class(spec).check_words(recipe.task.words) if recipe.task.words else {}
    task_state: dict[str, Any] = {"labels": recipe.task.labels}
    if data.labeled:
        context = FitContext(recipe, hf.config_of(model), Tokenizer.load(model), [*data.check, *data.test])
        task_state = task_class.fit_state(context, data.labeled).task_state
    results: dict[str, Any] = {"steps": [], "labels": task_state.get("labels")}
    supported = bool(spec.learner) and learner_class(spec).supports(task_state)
    if words and not supported:
        raise UserError("--words needs records with one text and one label", hint="remove --words")
    if supported:
        train, dev = _split_dev(job)
        texts = [*(text_of(data.spec, r) for r in train), *data.texts]
        hidden = _hidden_states(run, model, texts, len(train), plan, ctx) if data.texts else None
        ctx.console.say("training the linear model …")
        with activity("training the linear model"):
            learner = learner_class(spec)(
                LearnInputs(task_state, train, data.texts, words, data.check, data.test, hidden, recipe.seed)
            )
            results |= {"steps": learner.steps} | learner.decide(NUM_TO_LABEL)
        for note in learner.notes:
            ctx.console.say(note)
        (run.path / LINEAR).mkdir(exist_ok=True)
        learner.save(run.path / LINEAR)
        rows = learner.training_records(plan.num_soft_labels(len(train), _seconds_per_text(run)))
        write_lines(run.path / "train.jsonl", rows)
        write_lines(run.path / "dev.jsonl", dev)
    run.write_json(LINEAR_RESULTS, results | {"seconds": time.monotonic() - start_time})


def _split_dev(job: LearnJob) -> tuple[list[Any], list[Any]]:
    """Hold out labeled records to choose the weights of a blend and calibrate it, if there are enough."""
    data, records = job.data, job.data.labeled
    if len(records) < MIN_RECORDS_FOR_DEV:
        return records, []
    strata = [" ".join(labels_of(data.spec, record)) for record in records]
    return split(data.spec, records, strata, min(DEV_FRACTION, MAX_DEV / len(records)), job.recipe.seed)


def _hidden_states(
    run: Run, model: Path, texts: Sequence[str], num_labeled: int, plan: LearnPlan, ctx: Context
) -> np.ndarray | None:
    """Return the mean hidden states of the labeled texts and of as many others as the plan has time for."""
    if (run.path / HIDDEN).exists():
        return np.load(run.path / HIDDEN)
    from unmask.inference.predictor import load

    predictor = load(model)
    if not (run.path / SPEED).exists():  # measured once: what follows must not depend on when a run was interrupted
        run.write_json(SPEED, {"seconds_per_text": plan.seconds_per_text(predictor, texts)})
    if not (count := plan.num_hidden(run.read_json(SPEED)["seconds_per_text"], len(texts), num_labeled)):
        return None
    with ctx.console.bar("hidden states") as update:
        hidden = np.asarray(predictor.embed(list(texts[:count]), pooling="mean", overflow="window", update=update))
    with new_file(run.path / HIDDEN) as file:
        np.save(file, hidden)
    return hidden


def _seconds_per_text(run: Run) -> float | None:
    return run.read_json(SPEED)["seconds_per_text"] if (run.path / SPEED).exists() else None


def _model_steps(tuned: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    """Return the scores of the fine-tuned model: each part alone, then both."""
    name = "test" if "test" in tuned else "dev"
    if name not in tuned:
        return []
    rows = []
    for row in tuned.get("components", []):
        if row["baseline"].startswith("encoder") and row["split"] == name:
            rows.append({"name": "fine-tuned model alone", "split": name, "score": row[metric]})
            if interval := fraction_interval(metric, row[metric], row["records"]):
                rows[-1]["low"], rows[-1]["high"] = interval
    interval = tuned.get("intervals", {}).get(name, {}).get(metric, (None, None))
    title = "both together" if rows else "fine-tuned model"
    last = {"name": title, "split": name, "score": tuned[name][metric], "low": interval[0], "high": interval[1]}
    last |= {"seconds": tuned["seconds"]} if "seconds" in tuned else {}
    return [*rows, last]


def write_csv(path: Path, rows: Sequence[dict[str, Any]], empty_label: bool, names: Mapping[str, str | int]) -> None:
    """Write rows as csv, with an empty column `label` to fill in if asked. `names`: those of the user's columns, by role."""
    columns = list(rows[0])
    if empty_label:
        columns.insert(1, "label")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_column_name(names, column) for column in columns)
    for row in rows:
        values = (row.get(column, "") for column in columns)
        writer.writerow(f"{value:.3f}" if isinstance(value, float) else value for value in values)
    write_text(path, text.getvalue())


def _column_name(names: Mapping[str, str | int], role: str) -> str:
    """Return the user's name of a column, or its role if the user gave a number."""
    name = str(names.get(role, role))
    return role if name.isdigit() else name


def _commands(job: LearnJob, run: Run, labels: Sequence[str], decision: dict[str, Any]) -> list[str]:
    """Return the next commands."""
    task, commands = job.recipe.task, []
    if "to_label" in decision:
        file = run.path / TO_LABEL
        model = job.recipe.init_from or str(run.path / PRETRAIN)
        options = [f"{flag} {quote(value)}" for flag, values in _options(job.recipe, model).items() for value in values]
        again = " ".join([command("unmask learn", *map(Path, task.train), file), *options])
        columns = {f"--{role}-column": _column_name(task.columns, role) for role in ("text", "label")}
        renamed = [f"{flag} {quote(name)}" for flag, name in columns.items() if flag != f"--{name}-column"]
        label = f"{command('unmask label', file)} --labels {quote(','.join(labels))}"
        commands += [" ".join([label, *renamed, "--then", quote(again)]), again]
    commands.append(command("unmask predict", run.path, "FILE"))
    return commands


def _options(recipe: Recipe, model: str) -> dict[str, list[str]]:
    task, data = recipe.task, recipe.data
    usual = type(data)()
    settings = [
        name for name in ("text_column", "document_boundary", "encoding") if getattr(data, name) != getattr(usual, name)
    ]
    options = {"--text": task.unlabeled, "--words": task.words, "--check": task.dev, "--test": task.test}
    return options | {
        "--column": [f"{name}={column}" for name, column in task.columns.items()],
        "--set": [f"data.{name}={getattr(data, name)}" for name in settings],
        "--seed": [str(recipe.seed)] if recipe.seed else [],
        "--from": [model],
        "--minutes": [f"{recipe.train.minutes:g}"] if recipe.train.minutes else [],
    }
