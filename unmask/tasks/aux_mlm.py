"""MLM beside a task (`--aux-mlm 0.1`): the task's own text, masked, as a second loss (1905.05583 §5.4 trains so before; here at once).

| the task reads               | the second loss reads                          |
|------------------------------|------------------------------------------------|
| [CLS] what a film [SEP]      | [CLS] what a [MASK] [SEP]: "film" at the mask  |

The task's input stays whole: masks are put into a copy of each row, so every step reads its rows twice. How much is masked, and how, is
`recipe.mlm`. The head is the start model's where it has one; it leaves with the end of training, as only the task's is asked later.
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
    """Heads that the model needs beside its task's."""
    return (HEAD,) if recipe.task.aux_mlm else ()


def check(recipe: Recipe, config: ModelConfig, spec: TaskSpec) -> None:
    if not recipe.task.aux_mlm:
        return
    if not spec.training.aux_mlm:
        valid = f"one of {', '.join(tasks_with('aux_mlm'))}"
        raise UserError(f"--aux-mlm {recipe.task.aux_mlm:g} with the task {spec.name}", expected=valid)
    if HEAD not in FAMILIES[config.family].heads:
        fitting = ", ".join(name for name, family in FAMILIES.working() if HEAD in family.heads)
        raise UserError(
            f"--aux-mlm {recipe.task.aux_mlm:g}: a {config.family} model has no place for an MLM head", expected=fitting
        )
    if recipe.task.freeze == "encoder":
        raise UserError(
            "--aux-mlm with --freeze encoder: the second loss would train nothing that the task reads",
            hint="leave one out",
        )


class WithAuxMLM(Objective):
    """A task's objective, and MLM on a masked copy of its rows."""

    def __init__(self, task: TaskObjective):
        super().__init__(task.recipe, task.tokenizer)
        self.task, self.mlm = task, MLM(task.recipe, task.tokenizer)
        self.name, self.terms = f"{task.name}+{HEAD}", (*task.terms, HEAD)
        self.weights = {**task.weights, HEAD: task.recipe.task.aux_mlm}

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        return self._masked(self.task.corrupt(example, rng, phase), rng, phase)

    def _masked(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        """What stands at the chosen positions of the copy is kept beside the row."""
        copy = self.mlm.corrupt(replace(example, labels={}), rng, phase)
        labels = {**example.labels, **copy.labels, "mlm.inputs": copy.input_ids[copy.labels["mlm.positions"]]}
        more: Sequence[Example] = [self._masked(row, rng, phase) for row in example.grouped_rows]
        return replace(example, labels=labels, grouped_rows=more)

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {**self.task.target_counts(batch), **self.mlm.target_counts(batch)}

    def loss(self, model: Model, batch: Batch) -> Terms:
        return {**self.task.loss(model, batch), **self.mlm.loss(model, masked_copy(batch))}

    def join_collectives(self, device: torch.device) -> None:
        self.task.join_collectives(device)


def masked_copy(batch: Batch) -> Batch:
    """The masked copy of a batch."""
    ids = batch.input_ids.clone()
    ids.view(-1)[batch.labels["mlm.positions"]] = batch.labels["mlm.inputs"]
    return replace(batch, input_ids=ids)


def add_aux_mlm(task: TaskObjective) -> Objective:
    """The task with what its recipe adds to it."""
    return WithAuxMLM(task) if task.recipe.task.aux_mlm else task


def remove_aux_head(model: Model, wanted: Sequence[str]) -> None:
    """Take the head away that only the second loss read."""
    if HEAD in model.heads and HEAD not in wanted:
        del model.heads[HEAD]


def describe(recipe: Recipe) -> list[str]:
    weight = recipe.task.aux_mlm
    return [f"MLM on the same text weighs {weight:g} beside the task; every row is read twice"] if weight else []
