"""The stages of a run, the same for every kind of run:

    check    reject an invalid recipe before any data is read
    prepare  read the data and load the model, without writing to the run folder
    start    create the folder with run.json, environment.json, files of the kind and recipe.yaml
    run      train a model (work → plan → fit), or for a loop (`loops.py`) execute one run after the other
    finish   evaluate and save the model, write results.json

`execute` starts a run, `resume` continues one from its last checkpoint, `run_or_resume` completes a run that belongs to a loop,
and `dry_run` estimates one. A `Kind` implements the stages that differ between kinds of runs.
"""

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from unmask.console import clock
from unmask.errors import UserError
from unmask.files import check_recipe
from unmask.recipe import Recipe
from unmask.registry import RUNS
from unmask.runs.budget import Workload, make_plan
from unmask.runs.context import Context
from unmask.stopping import resumable_with
from unmask.train import checkpoint
from unmask.train.fit import State, Training, TrainingInterrupted, fit
from unmask.train.log import Log
from unmask.train.run import Run
from unmask.train.schedule import Plan


@dataclass
class ResumeState:
    """A run that is resumed: its folder and its last intact checkpoint."""

    run: Run
    last: checkpoint.Checkpoint | None = None

    @property
    def weights(self) -> Path | None:
        return self.last.model if self.last else None

    @property
    def step(self) -> int:
        return self.last.state["step"] if self.last else 0


@dataclass
class Job:
    """Everything known about a run before its folder exists."""

    recipe: Recipe  # with the settings that depend on data and model
    name: str  # of the default folder
    files: Mapping[str, Any] = field(default_factory=dict)  # name → JSON, written when the run starts
    warnings: list[str] = field(default_factory=list)  # printed when the run starts

    def headline(self, run: Run) -> str:
        """Return the text that is printed when the run starts."""
        return ""


J = TypeVar("J", bound=Job)


class Kind(ABC, Generic[J]):
    """A kind of run, registered in `registry.RUNS` under the name in run.json."""

    name: ClassVar[str]
    folder: ClassVar[str]  # default parent folder, below runs/

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        """Raise a UserError for an invalid recipe, before any data is read."""
        return recipe

    @abstractmethod
    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> J: ...

    @abstractmethod
    def run(self, job: J, run: Run, ctx: Context, resume_state: ResumeState | None) -> None:
        """Do the work of the run. The main process writes results.json."""

    def extend_results(self, run: Run, ctx: Context) -> bool:
        """Add to existing results; return whether anything was added."""
        return False


class TrainingKind(Kind[J]):
    """A run that trains one model."""

    @abstractmethod
    def work(self, job: J, ctx: Context, run: Run | None = None) -> Workload:
        """Return the workload. With a run folder, also create the files that are made once and kept in it."""

    @abstractmethod
    def finish(self, job: J, run: Run, state: State, ctx: Context) -> dict[str, Any]:
        """Evaluate and save the model and return its results. Called in the main process only."""

    @abstractmethod
    def estimate(self, recipe: Recipe, ctx: Context) -> dict[str, Any]:
        """Return the output of `--dry-run` for a checked recipe."""

    def run(self, job: J, run: Run, ctx: Context, resume_state: ResumeState | None) -> None:
        last = resume_state.last if resume_state else None
        if resume_state:
            ctx.console.say(f"continuing {run.path} at step {resume_state.step:,}")
            if ctx.is_main:
                run.truncate_log(resume_state.step if last else None)
        work = self.work(job, ctx, run)
        plan = self._plan(job, work, run, ctx)
        for text in chain(work.before_training(plan, last is None), work.notes(plan)):
            ctx.console.say(text)
        for text in work.warnings:
            ctx.console.warn(text)
        ctx.world.broadcast_weights(work.model)
        trainer = work.trainer(plan, job.recipe.train)
        monitor = work.monitor(plan) if ctx.is_main else None
        title = ctx.title or self.name
        evaluation = work.evaluation(trainer)
        training = Training(trainer, work.loader, work.save, evaluation, monitor, title, ctx.eval_callback)
        state = fit(run, training, ctx.console, last)
        ctx.world.barrier()
        if ctx.is_main:
            start_time = time.monotonic()
            results = self.finish(job, run, state, ctx)
            log = Log(run.log)
            log.write("end", step=state.step, elapsed=round(state.elapsed, 2), evaluation=state.evaluation)
            log.close()
            run.write_json("results.json", results)  # last, since it marks the run as finished
            seconds = state.elapsed + time.monotonic() - start_time
            ctx.console.say(f"done in {clock(seconds)}: {', '.join(map(str, work.models(run)))}")

    def _plan(self, job: J, work: Workload, run: Run, ctx: Context) -> Plan:
        """Return the plan in plan.json, or make it from the budget and save it."""
        saved = ctx.on_main(lambda: run.read_json("plan.json") if (run.path / "plan.json").exists() else None)
        if saved:
            return Plan.from_dict(saved)
        plan, job.recipe = make_plan(work, job.recipe, ctx)
        if ctx.is_main:
            run.write_recipe(job.recipe)
            run.write_json("plan.json", plan.as_dict())
        return plan


def execute(kind: Kind[J], recipe: Recipe, ctx: Context, out: str | Path | None = None) -> Run:
    """Execute a new run, from its recipe to its report."""
    if out is not None:
        Run.ensure_new(out)
    recipe = kind.check(recipe, ctx)
    check_recipe(recipe.text())
    job = kind.prepare(recipe, ctx)
    run = Run(ctx.on_main(lambda: str(Run.create(out, kind.folder, job.name).path)))
    with _removed_if_not_started(run, ctx), _locked(run, ctx):
        if ctx.is_main:
            run.write_start_files(kind.name, job.recipe, job.files)
        for text in job.warnings:
            ctx.console.warn(text)
        if text := job.headline(run):
            ctx.console.say(text)
        kind.run(job, run, ctx, None)
        _extend_and_report(kind, run, ctx)
    return run


def resume(run: Run, ctx: Context) -> Run:
    """Resume a run of any kind. The result is bit-for-bit that of an uninterrupted run."""
    kind: Kind = RUNS[run.kind()]()
    with _locked(run, ctx):
        finished = ctx.on_main(run.is_finished)
        if finished:
            ctx.console.say(f"the run {run.path} is finished already")
        else:
            resume_state = ResumeState(run, checkpoint.latest(run.checkpoints, ctx.console.warn))
            kind.run(kind.prepare(run.recipe(), ctx, resume_state), run, ctx, resume_state)
        _extend_and_report(kind, run, ctx, has_report=finished and (run.path / "report.html").exists())
    return run


def run_or_resume(kind: Kind, recipe: Recipe, path: Path, ctx: Context) -> dict[str, Any]:
    """Return the results of a run that belongs to a loop, after starting or resuming it if it is not finished."""
    run = Run(path)
    if ctx.on_main(lambda: _can_resume(run)):
        resume(run, ctx)
    else:
        if ctx.is_main:
            shutil.rmtree(path, ignore_errors=True)
        ctx.world.barrier()
        execute(kind, recipe, ctx, path)
    return ctx.on_main(run.results)


def _can_resume(run: Run) -> bool:
    """Return whether a run can be resumed.

    Runs of older versions have no run.json, and their recipe does not say whether training starts from random weights. They can be
    resumed only from a checkpoint.
    """
    return run.is_resumable() and ((run.path / "run.json").exists() or bool(checkpoint.steps(run.checkpoints)))


def dry_run(kind: TrainingKind[J], recipe: Recipe, ctx: Context) -> dict[str, Any]:
    """Estimate a run without training or writing anything."""
    return kind.estimate(kind.check(recipe, ctx), ctx)


@contextmanager
def _removed_if_not_started(run: Run, ctx: Context) -> Iterator[None]:
    """Remove the new folder if the run fails with a user's mistake before anything was trained, so that `--out` can be used again."""
    try:
        yield
    except UserError as error:
        started = run.log.exists() or any(path.is_dir() for path in run.path.glob("*"))
        if ctx.is_main and not started and not isinstance(error, TrainingInterrupted):
            shutil.rmtree(run.path, ignore_errors=True)
        raise


@contextmanager
def _locked(run: Run, ctx: Context) -> Iterator[None]:
    """Lock the folder. If the run is interrupted, the error names the command that resumes it (for a loop, the loop's)."""
    try:
        with resumable_with(run.resume_command), run.lock() if ctx.is_main else nullcontext():
            yield
    except TrainingInterrupted as stopped:
        raise TrainingInterrupted(
            stopped.progress, hint=run.resume_command() or str(stopped.hint), code=stopped.code
        ) from None


def _extend_and_report(kind: Kind, run: Run, ctx: Context, has_report: bool = False) -> None:
    extended = kind.extend_results(run, ctx)
    if ctx.is_main and (extended or not has_report):
        ctx.report(run)
