"""Runs that consist of other runs (child runs): seeds, tune, quickstart. Each child has its own folder below the loop's.

The next child is a function of the results so far. So an interrupted loop is resumed by starting it again: finished children
return their results at once, and the interrupted one is resumed.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from unmask.recipe import Recipe
from unmask.registry import RUNS
from unmask.runs.context import Context
from unmask.runs.lifecycle import J, Kind, ResumeState, run_or_resume
from unmask.train.run import Run


@dataclass(frozen=True)
class Child:
    """One run of a loop."""

    name: str  # of its folder
    kind: str  # key of `registry.RUNS`
    recipe: Recipe
    title: str = ""  # of its progress bar


class Loop(Kind[J]):
    @abstractmethod
    def next(self, job: J, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> Child | None:
        """Return the next child, given the results of the previous ones; None if there are no more."""

    @abstractmethod
    def finish(self, job: J, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        """Return the combined results for results.json. Called in the main process only."""

    def run_child(self, job: J, child: Child, run: Run, ctx: Context) -> dict[str, Any]:
        return run_or_resume(RUNS[child.kind](), child.recipe, run.path / child.name, ctx.with_title(child.title))

    def run(self, job: J, run: Run, ctx: Context, resume_state: ResumeState | None) -> None:
        done: list[dict[str, Any]] = []
        precision: dict[str, str] = {}  # kind of run → chosen by a child; the next ones use the same and need no trial
        while child := self.next(job, run, done, ctx):
            if child.kind in precision and child.recipe.train.precision == "auto":
                child = replace(child, recipe=child.recipe.changed(train={"precision": precision[child.kind]}))
            done.append(self.run_child(job, child, run, ctx))
            precision[child.kind] = ctx.on_main(Run(run.path / child.name).recipe).train.precision
        if ctx.is_main:
            run.write_json("results.json", self.finish(job, run, done, ctx))
