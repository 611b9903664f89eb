"""Several tasks, one encoder (Caruana 1997; MT-DNN 1901.11504): each task keeps its head, its labels and its folder.

Every step is of one task, which is a function of (seed, step): drawn in proportion to the square root of its number of rows, so
that a small task is seen more often than its size says and a large one does not drown it. An epoch is as many rows as all
tasks have together. The mean of the tasks' own scores on their dev sets says whether an earlier model was better than the last.

Each `Model` holds the same encoder module; `Shared` is what the trainer sees. A task that a step is not of gets no gradient there,
and its head stays as it is.
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

TASK_INDEX = "task"  # label of a batch: the number of its task
RUN_LEVEL_FIELDS = (
    "patience",
    "selection_margin",
    "num_seeds",
    "baseline",
)  # settings of the run, not of one of its tasks
SINGLE_TASK_FIELDS = ("aux_mlm", "augment_mlm", "teacher")  # settings that are for one task at a time


def check(recipe: Recipe) -> None:
    """Everything that can be wrong with several tasks at once."""
    asked = ["--num-seeds"] * (recipe.task.num_seeds > 1) + ["--baseline"] * recipe.task.baseline
    if asked:
        raise UserError(f"{asked[0]} with several tasks", hint=f"{asked[0]} with one task at a time")
    if recipe.task.train or recipe.task.name != "auto":
        raise UserError(
            "both `task` and `tasks` name files or a kind", hint="give each of `tasks` its own train, dev, test"
        )
    if wrong := next((name for name in recipe.tasks if not name.isidentifier()), None):
        raise UserError(f"tasks: {wrong!r}", expected="names of letters, digits and _, as they become folders")
    for name, own in recipe.tasks.items():
        other = {
            key for key in RUN_LEVEL_FIELDS if getattr(own, key) != getattr(recipe.task, key)
        } & own.model_fields_set
        if shared := min(other, default=None):
            raise UserError(f"tasks.{name}.{shared}: all tasks have it in common", hint=f"task: {{{shared}: …}}")
        if alone := next((key for key in SINGLE_TASK_FIELDS if getattr(own, key) or getattr(recipe.task, key)), None):
            raise UserError(
                f"tasks.{name}.{alone}: of one task alone, not of several at once", hint=f"leave {alone} out"
            )
    tasks = [own if "freeze" in own.model_fields_set else recipe.task for own in recipe.tasks.values()]
    if len({task.freeze for task in tasks}) > 1:
        raise UserError("tasks that share an encoder freeze it or not together", hint="task: {freeze: encoder}")


def recipes(recipe: Recipe) -> dict[str, Recipe]:
    """Name → the recipe of that task alone; `task` holds what they have in common."""
    common = recipe.task.model_dump(exclude_unset=True)
    found = {}
    for name, own in recipe.tasks.items():
        values = recipe.model_dump() | {"tasks": {}, "task": deep_merge(common, own.model_dump(exclude_unset=True))}
        values["train"]["small_data_batch_size"] = 0  # a batch is one of all tasks
        found[name] = Recipe.build(values)
    return found


def resolve_settings(recipe: Recipe, parts: Mapping[str, Part]) -> Recipe:
    """The recipe with what the parts decided. Each has its own number of dev records to answer."""
    first = next(iter(parts.values())).recipe.train
    train = first.model_copy(update={"max_eval_examples": recipe.train.max_eval_examples})
    return recipe.model_copy(update={"tasks": {name: part.recipe.task for name, part in parts.items()}, "train": train})


class SharedEncoderModel(nn.Module):
    """The encoder once, then what each task has of its own. Names of parameters: encoder.…, tasks.NAME.heads.…"""

    def __init__(self, models: Mapping[str, Model]):
        super().__init__()
        first = next(iter(models.values()))
        self.config, self.encoder = first.config, first.encoder
        for model in models.values():
            model.encoder = first.encoder
        self.tasks = nn.ModuleDict(models)

    def task_parameters(self, name: str) -> list[nn.Parameter]:
        """What a step of that task trains."""
        return [p for p in self.tasks[name].parameters() if p.requires_grad]


class MultiTaskObjective(Objective):
    """The loss of the task that a batch is of; its terms are called NAME.TERM."""

    name = "several"

    def __init__(self, parts: Mapping[str, Part]):
        first = next(iter(parts.values()))
        super().__init__(first.recipe, first.task.tokenizer)
        self.names, self.tasks = list(parts), [objective_of(part.task) for part in parts.values()]
        self.terms = tuple(f"{name}.{term}" for name, task in zip(parts, self.tasks) for term in task.terms)
        self.weights = {f"{name}.{t}": w for name, task in zip(parts, self.tasks) for t, w in task.weights.items()}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        n = int(batch.labels[TASK_INDEX])
        found = self.tasks[n].target_counts(batch)
        return dict.fromkeys(self.terms, 0) | {f"{self.names[n]}.{term}": count for term, count in found.items()}

    def loss(self, model: Any, batch: Batch) -> Terms:
        n = int(batch.labels[TASK_INDEX])
        found = self.tasks[n].loss(model.tasks[self.names[n]], batch)
        terms: Terms = dict.fromkeys(self.terms, (torch.zeros((), device=batch.input_ids.device), 0))
        return terms | {f"{self.names[n]}.{term}": value for term, value in found.items()}


class MultiTaskLoader(Loader):
    """Batches of the tasks' own loaders, a task for each step."""

    def __init__(self, loaders: list[LengthBucketedLoader], batch: int, seed: int):
        self.loaders, self.size, self.seed = loaders, batch, seed
        weights = np.sqrt([len(loader.lengths) for loader in loaders])
        self.shares = weights / weights.sum()
        self._drawn = np.empty(0, np.int64)

    def task(self, step: int) -> int:
        """The number of the task that a step is of: the draws before it are the same however many follow."""
        if step >= len(self._drawn):
            rng = generator(self.seed, "tasks")
            self._drawn = np.searchsorted(self.shares.cumsum()[:-1], rng.random(max(1024, 2 * step)), side="right")
        return int(self._drawn[step])

    def batch(self, first: int, end: int, phase: StepConfig) -> Batch:
        step = first // self.size
        n = self.task(step)
        before = int((self._drawn[:step] == n).sum()) * self.size  # rows of this task in the steps before
        start = before + first - step * self.size
        made = self.loaders[n].batch(start, start + end - first, phase)
        made.labels[TASK_INDEX] = torch.tensor([n])
        return made


class MultiTaskTrainer(Trainer):
    """Clips and updates the encoder and the head of the step's task, and says nothing of terms that were not computed."""

    def __init__(self, shared: SharedEncoderModel, objective: MultiTaskObjective, loader: MultiTaskLoader, *rest: Any):
        super().__init__(shared, objective, *rest)  # type: ignore[arg-type]
        self.names, self.loader, self.shared = objective.names, loader, shared

    def step(self, step: int, batches: list[tuple[int, Batch]]) -> Step:
        name = self.names[self.loader.task(step)]
        self.parameters = self.shared.task_parameters(name)
        done = super().step(step, batches)
        others = {t for t in self.objective.terms if not t.startswith(f"{name}.")}
        return replace(done, values={key: value for key, value in done.values.items() if key not in others})
