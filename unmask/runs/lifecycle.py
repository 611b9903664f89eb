"""The life of a run, the same for every kind: check → prepare → begin → run → finish; and from its last checkpoint on.

    check    what can be wrong with a recipe, before anything is read
    prepare  data and model; nothing of it stands in the folder of the run
    begin    the folder: run.json, environment.json, the kind's own files, recipe.yaml
    run      of a model: work → plan → fit; of a loop (`loops.py`): one run after the other
    finish   judge and save; what it returns is results.json

`execute` begins a run, `resume` goes on with one, `ensure` does what is left to do of one that belongs to a loop, `dry_run` says what
one would be. A `Kind` says only what differs.
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
    """A run that goes on: its folder, and its last whole checkpoint."""

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
    """What a run is about to do, known before it has a folder."""

    recipe: Recipe  # with what data and model decided
    name: str  # of the folder, where none is given
    files: Mapping[str, Any] = field(default_factory=dict)  # name → JSON that stands in the folder from the beginning
    warnings: list[str] = field(default_factory=list)  # said when the run begins

    def headline(self, run: Run) -> str:
        """Said when the run begins."""
        return ""


J = TypeVar("J", bound=Job)


class Kind(ABC, Generic[J]):
    """A kind of run, registered in `registry.RUNS` under the name that run.json holds."""

    name: ClassVar[str]
    folder: ClassVar[str]  # below runs/, where no other one is given

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        """Everything that can be wrong before anything is read."""
        return recipe

    @abstractmethod
    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> J: ...

    @abstractmethod
    def run(self, job: J, run: Run, ctx: Context, resume_state: ResumeState | None) -> None:
        """From the folder to results.json, which the first process writes."""

    def extend_results(self, run: Run, ctx: Context) -> bool:
        """What is added to the results once they are there; whether there was anything to add."""
        return False


class TrainingKind(Kind[J]):
    """A run that trains one model."""

    @abstractmethod
    def work(self, job: J, ctx: Context, run: Run | None = None) -> Workload:
        """What is trained; with a folder also what is made once and kept in it."""

    @abstractmethod
    def finish(self, job: J, run: Run, state: State, ctx: Context) -> dict[str, Any]:
        """Judge and save the model: its results. Only the first process gets here."""

    @abstractmethod
    def estimate(self, recipe: Recipe, ctx: Context) -> dict[str, Any]:
        """What `--dry-run` says of a run of a checked recipe."""

    def run(self, job: J, run: Run, ctx: Context, resume_state: ResumeState | None) -> None:
        last = resume_state.last if resume_state else None
        if resume_state:
            ctx.console.say(f"continuing {run.path} at step {resume_state.step:,}")
            if ctx.is_main:
                run.truncate_log(resume_state.step if last else None)
        work = self.work(job, ctx, run)
        plan = self._plan(job, work, run, ctx)
        for text in chain(work.ready(plan, last is None), work.notes(plan)):
            ctx.console.say(text)
        for text in work.warnings:
            ctx.console.warn(text)
        ctx.world.broadcast_weights(work.model)
        trainer = work.trainer(plan)
        health = work.health(plan) if ctx.is_main else None
        title = ctx.title or self.name
        training = Training(trainer, work.loader, work.save, work.evaluation(trainer), health, title, ctx.eval_callback)
        state = fit(run, training, ctx.console, last)
        ctx.world.barrier()
        if ctx.is_main:
            finished = time.monotonic()
            results = self.finish(job, run, state, ctx)
            log = Log(run.log)
            log.write("end", step=state.step, elapsed=round(state.elapsed, 2), evaluation=state.evaluation)
            log.close()
            run.write_json("results.json", results)  # last: a run that has them is finished
            seconds = state.elapsed + time.monotonic() - finished
            ctx.console.say(f"done in {clock(seconds)}: {', '.join(map(str, work.models(run)))}")

    def _plan(self, job: J, work: Workload, run: Run, ctx: Context) -> Plan:
        """The budget as steps: as it was frozen, or frozen now."""
        known = ctx.on_main(lambda: run.read_json("plan.json") if (run.path / "plan.json").exists() else None)
        if known:
            return Plan.from_dict(known)
        plan, job.recipe = make_plan(work, job.recipe, ctx)
        if ctx.is_main:
            run.write_recipe(job.recipe)
            run.write_json("plan.json", plan.as_dict())
        return plan


def execute(kind: Kind[J], recipe: Recipe, ctx: Context, out: str | Path | None = None) -> Run:
    """A new run, from its recipe to its report."""
    if out is not None:
        Run.ensure_new(out)
    recipe = kind.check(recipe, ctx)
    check_recipe(recipe.text())
    job = kind.prepare(recipe, ctx)
    run = Run(ctx.on_main(lambda: str(Run.create(out, kind.folder, job.name).path)))
    with _locked(run, ctx):
        if ctx.is_main:
            run.write_start_files(kind.name, job.recipe, job.files)
        for text in job.warnings:
            ctx.console.warn(text)
        if text := job.headline(run):
            ctx.console.say(text)
        kind.run(job, run, ctx, None)
        _finish_up(kind, run, ctx)
    return run


def resume(run: Run, ctx: Context) -> Run:
    """Go on with a run of any kind, bit for bit as if it had never stopped."""
    kind: Kind = RUNS[run.kind()]()
    with _locked(run, ctx):
        finished = ctx.on_main(run.is_finished)
        if finished:
            ctx.console.say(f"{run.path} is finished")
        else:
            resume_state = ResumeState(run, checkpoint.latest(run.checkpoints, ctx.console.warn))
            kind.run(kind.prepare(run.recipe(), ctx, resume_state), run, ctx, resume_state)
        _finish_up(kind, run, ctx, reported=finished and (run.path / "report.html").exists())
    return run


def run_or_resume(kind: Kind, recipe: Recipe, path: Path, ctx: Context) -> dict[str, Any]:
    """The results of a run that belongs to a loop: of a finished one as they are; one that was begun goes on; else it is a new one."""
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
    """Older recipes do not say that a model is to be drawn: of such a run only a checkpoint tells."""
    return run.is_resumable() and ((run.path / "run.json").exists() or bool(checkpoint.steps(run.checkpoints)))


def dry_run(kind: TrainingKind[J], recipe: Recipe, ctx: Context) -> dict[str, Any]:
    """What a run would be: nothing is trained or written."""
    return kind.estimate(kind.check(recipe, ctx), ctx)


@contextmanager
def _locked(run: Run, ctx: Context) -> Iterator[None]:
    """One process writes into the folder, and whoever stops it is told how to go on: with the outermost run of several."""
    try:
        with resumable_with(run.resume_command), run.lock() if ctx.is_main else nullcontext():
            yield
    except TrainingInterrupted as stopped:
        raise TrainingInterrupted(
            stopped.message, hint=run.resume_command() or str(stopped.hint), code=stopped.code
        ) from None


def _finish_up(kind: Kind, run: Run, ctx: Context, reported: bool = False) -> None:
    added = kind.extend_results(run, ctx)
    if ctx.is_main and (added or not reported):
        ctx.report(run)
