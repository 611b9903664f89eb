"""Context: what surrounds a run. The processes that train it, the terminal, and who is told what."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from unmask.console import Console
from unmask.recipe import TrainRecipe
from unmask.train import tensorboard
from unmask.train.distributed import World
from unmask.train.fit import EvalCallback
from unmask.train.run import Run
from unmask.train.trainer import pick_device

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    world: World
    console: Console
    report: Callable[[Run], None] = lambda run: None  # writes what people look at, when a run has ended
    eval_callback: EvalCallback | None = (
        None  # is told the deciding score at each evaluation; may end the run by an exception
    )
    title: str = ""  # of the progress bar; "" = the kind of run
    cache: dict[Any, Any] = field(default_factory=dict)  # labelled files that were read, for all runs of a loop

    @classmethod
    @contextmanager
    def init(
        cls, train: TrainRecipe, console: Console, report: Callable[[Run], None] = lambda run: None
    ) -> Iterator["Context"]:
        """The processes of a run, which are left at its end; only the first one speaks."""
        tensorboard.check(train.track)
        if train.threads:
            torch.set_num_threads(train.threads)
        world = World.init(pick_device(train.device).type)
        yield cls(world, console if world.is_main else Console(quiet=True), report)
        world.close()

    @classmethod
    def single_process(cls, console: Console | None = None) -> "Context":
        """One process that says nothing, unless there is somebody to say it to."""
        return cls(World(0, 1), console or Console(quiet=True))

    @property
    def is_main(self) -> bool:
        return self.world.is_main

    def on_main(self, make: Callable[[], T]) -> T:
        """What the first process makes, on every process."""
        return self.world.broadcast(make() if self.is_main else None)

    def silent(self, eval_callback: EvalCallback | None = None) -> "Context":
        """For a run that is one of many: nothing is said of it, nothing reported."""
        return replace(self, console=Console(quiet=True), report=lambda run: None, eval_callback=eval_callback)

    def with_title(self, title: str) -> "Context":
        return replace(self, title=title)
