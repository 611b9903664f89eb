"""Task: an objective that can also answer.

`encode` turns a user's record into examples, `decode` turns arrays into answers (numpy, so that an exported model answers
without torch), `score` compares answers with records.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.batch import Example, Phase
from unmask.objectives.objective import Objective

Record = dict[str, Any]


class Task(Objective):
    def encode(self, record: Record) -> list[Example]:
        raise NotImplementedError(f"{type(self).__name__}.encode")

    def decode(self, arrays: dict[str, np.ndarray], examples: Sequence[Example]) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__}.decode")

    def score(self, answers: Sequence[Any], records: Sequence[Record]) -> dict[str, float]:
        raise NotImplementedError(f"{type(self).__name__}.score")


class RecordRows:
    """A list of examples with the face of `data.rows.Rows`: what the loader reads."""

    def __init__(self, examples: Sequence[Example], pad: int):
        self.examples, self.pad = examples, pad

    def count(self, length: int) -> int:
        return len(self.examples)

    def example(self, epoch: int, i: int, phase: Phase) -> Example:
        return self.examples[i]
