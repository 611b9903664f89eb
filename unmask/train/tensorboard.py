"""TensorBoard event files of a run, in `tensorboard/` of its folder (`train.track: tensorboard`).

    tensorboard --logdir runs/

Disabled by default; log.jsonl is always written and has the same values. A resumed run hides the steps that it repeats.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.metrics import finite

EVENTS = ("train", "eval")


def check(track: str) -> None:
    """Raise a UserError if tensorboard is requested but not installed."""
    if track == "tensorboard" and find_spec("tensorboard") is None:
        raise UserError(
            "train.track=tensorboard needs the package tensorboard, which is not installed",
            hint="pip install 'unmask[track]'",
        )


class TensorBoardWriter:
    """Writes scalars by step: `train/loss`, `eval/accuracy`, …; `eval/loss/NAME` for replay corpora."""

    def __init__(self, folder: Path, first_step: int = 0):
        """`first_step`: the first step that will be written. Later steps that are in the folder already are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(folder, purge_step=first_step or None)

    def write(self, event: str, values: Mapping[str, Any]) -> None:
        if event not in EVENTS:
            return
        for name, value in flatten_metrics(values).items():
            if name not in ("step", "elapsed"):
                self._writer.add_scalar(f"{event}/{name}", value, values["step"])

    def close(self) -> None:
        self._writer.close()


def flatten_metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers by name.

    >>> flatten_metrics({"loss": 1.5, "note": "x", "heldout[news]": {"loss": 2.0}})
    {'loss': 1.5, 'loss/news': 2.0}
    """
    metrics: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            corpus = name.removeprefix("heldout[").removesuffix("]")
            metrics |= {f"{inner}/{corpus}": number for inner, number in flatten_metrics(value).items()}
        elif finite(value):
            metrics[name] = value
    return metrics
