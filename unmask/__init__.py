"""unmask: from raw text to a masked language model you can use.

>>> import unmask                                                        # doctest: +SKIP
>>> run = unmask.pretrain("corpus/", preset="bert-mini", minutes=5)      # doctest: +SKIP
>>> model = unmask.load(run.model)                                       # doctest: +SKIP
>>> model.fill("the president of the united [MASK]")                     # doctest: +SKIP
"""

import os

# OpenMP's threads spin while they wait for each other. If another program uses one of two cores, a spinning thread wastes its
# time slice on a thread that cannot run, and training is 10 times slower (docs/log.md). Passive waiting has no measurable cost.
# OpenMP reads this when torch is first imported; a value set by the user takes precedence.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

_API = (
    "doctor",
    "dry_run",
    "dry_run_finetune",
    "dry_run_learn",
    "evaluate",
    "export",
    "finetune",
    "info",
    "learn",
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
    """Import the functions of `unmask.api` at first use, so that `import unmask` is fast."""
    if name in _API:
        from unmask import api, api_learn

        return getattr(api_learn if hasattr(api_learn, name) and not hasattr(api, name) else api, name)
    if name == "UserError":
        from unmask.errors import UserError

        return UserError
    raise AttributeError(f"module 'unmask' has no attribute {name!r}")
