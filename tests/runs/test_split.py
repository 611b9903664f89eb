"""The dev set that is split off a training file."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs.tiny import labeled, model_folder

from unmask.labels import split as labels_split
from unmask.model.config import preset
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.registry import TASKS
from unmask.runs.part import make_recipe, prepare
from unmask.tasks.task import FitContext, Task
from unmask.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["a b c"], TokenizerRecipe(type="char"))
Row = dict[str, Any]


def task_of(name: str, **task_state: Any) -> Task:
    return TASKS[name](Recipe.build({"task": {"name": name}}), TOKENIZER, {"length": 32, **task_state})


def split(task: Task, records: list[Row], fraction: float, seed: int) -> tuple[list[Row], list[Row]]:
    strata = task.fit_state(FitContext(task.recipe, preset("bert-tiny"), TOKENIZER), records, task.task_state).strata
    return labels_split.split(task.SPEC, records, strata or [""] * len(records), fraction, seed)


def classify(labels: list[str]) -> tuple[Task, list[Row]]:
    """One record for each of these labels, all with different texts."""
    records = [{"location": f"f:{n}", "text": f"text {n}", "label": label} for n, label in enumerate(labels)]
    return task_of("classify", labels=sorted(set(labels)), target="single_label"), records


def test_dev_fraction_applies_to_the_records_and_to_each_label() -> None:
    task, records = classify(["a"] * 300 + ["b"] * 100 + ["c"] * 13)
    train, dev = split(task, records, 0.1, 0)
    assert Counter(r["label"] for r in dev) == {"a": 30, "b": 10, "c": 1}
    assert sorted([*train, *dev], key=lambda r: int(r["location"][2:])) == records


@pytest.mark.parametrize(
    ("labels", "each", "expected"), [(150, 5, 75), (150, 4, 60), (77, 4, 31), (10, 2, 2), (20, 1, 2)]
)
def test_dev_fraction_holds_for_many_labels_with_few_records(labels: int, each: int, expected: int) -> None:
    task, records = classify([f"l{n:03}" for n in range(labels)] * each)
    for seed in range(3):
        dev = split(task, records, 0.1, seed)[1]
        assert len(dev) == expected and max(Counter(r["label"] for r in dev).values()) == 1


def test_dev_set_is_never_empty_and_never_all_records() -> None:
    for count in range(2, 40):
        task, records = classify([f"l{n % 7}" for n in range(count)])
        for fraction in (0.001, 0.1, 0.5, 0.999):
            train, dev = split(task, records, fraction, 1)
            assert train and dev


def test_records_with_equal_texts_are_not_split() -> None:
    task, records = classify(["a", "b"] * 100)
    for n, record in enumerate(records):
        record["text"] = f"text {n // 4}"
    for seed in range(5):
        train, dev = split(task, records, 0.2, seed)
        assert len(dev) == 40 and not {r["text"] for r in train} & {r["text"] for r in dev}


def test_split_depends_only_on_the_seed() -> None:
    task, records = classify(["a", "b"] * 50)
    assert split(task, records, 0.1, 3) == split(task, records, 0.1, 3)
    assert split(task, records, 0.1, 3) != split(task, records, 0.1, 4)


def test_dev_seed_gives_all_seeds_of_a_run_the_same_dev_set(tmp_path: Path) -> None:
    start, file = model_folder(tmp_path / "start"), labeled(tmp_path / "train.csv", 60)

    def dev(seed: int, **settings: Any) -> list[str]:
        values = {"init_from": str(start), "seed": seed, "task": {"train": [str(file)], **settings}}
        return [r["location"] for r in prepare(make_recipe(values)).sets.dev]

    assert dev(1, dev_seed=5) == dev(2, dev_seed=5) and dev(1) != dev(2)


# --------------------------------------------------------------------------------------------- groups that stay together

RECORDS: dict[str, Callable[[int], Row]] = {
    "choose": lambda n: {"context": f"article {n // 5}", "text": f"question {n}", "choices": ["a", "b"], "label": 0},
    "answer": lambda n: {"context": f"article {n // 5}", "question": f"q {n}", "answers": [], "impossible": True},
    "classify": lambda n: {"text": f"premise {n // 3}", "pair": f"hypothesis {n}", "label": "ab"[n % 2]},
}
SHARED = {"choose": "context", "answer": "context", "classify": "text"}


@pytest.mark.parametrize("name", RECORDS)
def test_records_with_a_shared_context_are_not_split(name: str) -> None:
    task = task_of(name, labels=["a", "b"], target="single_label")
    records = [{"location": f"f:{n}", **RECORDS[name](n)} for n in range(150)]
    train, dev = split(task, records, 0.1, 0)
    assert dev and not {r[SHARED[name]] for r in train} & {r[SHARED[name]] for r in dev}


def test_questions_without_a_context_are_split() -> None:
    task, choices = task_of("choose"), {"choices": ["a", "b"], "label": 0}
    train, dev = split(task, [{"location": f"f:{n}", "text": f"question {n}", **choices} for n in range(50)], 0.1, 0)
    assert len(dev) == 5 and len(train) == 45


def test_groups_are_split_if_there_are_too_few() -> None:
    """All pairs have the same first text, or a file contains two articles: no dev set could consist of whole groups."""
    for name in RECORDS:
        task = task_of(name, labels=["a", "b"], target="single_label")
        records = [{"location": f"f:{n}", **RECORDS[name](n), SHARED[name]: f"same {n % 2}"} for n in range(50)]
        dev = split(task, records, 0.1, 0)[1]
        assert 1 <= len(dev) <= 10, (name, len(dev), json.dumps(dev[:2]))
