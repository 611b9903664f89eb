"""The log of a run: `Log` appends one JSON line per event to `log.jsonl`. Console output is in `unmask/console.py`."""

import json
from pathlib import Path
from typing import Any

from unmask.train.tensorboard import TensorBoardWriter

FIXED = "fixed"  # key of the values under the fixed masking in an evaluation (`train/eval_sets.py`)
FIXED_TEXT = "15% of the tokens (80% [MASK], 10% random, 10% kept), seed 0"


class Log:
    def __init__(self, path: Path, board: TensorBoardWriter | None = None):
        """`board` also receives every event."""
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 – stays open during the run
        self._board = board

    def write(self, event: str, **values: Any) -> None:
        self._file.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
        if self._board:
            self._board.write(event, values)

    def close(self) -> None:
        self._file.close()
        if self._board:
            self._board.close()


def fixed_masking_values(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return an evaluation's values under the fixed masking, or None."""
    fixed = values.get(FIXED)
    return fixed if isinstance(fixed, dict) else None


def loss_has_other_terms(values: dict[str, Any]) -> bool:
    """Return whether the loss is the sum of the MLM loss and other terms, such as NSP.

    >>> loss_has_other_terms({"loss": 5.5, "mlm": 4.9}), loss_has_other_terms({"loss": 4.9, "mlm": 4.9}), loss_has_other_terms({"loss": 4.9})
    (True, False, False)
    """
    return "mlm" in values and "loss" in values and values["mlm"] != values["loss"]
