"""Context of a run: its processes, the console, and the callbacks for evaluations and the report."""

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
    report: Callable[[Run], None] = lambda run: None  # writes the report of a finished run
    eval_callback: EvalCallback | None = None  # called with the selection metric; may raise to end training
    title: str = ""  # title of the progress bar; "": the kind of run
    cache: dict[Any, Any] = field(default_factory=dict)  # labeled files, shared by the runs of a loop

    @classmethod
    @contextmanager
    def init(
        cls, train: TrainRecipe, console: Console, report: Callable[[Run], None] = lambda run: None
    ) -> Iterator["Context"]:
        """Join the process group of a run and leave it at the end. Only the main process prints."""
        tensorboard.check(train.track)
        if train.threads:
            torch.set_num_threads(train.threads)
        world = World.init(pick_device(train.device).type)
        yield cls(world, console if world.is_main else Console(quiet=True), report)
        world.close()

    @classmethod
    def single_process(cls, console: Console | None = None) -> "Context":
        """Return the context of a single process, which prints to `console` if given."""
        return cls(World(0, 1), console or Console(quiet=True))

    @property
    def is_main(self) -> bool:
        return self.world.is_main

    def on_main(self, function: Callable[[], T]) -> T:
        """Call a function in the main process and return its result in every process."""
        return self.world.broadcast(function() if self.is_main else None)

    def silent(self, eval_callback: EvalCallback | None = None) -> "Context":
        """Return a context that prints nothing and writes no report, for one run of many."""
        return replace(self, console=Console(quiet=True), report=lambda run: None, eval_callback=eval_callback)

    def with_title(self, title: str) -> "Context":
        return replace(self, title=title)
