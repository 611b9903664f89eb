"""Names of a Predictor's methods: which of them a model has, and which the server may call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unmask.inference.engine import Engine
    from unmask.tasks.task import Task

EMBED, GENERATE = "embed", "generate"
BATCHED_METHODS = (
    "fill",
    "score",
    EMBED,
    GENERATE,
    "predict",
    "next_sentence",
)  # a list in, a list out: clients share a call
UNBATCHED_METHODS = ("similarity", "attention", "explain", "minimal_pairs", "word_vectors")


def available_methods(engine: Engine, task: Task | None) -> list[str]:
    """What a model can do."""
    heads, config, found = set(engine.heads), engine.config, [EMBED, "similarity", "word_vectors"]
    writes = config.causal or config.decoder_layers > 0 or config.logit_position == "next"
    found += ["fill"] if "mlm" in heads else []
    found += ["score", "minimal_pairs"] if "mlm" in heads or ("lm" in heads and config.causal) else []
    found += [GENERATE] if heads & {"lm", "mlm"} and writes else []
    found += ["next_sentence"] if "nsp" in heads else []
    if task is not None:
        found += [task.name, "predict"]
    if engine.kind == "torch":
        found += ["attention"] if config.encoder == "transformer" else []
        found += ["explain"]
    return sorted(set(found))
