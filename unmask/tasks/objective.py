"""TaskObjective: adapter that gives a task the interface of an objective, for the trainer.

The task computes its loss terms (`loss_terms`); its spec determines everything else. Additional losses wrap the task: a teacher's logits
(teacher.py) and MLM on a masked copy (aux_mlm.py). `GatheredObjective` is for a loss with in-batch negatives and several processes.
"""

from collections.abc import Mapping

import numpy as np
import torch

from unmask.batch import Batch, Example, StepConfig
from unmask.errors import UserError
from unmask.model.model import Model
from unmask.objectives.objective import Objective, Terms
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.tasks import all_gather
from unmask.tasks.rows import mask_tokens, sample_more
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import Task
from unmask.tasks.terms import Contrastive, Term


class TaskObjective(Objective):
    def __init__(self, task: Task):
        super().__init__(task.recipe, task.tokenizer)
        self.task, self.name, self.terms, self.heads = task, task.name, task.SPEC.terms, task.heads
        self.weights = task.SPEC.training.loss_weights

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        training, settings = self.task.SPEC.training, self.task.settings
        if training.token_masking:
            example = mask_tokens(example, self.tokenizer, settings.token_mask_rate or 0.0, rng)
        if training.sampling_setting:
            example = sample_more(example, getattr(getattr(settings, self.task.name), training.sampling_setting), rng)
        return example

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {term: len(batch.labels[f"{term}.targets"]) for term in self.task.SPEC.terms}

    def loss(self, model: Model, batch: Batch) -> Terms:
        return self.sums(self.task.loss_terms(model, batch), batch)

    def sums(self, terms: Mapping[str, Term], batch: Batch) -> Terms:
        """Return the sum and the count of each term of one forward pass."""
        return {name: (term.loss(), len(term.targets)) for name, term in terms.items()}


class GatheredObjective(TaskObjective):
    """Compares the records of a batch over all processes."""

    def sums(self, terms: Mapping[str, Term], batch: Batch) -> Terms:
        out: Terms = {}
        for name, term in terms.items():
            assert isinstance(term, Contrastive)
            gathered, count = term.all_gathered(), len(term.targets)
            out[name] = (all_gather.local_share(gathered.loss(), count / len(gathered.targets)), count)
        return out

    def join_collectives(self, device: torch.device) -> None:
        for _ in self.terms:
            Contrastive.join_all_gather(device)


def objective_of(task: Task, processes: int = 1) -> TaskObjective:
    """Return the objective that the trainer minimizes. In-batch negatives come from the batches of `processes` processes."""
    return GatheredObjective(task) if processes > 1 and task.SPEC.training.in_batch_negatives else TaskObjective(task)


def check(recipe: Recipe, spec: TaskSpec) -> None:
    """Raise UserError for a setting that the task's training would ignore."""
    if recipe.task.token_mask_rate and not spec.training.token_masking:
        raise UserError(
            f"the task {spec.name} does not support task.token_mask_rate (given: {recipe.task.token_mask_rate:g})",
            expected=f"one of the tasks {', '.join(tasks_with('token_masking'))}",
            hint="remove task.token_mask_rate",
        )


def tasks_with(trait: str) -> list[str]:
    """Return the names of the tasks whose `SPEC.training` has the trait."""
    return sorted(name for name, task in TASKS.working() if getattr(task.SPEC.training, trait))
