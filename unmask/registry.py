"""Names → things, loaded when first asked for, so that listing choices imports nothing heavy.

A third party adds one by an entry point in the group `unmask.<kind>`:

    [project.entry-points."unmask.objectives"]
    mine = "my_package.mine:Mine"
"""

import importlib
from importlib.metadata import entry_points
from typing import Any

from unmask.errors import UserError, nearest


class Registry:
    """
    >>> r = Registry("things", {"join": "os.path:join"})
    >>> r.names(), r["join"]("a", "b")
    (['join'], 'a/b')
    """

    def __init__(self, kind: str, builtin: dict[str, str]):
        self.kind, self._targets = kind, dict(builtin)
        self._found = False

    def _discover(self) -> dict[str, str]:
        if not self._found:
            self._found = True
            for point in entry_points(group=f"unmask.{self.kind}"):
                self._targets.setdefault(point.name, point.value)
        return self._targets

    def names(self) -> list[str]:
        return sorted(self._discover())

    def __getitem__(self, name: str) -> Any:
        targets = self._discover()
        if name not in targets:
            raise UserError(
                f"unknown {self.kind[:-1]}: {name!r}{nearest(name, self.names())}",
                valid=", ".join(self.names()),
            )
        module, _, attribute = targets[name].partition(":")
        return getattr(importlib.import_module(module), attribute)


OBJECTIVES = Registry(
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
RUNS = Registry(  # kinds of runs, under the name that run.json holds
    "runs",
    {
        "finetune": "unmask.runs.finetune:Finetune",
        "pretrain": "unmask.runs.pretrain:Pretrain",
        "quickstart": "unmask.runs.quickstart:Quickstart",
        "seeds": "unmask.runs.seeds:Seeds",
        "tune": "unmask.runs.tune:Tune",
    },
)
TASKS = Registry(
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
