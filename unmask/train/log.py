"""What a run remembers of what happened: `Log` appends a JSON line per event to the run's `log.jsonl`.

What a person sees meanwhile is printed by `unmask/console.py`.
"""

import json
from pathlib import Path
from typing import Any

from unmask.train.tensorboard import TensorBoardWriter

FIXED = "fixed"  # under which an evaluation has its values under the fixed masking (`train/eval_sets.py`)
FIXED_TEXT = "15 % of the tokens (80 % [MASK], 10 % random, 10 % kept), seed 0"


class Log:
    def __init__(self, path: Path, board: TensorBoardWriter | None = None):
        """`board`: also gets every event."""
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 – open as long as the run
        self._board = board

    def write(self, event: str, **values: Any) -> None:
        self._file.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
        if self._board:
            self._board.write(event, values)

    def close(self) -> None:
        self._file.close()
        if self._board:
            self._board.close()


def fixed_of(values: dict[str, Any]) -> dict[str, Any] | None:
    """An evaluation's values under the fixed masking, where it has them."""
    found = values.get(FIXED)
    return found if isinstance(found, dict) else None


def is_sum(values: dict[str, Any]) -> bool:
    """Whether the loss is that of masked tokens and something else, such as NSP's.

    >>> is_sum({"loss": 5.5, "mlm": 4.9}), is_sum({"loss": 4.9, "mlm": 4.9}), is_sum({"loss": 4.9})
    (True, False, False)
    """
    return "mlm" in values and "loss" in values and values["mlm"] != values["loss"]
