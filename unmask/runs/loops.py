"""A run that is made of runs: seeds, tune, quickstart. Each of them stands in a folder of its own, below the loop's.

What comes next is a function of what is done. So a loop that was stopped goes on by beginning again: a finished run gives its
results at once, the one that was stopped goes on.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
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
    kind: str  # as in `registry.RUNS`
    recipe: Recipe
    title: str = ""  # of its progress bar


class Loop(Kind[J]):
    @abstractmethod
    def next(self, job: J, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> Child | None:
        """The run after those whose results are known; None when there is no further one."""

    @abstractmethod
    def finish(self, job: J, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        """What the runs say together: results.json. Only the first process gets here."""

    def run_child(self, job: J, child: Child, run: Run, ctx: Context) -> dict[str, Any]:
        return run_or_resume(RUNS[child.kind](), child.recipe, run.path / child.name, ctx.with_title(child.title))

    def run(self, job: J, run: Run, ctx: Context, resume_state: ResumeState | None) -> None:
        done: list[dict[str, Any]] = []
        while child := self.next(job, run, done, ctx):
            done.append(self.run_child(job, child, run, ctx))
        if ctx.is_main:
            run.write_json("results.json", self.finish(job, run, done, ctx))
