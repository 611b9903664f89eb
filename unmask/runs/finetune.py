"""Fine-tuning: labelled files through the same loader, trainer and checkpoints as pre-training, to a model that answers.

`prepare` (`job.py`) reads and checks the files and builds task and model; `train` fits them; `finish` tunes on the dev set what a loss does not
learn, judges the best model on the test set, and writes everything a person wants to see.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from unmask import report as reports
from unmask.batch import Example
from unmask.console import Console, clock
from unmask.errors import UserError
from unmask.labels.findings import KEPT, as_rows
from unmask.labels.record_sets import Opened, sizes, warn_of
from unmask.labels.records import Finding, Record
from unmask.model import hf
from unmask.objectives.objective import Objective
from unmask.recipe import Recipe
from unmask.runs import augment, budget
from unmask.runs.job import Job, open_teacher, prepare
from unmask.tasks import aux_mlm, teacher
from unmask.tasks.intervals import intervals
from unmask.tasks.objective import objective_of
from unmask.tasks.rows import even_out
from unmask.tasks.task import RecordRows
from unmask.train import checkpoint
from unmask.train.distributed import World
from unmask.train.fit import Evaluation, describe, doubt_of, fit, open_log
from unmask.train.loader import Bucketed, micro_size
from unmask.train.run import Run, environment
from unmask.train.schedule import Plan
from unmask.train.trainer import Trainer

Watch = Callable[[float], None]  # gets the score that decides at each evaluation; may end training by an exception


def rows_of(
    job: Job, encoded: Sequence[Sequence[Example]] | None = None, objective: Objective | None = None
) -> Bucketed:
    """The training records as rows; `encoded`: those of each, where they are known."""
    encoded = [job.task.encode(record) for record in job.sets.train] if encoded is None else encoded
    even_out(job.task.SPEC, encoded)
    examples = [e for several in encoded for e in several]
    lengths = [max(len(row) for row in (e, *e.more)) for e in examples]
    tokenizer = job.task.tokenizer
    held = [row.ids for e in examples for row in (e, *e.more)]
    tokens = np.unique(np.concatenate([*held, np.flatnonzero(tokenizer.special)]))  # [MASK] may be put into a row
    rows = RecordRows(examples, tokenizer.pad)
    return Bucketed(rows, lengths, job.recipe.train.batch, objective or objective_of(job.task), job.recipe.seed, tokens)


def with_more(
    job: Job,
    records: Sequence[Record],
    encoded: Sequence[Sequence[Example]],
    run: Run,
    world: World,
    console: Console,
) -> Objective:
    """The task as it is trained: with a teacher's answers, and MLM beside it, where these are asked for."""
    known, job.teacher = job.teacher or open_teacher(job, console.say), None
    if known:
        theirs = known.need_task()
        run.hold(f"task.teacher: {job.recipe.task.teacher}", teacher.fingerprint(known.model, theirs), world.main)
        with console.bar("teacher") as update:
            return aux_mlm.beside(teacher.teach(job.task, known.model, theirs, records, encoded, update))
    return aux_mlm.beside(objective_of(job.task, world.size))


def say_remarks(job: Job, console: Console, world: World, count: int, gathered: bool = False) -> None:
    """What a person should know before training begins; after `rows_of` of the `count` records, which counts long texts."""
    task = job.task
    for text in job.notes:
        console.say(text)
    batch = job.recipe.train.batch
    together = micro_size(batch, job.recipe.train.micro_batch, world.size) * (world.size if gathered else 1)
    for text in task.windowing.said(count) + (task.apart(together, batch) if together < batch else []):
        console.say(text)


def seen_of(job: Job, console: Console) -> list[Record]:
    """The dev records that are answered while training."""
    seen = job.sets.dev[: job.recipe.train.eval_rows]
    if len(seen) < len(job.sets.dev):
        console.say(
            f"while training, {len(seen):,} of the {len(job.sets.dev):,} dev records are answered; at the end, all"
        )
    return seen


def train(
    job: Job,
    run: Run,
    world: World,
    console: Console,
    resume: checkpoint.Checkpoint | None = None,
    title: str = "finetune",
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Fit the model; it ends as the last one, or one that was better on the dev set. Returns the final state."""
    recipe, task, model = job.recipe, job.task, job.model
    records = [*job.sets.train, *augment.rows(recipe, job.sets.train, run, world, console)]
    encoded = [task.encode(record) for record in records]
    objective = with_more(job, records, encoded, run, world, console)
    loader = rows_of(job, encoded, objective)
    longest, count = int(loader.lengths.max()), len(loader.lengths)
    say_remarks(job, console, world, len(records), gathered=not recipe.task.teacher)
    seen = seen_of(job, console)

    def trainer_of(p: Plan) -> Trainer:
        return Trainer(model, objective, recipe.train, p, recipe.seed, world, loader.tokens)

    def look() -> None:
        task.answer(model, seen)

    p, job.recipe = settle(
        run, recipe, resume, world,
        lambda: budget.make_plan(recipe, longest, count, loader, trainer_of, look, world, console),
    )  # fmt: skip
    recipe = job.recipe
    trainer = trainer_of(p)

    def measure() -> dict[str, Any]:
        values = dict(task.score(task.answer(model, seen), seen))
        if watch and task.metric in values:
            watch(float(values[task.metric]))
        return values

    if seen and not type(task).heads and not watch and world.main:
        look_first(run, recipe, measure, console)
    doubt = doubt_of({task.metric: len(seen)}, recipe.task.margin)
    evaluation = Evaluation(measure, task.metric, higher=True, patience=recipe.task.patience, first=False, doubt=doubt)
    state = fit(run, trainer, loader, evaluation if seen else None, job.save, console, resume=resume, title=title)
    world.barrier()
    aux_mlm.drop(model, task.heads)
    best = state["best"]
    if best and best["step"] < state["step"]:
        restore(job, run.checkpoints / "best" / "model")
        console.say(f"the model of step {best['step']:,} is kept: {describe({task.metric: best[task.metric]})}")
    return state


def look_first(run: Run, recipe: Recipe, measure: Callable[[], dict[str, Any]], console: Console) -> None:
    """What a model that needs no new head reaches before it is trained: said and logged once, and never a choice for the model to keep."""
    if any(e.get("event") == "eval" for e in run.events()):
        return
    values = measure()
    console.say(f"  before training  held-out {describe(values)}")
    log = open_log(run, recipe.train, 0)
    log.write("eval", step=0, elapsed=0.0, **values)
    log.close()


def settle(
    run: Run,
    recipe: Recipe,
    resume: checkpoint.Checkpoint | None,
    world: World,
    make: Callable[[], tuple[Plan, Recipe]],
) -> tuple[Plan, Recipe]:
    """The plan of a run that goes on; else the one that `make` gives, with the recipe that it freezes, written down."""
    if resume:
        return Plan.from_dict(run.read_json("plan.json")), recipe
    p, frozen = make()
    if world.main:
        frozen.write(run.path / "recipe.yaml")
        run.write_json("plan.json", p.as_dict())
    return p, frozen


def restore(job: Job, folder: Path) -> None:
    """The weights of a checkpoint's model into the job's."""
    kept = hf.load(folder, job.task.heads, job.task.changes(job.model.config)).model
    job.model.load_state_dict(kept.state_dict())


def finish(job: Job, run: Run, state: dict[str, Any], console: Console) -> dict[str, Any]:
    """Thresholds from the dev set, the model's folder, and what it is worth on dev and test."""
    task = job.task
    results: dict[str, Any] = {"task": task.name, "metric": task.metric, "step": state["step"], "best": state["best"]}
    aux_mlm.drop(job.model, task.heads)
    scores, details = assess(job, run, console)
    results |= scores
    results["lr"] = job.recipe.train.lr
    results["seconds"] = round(state["elapsed"], 1)
    results["model"] = str(run.model)
    checkpoint.write_folder(run.model, job.save)
    run.write_json("details.json", details)
    run.write_json("results.json", results)
    return results


def assess(job: Job, run: Run, console: Console, prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """(scores, details) on dev and test; what is tuned is tuned on dev. The answers go to `dev.predictions.jsonl` …"""
    task, model, sets = job.task, job.model, job.sets
    results: dict[str, Any] = {}
    details: dict[str, Any] = {}
    between: dict[str, Any] = {}
    task.complete(model)
    for name, records in (("dev", sets.dev), ("test", sets.test)):
        if not records:
            continue
        task.windowing.restart()
        with console.bar(name) as update:
            outputs = task.compute(model, records, update)
        for what in task.windowing.not_read(len(records)):
            console.warn(f"{name}: {what}")
        if name == "dev":
            task.tune(outputs, records)
        answers = task.for_score(model, task.decode(outputs), records)
        results[name] = {"records": len(records), **task.score(answers, records)}
        between[name] = intervals(task, answers, records, results[name])
        details[name] = task.details(answers, records)
        lines = [{"at": r["at"], **a} for r, a in zip(records, answers)]
        text = "".join(json.dumps(line, ensure_ascii=False, default=float) + "\n" for line in lines)
        (run.path / f"{prefix}{name}.predictions.jsonl").write_text(text, "utf-8")
    return results | {"intervals": between}, details


def run_one(recipe: Recipe, run: Run, world: World, console: Console, opened: Opened | None = None) -> dict[str, Any]:
    """One run from its files to its results, in a folder that is there and empty."""
    if recipe.tasks:
        from unmask.runs import multitask  # which uses this module

        return multitask.run_tasks(recipe, run, world, console)
    return run_job(prepare(recipe, opened=opened), run, world, console)


def run_job(
    job: Job, run: Run, world: World, console: Console, title: str = "finetune", watch: Watch | None = None
) -> dict[str, Any]:
    job.teacher = open_teacher(job, console.say)  # one that does not fit is said before anything is written
    with run.lock() if world.main else nullcontext():
        if world.main:
            write_down(run, job.recipe, sizes(job.sets), job.sets.fingerprint(), job.task.learnt, job.sets.findings)
            warn_of(job.sets.findings, console)
        console.say(announce(job, run))
        return _end(job, run, world, console, train(job, run, world, console, title=title, watch=watch), not watch)


def write_down(
    run: Run, recipe: Recipe, records: Any, key: str, learnt: dict[str, Any], findings: Sequence[Finding]
) -> None:
    """Everything that a resumed run has to find, before the first step."""
    run.write_kind("finetune")
    recipe.write(run.path / "recipe.yaml")
    run.write_json("environment.json", environment())
    run.write_json("data.json", {"records": records, "key": key})
    run.write_json("learnt.json", learnt)
    run.write_json("findings.json", as_rows(findings, KEPT))


def go_on(run: Run, last: checkpoint.Checkpoint | None, key: str, world: World, console: Console) -> None:
    """The log back to the last checkpoint; refused when the records (`key`) are not those that the run was begun with."""
    if key != run.read_json("data.json")["key"]:
        raise UserError(
            f"the labelled files of {run.path} have changed since it was begun",
            fix="a new run: unmask finetune with another --out",
        )
    done = last.state["step"] if last else 0
    if world.main:
        run.rewind(done)
    console.say(f"continuing {run.path} at step {done:,}")


def resume(run: Run, world: World, console: Console, watch: Watch | None = None) -> dict[str, Any]:
    """Go on with a run from its last whole checkpoint, bit for bit as if it had never stopped."""
    with run.lock() if world.main else nullcontext():
        if (run.path / "results.json").exists():
            console.say(f"{run.path} is finished")
            if world.main and not watch and not (run.path / "report.html").exists():
                reports.write(run)
            return run.read_json("results.json")
        last = checkpoint.latest(run.checkpoints, console.warn)
        if run.recipe().tasks:
            from unmask.runs import multitask

            return multitask.resume_tasks(run, last, world, console)
        job = prepare(run.recipe(), last.model if last else None, run.read_json("learnt.json"))
        go_on(run, last, job.sets.fingerprint(), world, console)
        return _end(job, run, world, console, train(job, run, world, console, last, watch=watch), not watch)


def _end(
    job: Job, run: Run, world: World, console: Console, state: dict[str, Any], report: bool = True
) -> dict[str, Any]:
    if not world.main:
        return {}
    begun = time.monotonic()
    results = finish(job, run, state, console)
    if report:
        reports.write(run)
    console.say(f"done in {clock(state['elapsed'] + time.monotonic() - begun)}: {run.model}")
    return results


def announce(job: Job, run: Run) -> str:
    sets = ", ".join(f"{n:,} {name}" for name, n in sizes(job.sets).items() if n)
    trained = sum(p.numel() for p in job.model.parameters() if p.requires_grad)
    columns = ", ".join(f"{role} ← {name}" for role, name in job.sets.columns.items())
    taken = "; ".join(text for text in (columns, job.task.describe(job.sets.train)) if text)
    return (f"{job.task.name}: {taken}\n" if taken else "") + (
        f"{job.task.name}: {sets} records; {job.recipe.start}, {trained:,} parameters to train, "
        f"lr {job.recipe.train.lr:.2g} → {run.path}"
    )
