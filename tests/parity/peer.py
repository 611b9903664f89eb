"""The Trainer of transformers on the rows of a task: the reference for fine-tuning (test_trainer.py, bench/finetune.py)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from unmask.batch import Example

Row = dict[str, Any]
AUTO = {
    "classify": transformers.AutoModelForSequenceClassification,
    "tag": transformers.AutoModelForTokenClassification,
    "answer": transformers.AutoModelForQuestionAnswering,
}
FILL = {"attention_mask": 0, "token_type_ids": 0, "labels": -100}


class Ordered(transformers.Trainer):
    """A Trainer that keeps the order of its rows."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)  # type: ignore[arg-type]


def rows(task: str, examples: Sequence[Example]) -> list[Row]:
    """Convert examples to inputs of transformers models."""
    return [
        {"input_ids": e.input_ids.tolist(), "attention_mask": [1] * len(e),
         "token_type_ids": [0] * len(e) if e.token_type_ids is None else e.token_type_ids.tolist(), **_labels(task, e)}
        for e in examples
    ]  # fmt: skip


def _labels(task: str, example: Example) -> Row:
    if task == "classify":
        return {"labels": int(example.labels["classify.targets"][0])}
    if task == "answer":
        start, end = (int(example.labels[name][0]) for name in ("start.targets", "end.targets"))
        return {"start_positions": start, "end_positions": end}
    (targets,) = (v for k, v in example.labels.items() if not k.endswith(".positions"))
    (positions,) = (v for k, v in example.labels.items() if k.endswith(".positions"))
    labels = np.full(len(example), -100)
    labels[positions] = targets
    return {"labels": labels.tolist()}


def collate(batch: Sequence[Row], pad: int) -> dict[str, torch.Tensor]:
    """Pad to the longest row, and token labels with -100, as the collators of transformers do."""
    max_length, out = max(len(row["input_ids"]) for row in batch), {}
    for key in batch[0]:
        values = [row[key] for row in batch]
        if isinstance(values[0], list):
            values = [v + [pad if key == "input_ids" else FILL[key]] * (max_length - len(v)) for v in values]
        out[key] = torch.tensor(values)
    return out


def train(
    task: str, folder: Path, data: Sequence[Row], pad: int, out: Path, ordered: bool = False, **settings: Any
) -> tuple[Any, list[float], float]:
    """Train with the defaults of the Trainer, except for `settings`. Return the model, its logged losses and the training time in seconds."""
    arguments = transformers.TrainingArguments(
        str(out), report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, **settings
    )
    model = AUTO[task].from_pretrained(folder)
    kind = Ordered if ordered else transformers.Trainer
    trainer = kind(model, arguments, lambda batch: collate(batch, pad), list(data))
    seconds = trainer.train().metrics["train_runtime"]
    return model, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], seconds
