"""TensorBoard: what a run logs, as event files in `tensorboard/` of its folder (`train.track: tensorboard`).

    tensorboard --logdir runs/

Off unless it is asked for; log.jsonl is always written and has everything. A resumed run hides what it does again.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.metrics import finite

EVENTS = ("train", "eval")


def check(track: str) -> None:
    """Refuse what is not installed, before anything is read."""
    if track == "tensorboard" and find_spec("tensorboard") is None:
        raise UserError(
            "train.track=tensorboard needs the package tensorboard, which is not installed",
            hint="pip install 'unmask[track]'",
        )


class TensorBoardWriter:
    """Writes scalars: `train/loss`, `eval/accuracy`, … by step; of mixed texts `eval/loss/NAME`."""

    def __init__(self, folder: Path, begin: int = 0):
        """`begin`: the first step that is written; steps after it that are in the folder already are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(folder, purge_step=begin or None)

    def write(self, event: str, values: Mapping[str, Any]) -> None:
        if event not in EVENTS:
            return
        for name, value in flatten_metrics(values).items():
            if name not in ("step", "elapsed"):
                self._writer.add_scalar(f"{event}/{name}", value, values["step"])

    def close(self) -> None:
        self._writer.close()


def flatten_metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """Finite numbers by name.

    >>> flatten_metrics({"loss": 1.5, "note": "x", "heldout[news]": {"loss": 2.0}})
    {'loss': 1.5, 'loss/news': 2.0}
    """
    out: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            text = name.removeprefix("heldout[").removesuffix("]")
            out |= {f"{inner}/{text}": number for inner, number in flatten_metrics(value).items()}
        elif finite(value):
            out[name] = value
    return out
