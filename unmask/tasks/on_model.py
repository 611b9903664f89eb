"""A task and the model that it is put on: whether they fit, what the task changes in the model before training, and what at its end."""

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
    """Refuses a model that has no place for the task's head, and a pooling that neither of them has."""
    if reason := _incompatibility(spec, config):
        raise UserError(
            f"the task {spec.name} does not fit a {config.family} model: {reason}",
            expected=", ".join(name for name, family in FAMILIES.working() if has_heads(spec, family)),
        )
    wish = recipe.task.pooling
    if wish != "auto" and (reason := _pooling_error(spec, wish, config)):
        raise UserError(f"--pooling {wish}: {reason}", hint="leave it out")


def has_heads(spec: TaskSpec, family: Any) -> bool:
    """Whether models of a family have a place for the task's heads; a vector needs an encoder, and no head."""
    if spec.output == "vector":
        return not family.fixed.get("decoder_layers") and family.decoder_start == "sep"
    several = [set(head.split("|")) for head in spec.heads]
    needed = [names for names in several if not any(name in HEADS and HEADS[name].any_family for name in names)]
    return any(all(names & set(held) for names in needed) for held in family.architectures.values())


def _incompatibility(spec: TaskSpec, config: ModelConfig) -> str:
    if spec.output == "vector":
        return "its answers come from a decoder, and a vector from an encoder" if config.decoder_layers else ""
    if has_heads(spec, FAMILIES[config.family]):
        return ""
    writes = spec.output == "text"
    return "it has no head that writes one token after the other" if writes else f"it has no place for the head {spec.heads[0]}"  # fmt: skip


def _pooling_error(spec: TaskSpec, wish: str, config: ModelConfig) -> str:
    """Why a row's vector cannot be made so; empty when it can."""
    if spec.training.pooling == "task":
        return ""
    if spec.training.pooling == "none":
        return f"{spec.name} reads tokens, not one vector of a text"
    chosen = wish == config.pooling or "pooling" in FAMILIES[config.family].fields
    return "" if chosen else f"a {config.family} model makes a row's vector in one way only"


def reuse_head(out: Any, old: TaskSpec, new: TaskSpec) -> bool:
    """Make the last layer of a head that learnt `old` begin as one of `new`; False where it has to be drawn anew."""
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
    """Change a new model before it is trained, and say how: generation_config.json says what the task does, for all who read it."""
    from unmask.model.hf import default_generation

    bound = task.bound
    said = [bound.training_note] if bound.training_note else []
    if not bound.generation:
        return said
    kept = {k: v for k, v in model.generation.items() if k not in ("max_length", "max_new_tokens", "num_beams")}
    plain = default_generation(model.config)
    told = [f"{k} {v}" for k, v in kept.items() if k not in plain and not k.endswith(("_id", "_version"))]
    model.generation = (kept or plain) | dict(bound.generation)
    return [*said, *([f"generation_config.json says more, which is kept: {', '.join(told)}"] if told else [])]


def fold_scale_into_head(task: Task, model: Model) -> None:
    """The last change of a trained model: a number is learnt in standard deviations, and the saved layer gives it as it is."""
    from unmask.model.heads import fold_target_scale

    if task.spec.scale != (0.0, 1.0):
        last: Any = model.heads[task.heads[0]]
        fold_target_scale(last.out, *task.spec.scale)
        task.task_state |= {"mean": 0.0, "sd": 1.0}


def negatives_notes(spec: TaskSpec, rows: int, batch: int) -> list[str]:
    """What changes where a forward pass sees `rows` of a batch's records, and the loss compares them."""
    if not spec.training.in_batch_negatives or rows >= batch:
        return []
    return [
        f"negatives are taken from a forward pass: {rows:,} of the {batch:,} records of a batch, as micro-batches "
        "(and, with a teacher or several tasks, processes) compare their own only; a larger train.batch_size gives more"
    ]
