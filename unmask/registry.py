"""Registries of objectives, tasks, optimizers, …: names and lazily loaded objects, so that listing names imports nothing heavy.

Other packages add objects by an entry point in the group `unmask.<kind>`:

    [project.entry-points."unmask.objectives"]
    mine = "my_package.mine:Mine"
"""

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from unmask.errors import UserError, first_line, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """Built-in objects, given as "module:attribute" or directly, then those of other packages. Built-in names take precedence.

    >>> r = Registry("things", {"join": "os.path:join", "two": 2})
    >>> r.names(), r["join"]("a", "b"), r["two"], "three" in r
    (['join', 'two'], 'a/b', 2, False)
    """

    def __init__(self, kind: str, builtin: Mapping[str, str | T]):
        self.kind = kind
        self._builtin = dict(builtin)
        self._others: dict[str, EntryPoint] | None = None
        self._broken: set[str] = set()

    def _discover(self) -> dict[str, EntryPoint]:
        if self._others is None:
            self._others = {}
            for point in entry_points(group=f"unmask.{self.kind}"):
                if point.name not in self._builtin:
                    self._others.setdefault(point.name, point)
        return self._others

    def __iter__(self) -> Iterator[str]:
        yield from self._builtin
        yield from sorted(self._discover())

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._discover()

    def names(self) -> list[str]:
        return sorted(self)

    def builtin(self) -> list[str]:
        """Return the names of this package, without plug-ins."""
        return list(self._builtin)

    def __getitem__(self, name: str) -> Any:
        if name in self._builtin:
            target = self._builtin[name]
            if not isinstance(target, str):
                return target
            module, _, attribute = target.partition(":")
            return getattr(importlib.import_module(module), attribute)
        if point := self._discover().get(name):
            return self._load(point)
        singular = f"{self.kind[:-3]}y" if self.kind.endswith("ies") else self.kind[:-1]
        raise UserError(f"unknown {singular}: {name!r}{nearest(name, list(self))}", expected=", ".join(self))

    def get(self, name: str) -> Any:
        """Return the object, or None if the name is unknown."""
        return self[name] if name in self else None  # noqa: SIM401

    def valid(self, name: str) -> str:
        """Return the name; raise ValueError, worded like pydantic's, if it is unknown."""
        if name not in self:
            *others, last = map(repr, self)
            raise ValueError(f"Input should be {', '.join(others)} or {last}")
        return name

    def _load(self, point: EntryPoint) -> Any:
        try:
            return point.load()
        except Exception as error:
            package = point.dist.name if point.dist else point.module
            raise UserError(
                f"the package {package} is broken: its entry point {point.name} = {point.value} in unmask.{self.kind} "
                f"cannot be loaded: {type(error).__name__}: {first_line(error)}",
                hint=f"pip install --upgrade {package}, or pip uninstall {package}",
            ) from error

    def working(self) -> Iterator[tuple[str, T]]:
        """Yield (name, object) for all that can be loaded; warn once about each broken package."""
        for name in self:
            try:
                loaded = self[name]
            except UserError as error:
                if name not in self._broken:
                    self._broken.add(name)
                    warnings.warn(error.message, stacklevel=2)
                continue
            yield name, loaded


OBJECTIVES: Registry[Any] = Registry(
    "objectives",
    {
        "bilm": "unmask.objectives.bilm:BiLM",
        "cbow": "unmask.objectives.cbow:CBOW",
        "clm": "unmask.objectives.clm:CLM",
        "denoise": "unmask.objectives.denoise:Denoise",
        "distill": "unmask.objectives.distill:Distill",
        "hybrid": "unmask.objectives.hybrid:Hybrid",
        "mlm": "unmask.objectives.mlm:MLM",
        "nsp": "unmask.objectives.nsp:NSP",
        "prefix": "unmask.objectives.prefix:Prefix",
        "rtd": "unmask.objectives.rtd:RTD",
        "sop": "unmask.objectives.sop:SOP",
        "span": "unmask.objectives.span:Span",
    },
)
OPTIMIZERS: Registry[Any] = Registry(
    "optimizers", {"muon": "unmask.train.optim:muon", "adamw": "unmask.train.optim:adamw"}
)
# File extension without the dot → a function from a path to records (dicts). text/readers.py reads the built-in formats.
FORMATS: Registry[Callable[[Path], Iterable[dict[str, Any]]]] = Registry("formats", {})
RUNS: Registry[Any] = Registry(  # kinds of runs, by their name in run.json
    "runs",
    {
        "finetune": "unmask.runs.finetune:Finetune",
        "learn": "unmask.runs.learn:Learn",
        "pretrain": "unmask.runs.pretrain:Pretrain",
        "quickstart": "unmask.runs.quickstart:Quickstart",
        "seeds": "unmask.runs.seeds:Seeds",
        "tune": "unmask.runs.tune:Tune",
    },
)
TASKS: Registry[Any] = Registry(
    "tasks",
    {
        "answer": "unmask.tasks.answer.task:Answer",
        "choose": "unmask.tasks.choose.task:Choose",
        "classify": "unmask.tasks.classify.task:Classify",
        "embed": "unmask.tasks.embed.task:Embed",
        "generate": "unmask.tasks.generate.task:Generate",
        "rank": "unmask.tasks.rank.task:Rank",
        "tag": "unmask.tasks.tag.task:Tag",
    },
)
