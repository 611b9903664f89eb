"""Names of a Predictor's methods: those that a model supports, and those that the server can batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unmask.inference.engine import Engine
    from unmask.tasks.task import Task

EMBED, GENERATE = "embed", "generate"
# These take and return lists, so that several clients can share a call.
BATCHED_METHODS = ("fill", "score", EMBED, GENERATE, "predict", "next_sentence")
UNBATCHED_METHODS = ("similarity", "attention", "explain", "minimal_pairs", "word_vectors")


def available_methods(engine: Engine, task: Task | None) -> list[str]:
    """Return the methods that a model supports, sorted."""
    heads, config, methods = set(engine.heads), engine.config, {EMBED, "similarity", "word_vectors"}
    if "mlm" in heads:
        methods.add("fill")
    if "mlm" in heads or ("lm" in heads and config.causal):
        methods |= {"score", "minimal_pairs"}
    if heads & {"lm", "mlm"} and (config.causal or config.decoder_layers > 0 or config.logit_position == "next"):
        methods.add(GENERATE)
    if "nsp" in heads:
        methods.add("next_sentence")
    if task is not None:
        methods |= {task.name, "predict"}
    if engine.kind == "torch":
        methods |= {"attention", "explain"} if config.encoder == "transformer" else {"explain"}
    elif engine.kind == "static" and task is not None and not task.bound.text_pairs:
        methods.add("explain")
    return sorted(methods)
