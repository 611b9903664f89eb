"""Multi-task fine-tuning: several tasks share an encoder (Caruana 1997; MT-DNN 1901.11504).

Each task keeps its own head, labels and folder. Every step trains one task, sampled by (seed, step) with a probability
proportional to the square root of its number of rows, so that large tasks do not dominate small ones. An epoch has as many rows
as all tasks together. The best checkpoint is selected by the mean of the tasks' metrics on their dev sets.

All models contain the same encoder module; the trainer gets a `SharedEncoderModel`. The heads of other tasks do not change in a
step.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from unmask.batch import Batch, StepConfig
from unmask.errors import UserError
from unmask.model.model import Model
from unmask.objectives.objective import Objective, Terms
from unmask.recipe import Recipe
from unmask.runs.part import Part
from unmask.seeds import generator
from unmask.settings import deep_merge
from unmask.tasks.objective import objective_of
from unmask.train.loader import LengthBucketedLoader, Loader
from unmask.train.trainer import Step, Trainer

TASK_INDEX = "task"  # label of a batch: the index of its task
RUN_LEVEL_FIELDS = (
    "patience",
    "selection_margin",
    "num_seeds",
    "baseline",
)  # settings of the run, not of a single task
SINGLE_TASK_FIELDS = ("aux_mlm", "augment_mlm", "teacher")  # settings that only runs of one task support


def check(recipe: Recipe) -> None:
    """Raise a UserError for a recipe that is not valid with several tasks."""
    flags = ["--num-seeds"] * (recipe.task.num_seeds > 1) + ["--baseline"] * recipe.task.baseline
    if flags:
        raise UserError(f"{flags[0]} does not work with several tasks", hint=f"use {flags[0]} with one task at a time")
    if recipe.task.train or recipe.task.name != "auto":
        raise UserError(
            "the recipe has both `tasks` and a `task` with files or a name",
            hint="give each of `tasks` its own train, dev and test, and remove them from `task`",
        )
    if invalid := next((name for name in recipe.tasks if not name.isidentifier()), None):
        raise UserError(
            f"tasks: {invalid!r} is not a valid name", expected="letters, digits and _, since names become folders"
        )
    for name, task in recipe.tasks.items():
        different = {key for key in RUN_LEVEL_FIELDS if getattr(task, key) != getattr(recipe.task, key)}
        if field := min(different & task.model_fields_set, default=None):
            raise UserError(
                f"tasks.{name}.{field}: this setting applies to the whole run", hint=f"set it in `task: {{{field}: …}}`"
            )
        if field := next((key for key in SINGLE_TASK_FIELDS if getattr(task, key) or getattr(recipe.task, key)), None):
            raise UserError(f"tasks.{name}.{field} does not work with several tasks", hint=f"remove {field}")
    tasks = [task if "freeze" in task.model_fields_set else recipe.task for task in recipe.tasks.values()]
    if len({task.freeze for task in tasks}) > 1:
        raise UserError(
            "tasks that share an encoder must have the same value of freeze",
            hint="set it once: task: {freeze: encoder}",
        )


def recipes(recipe: Recipe) -> dict[str, Recipe]:
    """Return name → recipe of that task alone. `task` has the settings that all tasks share."""
    common = recipe.task.model_dump(exclude_unset=True)
    single = {}
    for name, task in recipe.tasks.items():
        values = recipe.model_dump() | {"tasks": {}, "task": deep_merge(common, task.model_dump(exclude_unset=True))}
        values["train"]["small_data_batch_size"] = 0  # all tasks have the same batch size
        single[name] = Recipe.build(values)
    return single


def resolve_settings(recipe: Recipe, parts: Mapping[str, Part]) -> Recipe:
    """Return the recipe with the resolved settings of the parts, except the number of dev records, which differs."""
    first = next(iter(parts.values())).recipe.train
    train = first.model_copy(update={"max_eval_examples": recipe.train.max_eval_examples})
    return recipe.model_copy(update={"tasks": {name: part.recipe.task for name, part in parts.items()}, "train": train})


class SharedEncoderModel(nn.Module):
    """The shared encoder and the heads of each task. Names of parameters: encoder.…, tasks.NAME.heads.…"""

    def __init__(self, models: Mapping[str, Model]):
        super().__init__()
        first = next(iter(models.values()))
        self.config, self.encoder = first.config, first.encoder
        for model in models.values():
            model.encoder = first.encoder
        self.tasks = nn.ModuleDict(models)

    def task_parameters(self, name: str) -> list[nn.Parameter]:
        """Return the parameters that a step of the task trains."""
        return [p for p in self.tasks[name].parameters() if p.requires_grad]


class MultiTaskObjective(Objective):
    """The loss of the batch's task; its terms are called NAME.TERM."""

    name = "several"

    def __init__(self, parts: Mapping[str, Part]):
        first = next(iter(parts.values()))
        super().__init__(first.recipe, first.task.tokenizer)
        self.names, self.tasks = list(parts), [objective_of(part.task) for part in parts.values()]
        self.terms = tuple(f"{name}.{term}" for name, task in zip(parts, self.tasks) for term in task.terms)
        self.weights = {f"{name}.{t}": w for name, task in zip(parts, self.tasks) for t, w in task.weights.items()}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        n = int(batch.labels[TASK_INDEX])
        counts = self.tasks[n].target_counts(batch)
        return dict.fromkeys(self.terms, 0) | {f"{self.names[n]}.{term}": count for term, count in counts.items()}

    def loss(self, model: Any, batch: Batch) -> Terms:
        n = int(batch.labels[TASK_INDEX])
        losses = self.tasks[n].loss(model.tasks[self.names[n]], batch)
        terms: Terms = dict.fromkeys(self.terms, (torch.zeros((), device=batch.input_ids.device), 0))
        return terms | {f"{self.names[n]}.{term}": value for term, value in losses.items()}


class MultiTaskLoader(Loader):
    """Batches of the tasks' loaders, one task per step."""

    def __init__(self, loaders: list[LengthBucketedLoader], batch: int, seed: int):
        self.loaders, self.size, self.seed = loaders, batch, seed
        weights = np.sqrt([len(loader.lengths) for loader in loaders])
        self.probabilities = weights / weights.sum()
        self._sampled = np.empty(0, np.int64)  # task of each step

    def task(self, step: int) -> int:
        """Return the index of a step's task. Sampling more steps does not change the earlier ones."""
        if step >= len(self._sampled):
            rng = generator(self.seed, "tasks")
            bounds = self.probabilities.cumsum()[:-1]
            self._sampled = np.searchsorted(bounds, rng.random(max(1024, 2 * step)), side="right")
        return int(self._sampled[step])

    def batch(self, first: int, end: int, step_config: StepConfig) -> Batch:
        step = first // self.size
        n = self.task(step)
        before = int((self._sampled[:step] == n).sum()) * self.size  # rows of this task in earlier steps
        start = before + first - step * self.size
        batch = self.loaders[n].batch(start, start + end - first, step_config)
        batch.labels[TASK_INDEX] = torch.tensor([n])
        return batch


class MultiTaskTrainer(Trainer):
    """Clips and updates the encoder and the heads of the step's task, and reports only the loss terms of that task."""

    def __init__(self, shared: SharedEncoderModel, objective: MultiTaskObjective, loader: MultiTaskLoader, *rest: Any):
        super().__init__(shared, objective, *rest)  # type: ignore[arg-type]
        self.names, self.loader, self.shared = objective.names, loader, shared

    def step(self, step: int, batches: list[tuple[int, Batch]]) -> Step:
        name = self.names[self.loader.task(step)]
        self.parameters = self.shared.task_parameters(name)
        result = super().step(step, batches)
        others = {t for t in self.objective.terms if not t.startswith(f"{name}.")}
        return replace(result, values={key: value for key, value in result.values.items() if key not in others})
