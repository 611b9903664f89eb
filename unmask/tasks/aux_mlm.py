"""Auxiliary MLM loss (`--aux-mlm 0.1`): MLM on the task's own text, trained together with the task (1905.05583 §5.4 trains it before).

| the task reads               | the auxiliary loss reads                       |
|------------------------------|------------------------------------------------|
| [CLS] what a film [SEP]      | [CLS] what a [MASK] [SEP]: "film" at the mask  |

The task's input is not masked: a copy of each row is, so every step computes its rows twice. `recipe.mlm` configures the masking. The
MLM head is that of the initial model if it has one. It is removed after training, because predictions need the task's head only.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from unmask.batch import Batch, Example, StepConfig
from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.model import Model
from unmask.objectives.mlm import MLM
from unmask.objectives.objective import Objective, Terms
from unmask.recipe import Recipe
from unmask.tasks.objective import TaskObjective, tasks_with
from unmask.tasks.spec import TaskSpec

HEAD = "mlm"


def extra_heads(recipe: Recipe) -> tuple[str, ...]:
    """Return the heads that the model needs in addition to those of its task."""
    return (HEAD,) if recipe.task.aux_mlm else ()


def check(recipe: Recipe, config: ModelConfig, spec: TaskSpec) -> None:
    if not recipe.task.aux_mlm:
        return
    if not spec.training.aux_mlm:
        raise UserError(
            f"the task {spec.name} does not support --aux-mlm",
            expected=f"one of the tasks {', '.join(tasks_with('aux_mlm'))}",
            hint="remove --aux-mlm",
        )
    if HEAD not in FAMILIES[config.family].heads:
        raise UserError(
            f"--aux-mlm needs an MLM head, and a {config.family} model cannot have one",
            expected=f"a model of {', '.join(name for name, family in FAMILIES.working() if HEAD in family.heads)}",
            hint="remove --aux-mlm",
        )
    if recipe.task.freeze == "encoder":
        raise UserError(
            "--aux-mlm has no effect with --freeze encoder: the MLM loss would train only its own head",
            hint="remove --aux-mlm or --freeze",
        )


class WithAuxMLM(Objective):
    """The objective of a task plus MLM on a masked copy of its rows."""

    def __init__(self, task: TaskObjective):
        super().__init__(task.recipe, task.tokenizer)
        self.task, self.mlm = task, MLM(task.recipe, task.tokenizer)
        self.name, self.terms = f"{task.name}+{HEAD}", (*task.terms, HEAD)
        self.weights = {**task.weights, HEAD: task.recipe.task.aux_mlm}

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        return self._masked(self.task.corrupt(example, rng, step_config), rng, step_config)

    def _masked(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        """Store the masked tokens of the copy as labels of the row, from which `masked_copy` rebuilds it."""
        copy = self.mlm.corrupt(replace(example, labels={}), rng, step_config)
        labels = {**example.labels, **copy.labels, "mlm.inputs": copy.input_ids[copy.labels["mlm.positions"]]}
        grouped_rows = [self._masked(row, rng, step_config) for row in example.grouped_rows]
        return replace(example, labels=labels, grouped_rows=grouped_rows)

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {**self.task.target_counts(batch), **self.mlm.target_counts(batch)}

    def loss(self, model: Model, batch: Batch) -> Terms:
        return {**self.task.loss(model, batch), **self.mlm.loss(model, masked_copy(batch))}

    def join_collectives(self, device: torch.device) -> None:
        self.task.join_collectives(device)


def masked_copy(batch: Batch) -> Batch:
    """Return the masked copy of a batch."""
    ids = batch.input_ids.clone()
    ids.view(-1)[batch.labels["mlm.positions"]] = batch.labels["mlm.inputs"]
    return replace(batch, input_ids=ids)


def add_aux_mlm(task: TaskObjective) -> Objective:
    """Return the task's objective, with the auxiliary loss if the recipe has one."""
    return WithAuxMLM(task) if task.recipe.task.aux_mlm else task


def remove_aux_head(model: Model, wanted: Sequence[str]) -> None:
    """Remove the MLM head if it is not among the heads `wanted`."""
    if HEAD in model.heads and HEAD not in wanted:
        del model.heads[HEAD]


def describe(recipe: Recipe) -> list[str]:
    weight = recipe.task.aux_mlm
    return [f"auxiliary MLM loss with weight {weight:g}; this doubles the compute per step"] if weight else []
