"""The first task: encode, decode, score; long texts by windows; and it opens in transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from unmask.batch import Phase, collate
from unmask.data.store import TokenStore
from unmask.lab.finetune import Job, Sets, run_job
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.tasks.classify import Classify
from unmask.tasks.task import Outputs
from unmask.train.distributed import World
from unmask.train.log import Console
from unmask.train.run import Run

RECIPE = Recipe.build({"train": {"epochs": 12, "batch": 8, "length": 32, "optimizer": "adamw", "lr": 3e-3}})
RECORDS = [
    {
        "at": f"made:{i}",
        "text": f"{'sorted list of numbers' if i % 2 else 'class with methods'} {i}",
        "label": "list" if i % 2 else "class",
    }
    for i in range(40)
]


def task_of(store: TokenStore, length: int = 32, **settings: Any) -> Classify:
    recipe = RECIPE.model_copy(update={"task": RECIPE.task.model_copy(update={"long": "first", **settings})})
    return Classify(recipe, store.tokenizer, {"labels": ["list", "class"], "length": length})


def test_windows_cover_the_text_and_are_averaged(store: TokenStore) -> None:
    task = task_of(store, 16, long="windows")
    text = "the list of numbers is sorted in place by a method of the class and then it is returned " * 3
    rows = task.encode({"text": text}, labelled=False)
    ids = store.tokenizer.encode(text)
    assert len(rows) == -(-len(ids) // 14) and task.longer == 1
    assert all(len(r) == 16 and r.ids[0] == store.tokenizer.cls and r.ids[-1] == store.tokenizer.sep for r in rows)
    assert rows[0].ids[1:-1].tolist() == ids[:14] and rows[-1].ids[1:-1].tolist() == ids[-14:]
    assert len(task_of(store, 16).encode({"text": text}, labelled=False)) == 1
    logits = np.array([[2.0, 0.0], [0.0, 5.0], [1.0, 0.0]])
    answers = task.decode(Outputs(list(logits), rows, np.array([0, 0, 1])))
    assert [a["label"] for a in answers] == ["class", "list"]
    assert answers[1]["probability"] == pytest.approx(1 / (1 + np.exp(-1)))


def test_hidden_tokens_are_others_each_time_and_never_special(store: TokenStore) -> None:
    task = task_of(store, 64, hide=0.25)
    (row,) = task.encode(
        {"text": "the list of numbers is sorted in place by a method of the class " * 4}, labelled=False
    )
    outs = [task.corrupt(row, np.random.default_rng(n), Phase(0, 64)) for n in range(200)]
    share = np.mean([(o.ids == store.tokenizer.mask).sum() / (len(row) - 2) for o in outs])
    assert share == pytest.approx(0.25, abs=0.02)
    assert all(o.ids[0] == store.tokenizer.cls and o.ids[-1] == store.tokenizer.sep for o in outs)
    assert len({o.ids.tobytes() for o in outs}) == 200
    assert task_of(store).corrupt(row, np.random.default_rng(0), Phase(0, 64)).ids.tolist() == row.ids.tolist()


def test_pairs_have_segments(store: TokenStore) -> None:
    (row,) = task_of(store).encode({"text": "a list", "pair": "of numbers", "label": "list"})
    first = int(np.flatnonzero(row.ids == store.tokenizer.sep)[0])
    assert row.segments is not None
    assert (row.segments[: first + 1] == 0).all() and (row.segments[first + 1 :] == 1).all()
    assert row.labels["label"].tolist() == [0]


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini"])
def test_it_learns_saves_and_opens_in_transformers(name: str, store: TokenStore, tmp_path: Path) -> None:
    shape = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "labels": ("list", "class"), "dropout": 0.0}
    pooling = {"pooling": "mean"} if name.startswith("modern") else {}
    model = Model(preset(name, vocab_size=store.tokenizer.size, **shape, **pooling), ("classify",)).init(0)
    task, run = task_of(store), Run.create(tmp_path / "run", "finetune", name)
    before = task.score(task.answer(model, RECORDS), RECORDS)["accuracy"]
    run_job(Job(task.recipe, task, model, Sets(RECORDS, [], []), []), run, World(0, 1), Console(quiet=True))
    answers = task.answer(model, RECORDS)
    assert before < 0.8 and task.score(answers, RECORDS)["accuracy"] > 0.95
    theirs, found = AutoModelForSequenceClassification.from_pretrained(run.model, output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    assert theirs.config.id2label == {0: "list", 1: "class"}
    batch = collate([e for r in RECORDS[:6] for e in task.encode(r)], store.tokenizer.pad)
    inputs = {"input_ids": batch.ids, "attention_mask": batch.mask}
    with torch.no_grad():
        logits = theirs.eval()(**inputs).logits.softmax(-1)
    assert [a["scores"]["list"] for a in answers[:6]] == pytest.approx(logits[:, 0].tolist(), abs=1e-5)
