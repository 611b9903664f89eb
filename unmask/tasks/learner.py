"""Learner: the part of `unmask learn` that depends on the task. A task that supports it names a class in `SPEC.learner`.

The learner trains a linear model on labeled records, on words, and on unlabeled texts, before any encoder is fine-tuned. Its soft
labels train the encoder; its linear model is blended with the encoder (`--blend FOLDER`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from unmask.labels.records import Record
    from unmask.tasks.spec import TaskSpec

Row = dict[str, Any]


@dataclass
class LearnInputs:
    """What a learner learns from. `hidden`: hidden states of the labeled texts and of the first unlabeled ones, if there is a model."""

    task_state: dict[str, Any]
    labeled: Sequence[Record]
    texts: Sequence[str]  # unlabeled
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)  # label → words
    check: Sequence[Record] = ()  # labeled records that check the words
    test: Sequence[Record] = ()
    hidden: np.ndarray | None = None
    seed: int = 0


class Learner(Protocol):
    notes: list[str]  # about the fit, for the console
    steps: list[Row]  # models so far: name, split, score, low, high

    @classmethod
    def check_words(cls, values: Sequence[str], texts: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Return label → words of --words; raise UserError if they are invalid or, if texts are given, too rare in them."""
        ...

    @classmethod
    def supports(cls, task_state: Mapping[str, Any]) -> bool:
        """Return whether unlabeled texts can be used for this kind of target."""
        ...

    def __init__(self, inputs: LearnInputs): ...

    def save(self, folder: Path) -> None:
        """Save the linear model as `--blend FOLDER` reads it."""
        ...

    def training_records(self, num_texts: int) -> list[Row]:
        """Return the labeled records and at most `num_texts` texts with soft labels: {text, label, scores, …}."""
        ...

    def decide(self, count: int) -> Row:
        """Return what to do next: {"curve", "to_label", "suspects"}, see report/learning.py. `count`: texts to label."""
        ...


def learner_class(spec: TaskSpec) -> type[Learner]:
    return EntryPoint(spec.name, spec.learner, "").load()
