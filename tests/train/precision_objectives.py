"""Objectives that behave differently in bf16, for trials in real child processes.

They compute in fp32 in either case, so that they do the same on every CPU. A child process imports this module.
"""

import os
import signal
import time

import torch

from unmask.batch import Batch
from unmask.model.model import Model
from unmask.objectives.mlm import MLM
from unmask.objectives.objective import Terms

DELAY = 0.2  # seconds; a pass of the tiny model takes a few milliseconds


class Same(MLM):
    factor = 1.0  # of the loss in bf16

    def in_fp32(self) -> None: ...
    def in_bf16(self) -> None: ...

    def loss(self, model: Model, batch: Batch) -> Terms:
        bf16 = torch.is_autocast_enabled("cpu")
        self.in_bf16() if bf16 else self.in_fp32()
        with torch.autocast("cpu", enabled=False):
            terms = super().loss(model, batch)
        return {name: (self.factor * total if bf16 else total, count) for name, (total, count) in terms.items()}


class Faster(Same):
    def in_fp32(self) -> None:
        time.sleep(DELAY)


class Slower(Same):
    def in_bf16(self) -> None:
        time.sleep(DELAY)


class Wrong(Faster):
    factor = 1.05


class NotFinite(Faster):
    factor = float("nan")


class IllegalInstruction(Same):
    def in_bf16(self) -> None:
        os.kill(os.getpid(), signal.SIGILL)


class Hang(Same):
    def in_bf16(self) -> None:
        time.sleep(600)


class Unsupported(Same):
    def in_bf16(self) -> None:
        raise RuntimeError('"some_kernel" not implemented for BFloat16')


class NotPicklable(Same):
    def __init__(self, *args) -> None:  # type: ignore[no-untyped-def]
        super().__init__(*args)
        self.function = lambda: None
