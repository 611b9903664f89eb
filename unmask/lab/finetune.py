"""Fine-tuning: a task's records through the same loader, trainer and checkpoints as pre-training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.batch import Example, collate
from unmask.model import hf
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.tasks.task import Record, RecordRows, Task
from unmask.train import checkpoint
from unmask.train.distributed import World
from unmask.train.fit import fit
from unmask.train.loader import Loader
from unmask.train.log import Console, Update
from unmask.train.run import Run, environment
from unmask.train.schedule import plan
from unmask.train.trainer import Trainer

ROWS = 32  # per forward pass when answering


def finetune(
    model: Model, task: Task, records: Sequence[Record], recipe: Recipe, run: Run, console: Console, title: str
) -> dict[str, Any]:
    """Train every parameter of `model` on the records; the model is saved in the run. Returns the final state."""
    examples = [e for record in records for e in task.encode(record)]
    loader = Loader(RecordRows(examples, task.tokenizer.pad), task, recipe.seed)
    p = plan(recipe, {int(str(recipe.train.length)): len(examples)})
    trainer = Trainer(model, task, recipe.train, p, recipe.seed, World(0, 1))

    def save(folder: Path) -> None:
        hf.save(model, folder, task.tokenizer)

    with run.lock():
        recipe.write(run.path / "recipe.yaml")
        run.write_json("environment.json", environment())
        run.write_json("plan.json", p.as_dict())
        state = fit(run, trainer, loader, [], save, console, title=title)
        checkpoint.write_folder(run.model, save)
    return state


@torch.inference_mode()
def answer(model: Model, task: Task, records: Sequence[Record], update: Update | None = None) -> list[Any]:
    """The task's answers, in the records' order; rows of similar length are computed together."""
    encoded = [task.encode(record) for record in records]
    examples = [e for several in encoded for e in several]
    record = np.repeat(np.arange(len(encoded)), [len(several) for several in encoded])
    order = sorted(range(len(examples)), key=lambda n: len(examples[n]))
    logits: list[np.ndarray | None] = [None] * len(examples)
    model.eval()
    for start in range(0, len(order), ROWS):
        picked = order[start : start + ROWS]
        batch = collate([_unlabelled(examples[n]) for n in picked], task.tokenizer.pad)
        found = model.logits(task.heads[0], model.encode(batch), batch.mask)
        for n, row in zip(picked, found.float().numpy()):
            logits[n] = row
        if update:
            update(start + len(picked), len(order), "")
    return task.decode({"logits": np.stack(logits), "record": record}, examples)  # type: ignore[arg-type]


def _unlabelled(example: Example) -> Example:
    return Example(example.ids, example.segments)
