"""Target of an explanation (`inference/explain.py`): a row of a record, and one or more of the head's output values for it."""

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
    """The explained value is the sum of `forward(…)[row][index]` over `indices`."""

    row: int
    indices: tuple[tuple[int, ...], ...]  # (label,) or (token, label); () if a row has one value
    name: str  # for display: a label, a choice, an answer


def default_target(task: Task, outputs: Outputs, record: Record, target: str | None) -> Target:
    """Return the target for the task's kind of output: `target` if given, else the best row, or the most probable label, token or span."""
    spec, values = task.spec, outputs.values
    if spec.grouped:
        field = next(f for f in spec.inputs if f.holds == "texts")
        names = list(record[field.key])
        index = int(np.argmax(values)) if target is None else find(target, names, field.caption.lower())
        return Target(index, ((),), names[index])
    if spec.output == "span":
        return _span(task, outputs, target)
    labels = list(spec.labels) or ["value"]
    requested = None if target is None else find(target, labels, "label")
    if spec.output_per == "token":
        scores = values[0] if requested is None else values[0][:, [requested]]  # (T, labels)
        token, best = np.unravel_index(int(scores.argmax()), scores.shape)
        label = int(best) if requested is None else requested
        return Target(0, ((int(token), label),), labels[label])
    label = int(values[0].argmax()) if requested is None else requested
    return Target(0, ((label,),), labels[label])


def _span(task: Task, outputs: Outputs, target: str | None) -> Target:
    if target is not None:
        raise UserError(
            f"target {target!r} given for a span task", hint="remove it: the most probable span is explained"
        )
    values = outputs.values[0]  # (T, 2)
    start = int(values[:, 0].argmax())
    end = start + int(values[start:, 1].argmax())
    ids = outputs.examples[0].input_ids[start : end + 1].tolist()
    return Target(0, ((start, 0), (end, 1)), task.tokenizer.decode(ids))


def find(target: str, names: Sequence[str], kind: str) -> int:
    """Return the index of a name; `kind` says in the error message what the names are."""
    if target not in names:
        raise UserError(f"no {kind} {target!r}{nearest(target, list(names))}", expected=", ".join(names[:12]))
    return list(names).index(target)
