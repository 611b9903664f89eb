"""Context: what surrounds a run. The processes that train it, the terminal, and who is told what."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from unmask.console import Console
from unmask.recipe import TrainRecipe
from unmask.train import track
from unmask.train.distributed import World
from unmask.train.fit import Watch
from unmask.train.run import Run
from unmask.train.trainer import pick_device

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    world: World
    console: Console
    report: Callable[[Run], None] = lambda run: None  # writes what people look at, when a run has ended
    watch: Watch | None = None  # is told the deciding score at each evaluation; may end the run by an exception
    title: str = ""  # of the progress bar; "" = the kind of run
    cache: dict[Any, Any] = field(default_factory=dict)  # labelled files that were read, for all runs of a loop

    @classmethod
    @contextmanager
    def join(
        cls, train: TrainRecipe, console: Console, report: Callable[[Run], None] = lambda run: None
    ) -> Iterator["Context"]:
        """The processes of a run, which are left at its end; only the first one speaks."""
        track.check(train.track)
        if train.threads:
            torch.set_num_threads(train.threads)
        world = World.join(pick_device(train.device).type)
        yield cls(world, console if world.main else Console(quiet=True), report)
        world.leave()

    @classmethod
    def alone(cls, console: Console | None = None) -> "Context":
        """One process that says nothing, unless there is somebody to say it to."""
        return cls(World(0, 1), console or Console(quiet=True))

    @property
    def main(self) -> bool:
        return self.world.main

    def once(self, make: Callable[[], T]) -> T:
        """What the first process makes, on every process."""
        return self.world.share(make() if self.main else None)

    def quietly(self, watch: Watch | None = None) -> "Context":
        """For a run that is one of many: nothing is said of it, nothing reported."""
        return replace(self, console=Console(quiet=True), report=lambda run: None, watch=watch)

    def titled(self, title: str) -> "Context":
        return replace(self, title=title)
