"""A text that is split into several windows counts as one record in the loss."""

from typing import Any

import numpy as np
import pytest
import torch

from unmask.batch import Example, collate
from unmask.labels.record_sets import RecordSets
from unmask.model.config import change, preset
from unmask.model.model import Model
from unmask.objectives.objective import Objective
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.runs.part import Part, build_train_loader
from unmask.tasks.classify.task import Classify
from unmask.tasks.objective import objective_of
from unmask.tasks.teacher import LOGITS, WithTeacher
from unmask.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["one two three four five six"] * 3, TokenizerRecipe(min_frequency=1))
TEXTS = ["one two", "three four five six " * 6, "five one", "six two three one " * 3]
TARGETS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "single_label": ({"labels": ["x", "y"]}, ["x", "y", "y", "x"]),
    "weighed": ({"labels": ["x", "y"], "weights": [0.5, 2.0]}, ["x", "y", "y", "x"]),
    "multi_label": ({"labels": ["x", "y"]}, [["x"], ["x", "y"], [], ["y"]]),
    "regression": ({"labels": ["value"], "mean": 1.0, "sd": 2.0}, [1.0, 5.0, -2.0, 0.0]),
}


def make(target: str, texts: list[str]) -> tuple[Classify, Model, list[list[Example]]]:
    """Return the task, a model, and encoded rows as in a run."""
    task_state, labels = TARGETS[target]
    recipe = Recipe.build({"train": {"batch_size": 4}})
    kind = {"target": "single_label" if target == "weighed" else target}
    task = Classify(recipe, TOKENIZER, {"length": 10, **kind, **task_state})
    shape = {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 64, "vocab_size": TOKENIZER.size, "dropout": 0.0}
    config = preset("bert-tiny", attention_dropout=0.0, **shape, **TOKENIZER.config_ids())
    task.bind(config)
    model = Model(change(config, **task.bound.config_overrides), task.heads).init(0).eval()
    records = [{"location": f"f:{n}", "text": t, "label": y} for n, (t, y) in enumerate(zip(texts, labels))]
    encoded = [task.encode(record) for record in records]
    rng = np.random.default_rng(0)
    for rows in encoded:
        teacher_logits = rng.normal(size=(1, len(task.labels))).astype(np.float32)
        for row in rows:
            row.labels = {**row.labels, LOGITS: teacher_logits}
    build_train_loader(Part(recipe, task, model, RecordSets(records, [], []), []), encoded)
    return task, model, encoded


def losses(objective: Objective, model: Model, rows: list[Example]) -> dict[str, float]:
    with torch.no_grad():
        return {k: float(total) / n for k, (total, n) in objective.loss(model, collate(rows, TOKENIZER.pad)).items()}


def without_weights(row: Example) -> Example:
    return Example(
        row.input_ids,
        row.token_type_ids,
        labels={k: v for k, v in row.labels.items() if k in ("classify.targets", LOGITS)},
    )


@pytest.mark.parametrize("target", TARGETS)
def test_every_record_has_equal_weight(target: str) -> None:
    task, model, encoded = make(target, TEXTS)
    assert [len(rows) for rows in encoded] == [1, 3, 1, 2]
    for objective in (objective_of(task), WithTeacher(task)):
        batch_losses = losses(objective, model, [row for rows in encoded for row in rows])
        each = [losses(objective, model, [without_weights(row) for row in rows]) for rows in encoded]
        assert batch_losses == pytest.approx({k: np.mean([one[k] for one in each]) for k in batch_losses}, rel=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_single_row_records_have_no_weights(target: str) -> None:
    task, model, encoded = make(target, [text[:12] for text in TEXTS])
    rows = [row for group in encoded for row in group]
    assert len(rows) == 4 and set(rows[0].labels) == {"classify.targets", LOGITS}
    assert losses(objective_of(task), model, rows) == losses(
        objective_of(task), model, [without_weights(row) for row in rows]
    )
