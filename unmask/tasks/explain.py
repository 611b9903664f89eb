"""What of a prediction is explained (`inference/explain.py`): which row of a record, and which of the values that the head gives for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unmask.errors import UserError, nearest
from unmask.labels.records import Record

if TYPE_CHECKING:
    from unmask.tasks.task import Outputs, Task


@dataclass(frozen=True)
class Target:
    """The explained value is the sum of `forward(…)[row][place]` over `places`."""

    row: int
    places: tuple[tuple[int, ...], ...]  # (label,), (token, label); () where a row has one value
    name: str  # what is explained, in words: a label, a choice, an answer


def default_target(task: Task, outputs: Outputs, record: Record, target: str | None) -> Target:
    """By what the task's spec says of its output: the best row of several, the likeliest label, token or span; or `target`."""
    spec, values = task.spec, outputs.values
    if spec.grouped:
        field = next(f for f in spec.inputs if f.holds == "texts")
        names = list(record[field.key])
        number = int(np.argmax(values)) if target is None else find(target, names, field.caption.lower())
        return Target(number, ((),), names[number])
    if spec.output == "span":
        return _span(task, outputs, target)
    labels = list(spec.labels) or ["value"]
    wanted = None if target is None else find(target, labels, "label")
    if spec.output_per == "token":
        scores = values[0] if wanted is None else values[0][:, [wanted]]  # (T, labels)
        token, label = np.unravel_index(int(scores.argmax()), scores.shape)
        number = int(label) if wanted is None else wanted
        return Target(0, ((int(token), number),), labels[number])
    number = int(values[0].argmax()) if wanted is None else wanted
    return Target(0, ((number,),), labels[number])


def _span(task: Task, outputs: Outputs, target: str | None) -> Target:
    if target is not None:
        raise UserError(f"target {target!r}", expected="none: the likeliest span is explained")
    values = outputs.values[0]  # (T, 2)
    start = int(values[:, 0].argmax())
    end = start + int(values[start:, 1].argmax())
    ids = outputs.examples[0].input_ids[start : end + 1].tolist()
    return Target(0, ((start, 0), (end, 1)), task.tokenizer.decode(ids))


def find(target: str, names: Sequence[str], what: str) -> int:
    if target not in names:
        raise UserError(f"no {what} {target!r}{nearest(target, list(names))}", expected=", ".join(names[:12]))
    return list(names).index(target)
