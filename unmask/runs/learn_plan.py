"""Plan of `unmask learn`: how its minutes are divided among its steps, and the recipes of its runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.runs.learn_data import LearnData, text_of
from unmask.runs.part import make_recipe as finetune_recipe
from unmask.settings import deep_merge

MINUTES = 8.0  # default
PRETRAIN_SHARE, HIDDEN_SHARE, FINETUNE_SHARE = 0.4, 0.12, 0.33  # of the minutes; the rest is for the linear model
MAX_PRETRAIN_MINUTES_PER_MB = 5.0  # about ten epochs; more would only repeat a small text
MIN_PRETRAIN_MINUTES = 0.1
NUM_TIMED_TEXTS = 48
TRAINING_COST = 4.0  # of a text in fine-tuning, in forward passes
MAX_HIDDEN = 20_000
MAX_SOFT_LABELS = 20_000
EPOCHS, SOFT_EPOCHS = 3, 1


@dataclass
class LearnPlan:
    recipe: Recipe
    data: LearnData
    minutes: float
    pretrain_minutes: float  # 0: --from names a model

    @classmethod
    def make(cls, recipe: Recipe, data: LearnData) -> "LearnPlan":
        minutes = recipe.train.minutes or MINUTES
        texts = [*data.texts, *(text_of(data.spec, record) for record in data.labeled)]
        megabytes = sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
        limit = max(MIN_PRETRAIN_MINUTES, MAX_PRETRAIN_MINUTES_PER_MB * megabytes)
        return cls(recipe, data, minutes, 0.0 if recipe.init_from else min(PRETRAIN_SHARE * minutes, limit))

    def describe(self) -> list[dict[str, Any]]:
        """Return the steps with their expected minutes."""
        steps = [{"step": "pre-train on all text", "minutes": self.pretrain_minutes}] if self.pretrain_minutes else []
        if self.data.texts:
            steps.append({"step": "compute hidden states", "minutes": HIDDEN_SHARE * self.minutes})
            steps.append(
                {"step": "train the linear model on labels and unlabeled texts", "minutes": 0.15 * self.minutes}
            )
        return [*steps, {"step": "fine-tune and blend", "minutes": FINETUNE_SHARE * self.minutes}]

    def pretrain_recipe(self, folder: Path) -> Recipe:
        corpus = [str(folder / name) for name in ("unlabeled.jsonl", "labeled_texts.jsonl")]
        corpus = [path for path in corpus if Path(path).stat().st_size]
        train = {"minutes": self.pretrain_minutes, **_hardware(self.recipe)}
        values = {"seed": self.recipe.seed, "data": {"corpus": corpus}, "train": train}
        return Recipe.build(deep_merge(Recipe.load_builtin("quickstart"), values))

    def seconds_per_text(self, predictor: Any, texts: Sequence[str]) -> float:
        """Measure how long the hidden states of a text take."""
        sample = list(texts[:: max(1, len(texts) // NUM_TIMED_TEXTS)][:NUM_TIMED_TEXTS])
        predictor.embed(sample[:4], pooling="mean", overflow="window")
        start_time = time.monotonic()
        predictor.embed(sample, pooling="mean", overflow="window")
        return (time.monotonic() - start_time) / len(sample)

    def num_hidden(self, seconds_per_text: float, num_texts: int, num_labeled: int) -> int:
        """Return how many texts to compute hidden states of: 0 if there is no time for as many unlabeled as labeled ones."""
        affordable = int(HIDDEN_SHARE * self.minutes * 60 / seconds_per_text)
        count = min(num_texts, MAX_HIDDEN, affordable)
        return count if count >= 2 * num_labeled else 0

    def num_soft_labels(self, num_labeled: int, seconds_per_text: float | None) -> int:
        """Return how many unlabeled texts the encoder is fine-tuned on, in the time that the labeled ones leave."""
        if not seconds_per_text:
            return 0
        affordable = FINETUNE_SHARE * self.minutes * 60 / (TRAINING_COST * seconds_per_text)
        return max(0, min(MAX_SOFT_LABELS, int(affordable - EPOCHS * num_labeled)))

    def finetune_recipe(self, folder: Path, model: Path, labels: Sequence[str] | None) -> Recipe:
        """Return the recipe of the fine-tuning run: on the rows of the linear step, or on the user's files if there are none.

        `labels`: those of the linear model, in the order of its outputs; None if there is no linear model.
        """
        recipe, given = self.recipe, self.recipe.task.model_dump(exclude_unset=True)
        task = {k: v for k, v in given.items() if k not in ("train", "dev", "test", "unlabeled", "words")}
        train = {"num_evals": 1, **_hardware(recipe)}
        if labels:
            paths = {name: str(folder / f"{name}.jsonl") for name in ("train", "dev", "test")}
            files = {name: [path] for name, path in paths.items() if Path(path).stat().st_size}
            task |= {
                **files,
                "columns": {"text": "text", "label": "label"},
                "blend": str(folder / "linear"),
                "patience": 0,
            }
            task |= {"teacher": paths["train"], "dev_fraction": 0.0, "labels": list(labels)}
            num_rows, num_labeled = self._rows(folder)
            train |= {"epochs": EPOCHS if num_rows < 2 * num_labeled else SOFT_EPOCHS}
        else:
            task |= self._labeled_files(folder)
            train |= {"epochs": EPOCHS}
        return finetune_recipe({"seed": recipe.seed, "init_from": str(model), "train": train, "task": task})

    def _labeled_files(self, folder: Path) -> dict[str, Any]:
        """Return the files to fine-tune on without a linear step: the copied records, or the user's files if the task has other formats."""
        spec, task = TASKS[self.data.spec.name].SPEC, self.recipe.task
        if not spec.learner:
            return {"train": task.train, "test": task.test}
        columns = {f.name: f.key for f in spec.fields if any(f.key in record for record in self.data.labeled)}
        files = {"train": [str(folder / "labeled.jsonl")], "test": [str(folder / "test.jsonl")] if task.test else []}
        return {**files, "columns": columns, "blend": "linear" if spec.blend else "none"}

    def _rows(self, folder: Path) -> tuple[int, int]:
        with open(folder / "train.jsonl", encoding="utf-8") as file:
            return sum(1 for _ in file), len(self.data.labeled)


def _hardware(recipe: Recipe) -> dict[str, Any]:
    return {name: getattr(recipe.train, name) for name in ("device", "precision", "threads")}
