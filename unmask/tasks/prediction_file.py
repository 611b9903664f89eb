"""Distillation from a file of predictions (`--teacher predictions.jsonl`), for tasks with one output per text.

The file has the format that `unmask predict MODEL FILE -o predictions.jsonl` writes: the input texts, and `scores`, the probability of
each label. It may come from anywhere, for example the mean of several models. Every training record needs a prediction.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError
from unmask.files import read_lines
from unmask.labels.records import Record
from unmask.tasks.task import Task
from unmask.tasks.teacher import LOGITS, WithTeacher
from unmask.text.decode import clean

SUFFIX = ".jsonl"
MIN_PROBABILITY = 1e-6  # smaller ones have this log-probability


class PredictionFile:
    def __init__(self, path: str | Path, task: Task):
        """Read the predictions. Raise UserError if they do not fit the task."""
        self.path, self.fields = Path(path), tuple(field.key for field in task.spec.inputs if field.holds == "text")
        if task.SPEC.output_per != "row" or task.SPEC.grouped or task.spec.output not in ("choice", "binary"):
            raise UserError(
                f"--teacher {path}: a file of predictions cannot teach this task",
                expected="a model folder, or a task that predicts one or several labels for each text",
            )
        if not self.path.is_file():
            raise UserError(f"--teacher {path}: no such file")
        self.logits: dict[tuple[str, ...], np.ndarray] = {}
        for number, row in enumerate(read_lines(self.path), 1):
            if not isinstance(row, dict):
                raise UserError(f"{path}:{number}: not a prediction", expected='{"text": …, "scores": {…}}')
            self.logits[self._key(row)] = self._parse(row, task, f"{path}:{number}")

    def _key(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the input texts, with control characters replaced as the reader of labeled files does."""
        return tuple(clean(str(row.get(name, "")), 0, lambda *_: None, "", "") for name in self.fields)

    def _parse(self, row: Mapping[str, Any], task: Task, location: str) -> np.ndarray:
        scores = row.get("scores")
        labels = task.spec.labels
        if not isinstance(scores, dict) or set(scores) != set(labels):
            raise UserError(
                f"{location}: the prediction does not have the labels of the training file",
                expected=f'"scores": {{{", ".join(f"{name!r}: probability" for name in labels[:5])}}}',
                hint="write the file with: unmask predict MODEL train.csv -o predictions.jsonl",
            )
        numbers = [scores[name] for name in labels]
        are_numbers = all(isinstance(number, int | float) for number in numbers)
        values = np.array(numbers if are_numbers else [np.nan], np.float64)
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
            raise UserError(f"{location}: a score is not a probability", expected="numbers from 0 to 1")
        log_p = np.log(values.clip(MIN_PROBABILITY))
        logits = log_p - np.log((1 - values).clip(MIN_PROBABILITY)) if task.spec.output == "binary" else log_p
        return logits.astype(np.float32)

    def fingerprint(self) -> str:
        return hashlib.blake2b(self.path.read_bytes(), digest_size=16).hexdigest()

    def attach(self, task: Task, records: Sequence[Record], encoded: Sequence[Sequence[Example]]) -> WithTeacher:
        """Add the predictions to the labels of the rows of each record. Return the objective."""
        missing = [record for record in records if self._key(record) not in self.logits]
        if missing:
            raise UserError(
                f"{self.path} has no prediction for {len(missing):,} of {len(records):,} training records, "
                f"the first at {missing[0].get('location', '?')}",
                hint="predict all training records: unmask predict MODEL train.csv -o predictions.jsonl",
            )
        for record, rows in zip(records, encoded, strict=True):
            for row in rows:
                row.labels = {**row.labels, LOGITS: self.logits[self._key(record)][None]}
        return WithTeacher(task)
