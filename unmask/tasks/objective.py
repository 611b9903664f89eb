"""TaskObjective: a task as the trainer sees it. The task says what its terms are (`outputs`); all else follows from its spec.

What is trained beside the task wraps it: a teacher's logits (teacher.py), MLM on a masked copy (aux_mlm.py). Where several processes train a
loss that compares the records of a batch, each has those of all (`Gathered`).
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

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        training, settings = self.task.SPEC.training, self.task.settings
        if training.token_masking:
            example = mask_tokens(example, self.tokenizer, settings.token_mask_rate, rng)
        if training.sampling_setting:
            example = sample_more(example, getattr(getattr(settings, self.task.name), training.sampling_setting), rng)
        return example

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {term: len(batch.labels[f"{term}.targets"]) for term in self.task.SPEC.terms}

    def loss(self, model: Model, batch: Batch) -> Terms:
        return self.sums(self.task.loss_terms(model, batch), batch)

    def sums(self, terms: Mapping[str, Term], batch: Batch) -> Terms:
        """The task's terms, of one forward pass → sums with counts."""
        return {name: (term.loss(), len(term.targets)) for name, term in terms.items()}


class Gathered(TaskObjective):
    """With the vectors of all processes."""

    def sums(self, terms: Mapping[str, Term], batch: Batch) -> Terms:
        found: Terms = {}
        for name, term in terms.items():
            assert isinstance(term, Contrastive)
            whole, count = term.all_gathered(), len(term.targets)
            found[name] = (all_gather.share(whole.loss(), count / len(whole.targets)), count)
        return found

    def join_collectives(self, device: torch.device) -> None:
        for _ in self.terms:
            Contrastive.join_all_gather(device)


def objective_of(task: Task, processes: int = 1) -> TaskObjective:
    """What the trainer minimises; `processes`: those whose records a batch's are compared with."""
    return Gathered(task) if processes > 1 and task.SPEC.training.in_batch_negatives else TaskObjective(task)


def check(recipe: Recipe, spec: TaskSpec) -> None:
    """Refuses a setting that the task's training would ignore."""
    if recipe.task.token_mask_rate and not spec.training.token_masking:
        raise UserError(
            f"task.token_mask_rate={recipe.task.token_mask_rate:g} with the task {spec.name}: its tokens are never masked in training",
            expected=f"with one of {', '.join(tasks_with('token_masking'))}",
            hint="leave task.token_mask_rate out",
        )


def tasks_with(trait: str) -> list[str]:
    """Names of the tasks whose `SPEC.training` says yes."""
    return sorted(name for name, task in TASKS.working() if getattr(task.SPEC.training, trait))
