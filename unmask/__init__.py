"""unmask: from raw text to a masked language model you can use.

>>> import unmask                                                        # doctest: +SKIP
>>> run = unmask.pretrain("corpus/", preset="bert-mini", minutes=5)      # doctest: +SKIP
>>> model = unmask.load(run.model)                                       # doctest: +SKIP
>>> model.fill("the president of the united [MASK]")                     # doctest: +SKIP
"""

import os

# OpenMP's threads spin while they wait for each other. When another program takes one core of two, the other thread
# burns its time slice waiting for a thread that cannot run: training falls to a tenth (docs/log.md). Waiting
# passively costs nothing measurable. Read by OpenMP when torch is first imported; the user's own setting wins.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

_API = (
    "doctor",
    "dry_run",
    "dry_run_finetune",
    "evaluate",
    "export",
    "finetune",
    "info",
    "load",
    "predict",
    "prepare",
    "pretrain",
    "quickstart",
    "resume",
    "retrieve",
    "samples",
    "search",
    "show_batch",
    "train_tokenizer",
    "tune",
)
__all__ = ["UserError", "__version__", *_API]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str):
    """Functions of `unmask.api`, imported when first used: `import unmask` itself stays light."""
    if name in _API:
        from unmask import api

        return getattr(api, name)
    if name == "UserError":
        from unmask.errors import UserError

        return UserError
    raise AttributeError(f"module 'unmask' has no attribute {name!r}")
