"""Interaction of a task with its model: compatibility checks, and the changes that the task makes to the model before and after training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.head_spec import HEADS
from unmask.recipe import Recipe
from unmask.tasks.spec import TaskSpec

if TYPE_CHECKING:
    from unmask.model.model import Model
    from unmask.tasks.task import Task


def check_compatibility(spec: TaskSpec, recipe: Recipe, config: ModelConfig) -> None:
    """Raise UserError if the model cannot have the task's head, or if the task or the model does not support the pooling."""
    if reason := _incompatibility(spec, config):
        raise UserError(
            f"the task {spec.name} does not fit a {config.family} model: {reason}",
            expected=", ".join(name for name, family in FAMILIES.working() if has_heads(spec, family)),
        )
    pooling = recipe.task.pooling
    if pooling != "auto" and (reason := _pooling_error(spec, pooling, config)):
        raise UserError(f"--pooling {pooling}: {reason}", hint="remove --pooling")


def has_heads(spec: TaskSpec, family: Any) -> bool:
    """Return whether models of a family can have the task's heads. A vector needs an encoder, and no head."""
    if spec.output == "vector":
        return not family.fixed.get("decoder_layers") and family.decoder_start == "sep"
    alternatives = [set(head.split("|")) for head in spec.heads]
    required = [names for names in alternatives if not any(name in HEADS and HEADS[name].any_family for name in names)]
    return any(all(names & set(heads) for names in required) for heads in family.architectures.values())


def _incompatibility(spec: TaskSpec, config: ModelConfig) -> str:
    if spec.output == "vector":
        return "its outputs come from a decoder, and vectors need an encoder" if config.decoder_layers else ""
    if has_heads(spec, FAMILIES[config.family]):
        return ""
    return "it has no head that generates text" if spec.output == "text" else f"it cannot have the head {spec.heads[0]}"


def _pooling_error(spec: TaskSpec, pooling: str, config: ModelConfig) -> str:
    """Return the reason why a pooling is not supported, or ""."""
    if spec.training.pooling == "task":
        return ""
    if spec.training.pooling == "none":
        return f"the task {spec.name} reads tokens, not one vector per text"
    supported = pooling == config.pooling or "pooling" in FAMILIES[config.family].fields
    return "" if supported else f"a {config.family} model supports only pooling {config.pooling}"


def reuse_head(out: Any, old: TaskSpec, new: TaskSpec) -> bool:
    """Adapt the last layer of a head trained for `old` to `new`. Return False if it must be re-initialized."""
    from unmask.model.heads import fold_target_scale, reorder_outputs, unfold_target_scale

    if not new.labels:
        return True
    if old.name != new.name or (old.output == "number") != (new.output == "number"):
        return False
    if new.output != "number":
        return reorder_outputs(out, old.labels, new.labels)
    fold_target_scale(out, *old.scale)
    unfold_target_scale(out, *new.scale)
    return True


def configure_generation(task: Task, model: Model) -> list[str]:
    """Put the task's generation settings into the model before training. Return notes for the console."""
    from unmask.model.hf import default_generation

    bound = task.bound
    notes = [bound.training_note] if bound.training_note else []
    if not bound.generation:
        return notes
    kept = {k: v for k, v in model.generation.items() if k not in ("max_length", "max_new_tokens", "num_beams")}
    defaults = default_generation(model.config)
    custom = [f"{k} {v}" for k, v in kept.items() if k not in defaults and not k.endswith(("_id", "_version"))]
    model.generation = (kept or defaults) | dict(bound.generation)
    return [*notes, *([f"other settings of generation_config.json are kept: {', '.join(custom)}"] if custom else [])]


def fold_scale_into_head(task: Task, model: Model) -> None:
    """Fold the target scale into the last layer after training on standardized targets, so that the saved model predicts raw numbers."""
    from unmask.model.heads import fold_target_scale

    if task.spec.scale != (0.0, 1.0):
        last: Any = model.heads[task.heads[0]]
        fold_target_scale(last.out, *task.spec.scale)
        task.task_state |= {"mean": 0.0, "sd": 1.0}


def negatives_notes(spec: TaskSpec, rows: int, batch: int) -> list[str]:
    """Return a note if a forward pass of `rows` records has fewer in-batch negatives than the batch has records."""
    if not spec.training.in_batch_negatives or rows >= batch:
        return []
    return [
        f"in-batch negatives come from {rows:,} of the {batch:,} records of a batch, because each micro-batch (and, with a teacher "
        "or several tasks, each process) compares only its own records; a larger train.batch_size gives more negatives"
    ]
