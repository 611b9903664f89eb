"""A torch Model read step by step: a causal model and a decoder keep what they have read in a cache, so that a step
computes its one new token; an encoder with a prefix mask reads its row again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from unmask.batch import Batch
from unmask.model.cache import Cache
from unmask.model.generation import Generation
from unmask.model.steps import Steps, first, pad, writing_head

if TYPE_CHECKING:
    from unmask.model.model import Model


class TorchSteps(Steps):
    def __init__(self, model: Model, rows: np.ndarray, cache: bool):
        super().__init__(model.config, rows)
        self.model, self.head, self.device = model, writing_head(model), model.embedding.device
        self.cache = self.empty() if cache else None
        self._was_training = model.training

    def __enter__(self) -> Self:
        self._was_training = self.model.training
        self.model.eval()
        return self

    def __exit__(self, *error: object) -> None:
        self.model.train(self._was_training)

    def empty(self) -> Cache | None:
        return Cache(self.model.config.layers)

    @torch.inference_mode()
    def logits(self) -> np.ndarray:
        with self.turn():
            return self.model.logits(self.head, self.last()).float().cpu().numpy()

    def last(self) -> Tensor:
        """Hidden states (N, D) of the rows' last tokens."""
        raise NotImplementedError

    def unread(self) -> Tensor:
        """The tokens (N, new) that are not in the cache, on the model's device."""
        done = 0 if self.cache is None else self.cache.length
        return torch.from_numpy(np.ascontiguousarray(self.rows[:, done:])).to(self.device)

    @torch.inference_mode()
    def grow(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> None:
        super().grow(tokens, parents)
        if parents is not None and self.cache is not None:
            # A beam's parent reads the same text: what a decoder sees of it need not move.
            self.cache.take(torch.from_numpy(parents).to(self.device), cross=False)


class Causal(TorchSteps):
    def last(self) -> Tensor:
        return self.model.encoder(self.unread(), cache=self.cache)[:, -1]


class Prefix(TorchSteps):
    """An encoder whose prompt sees all of itself, and what comes after only what stands before it."""

    def empty(self) -> Cache | None:
        return None

    def last(self) -> Tensor:
        prefix = torch.full((len(self.rows),), self.start, device=self.device)
        return self.model.encode(Batch(self.unread(), prefix=prefix))[:, -1]


class Decoding(TorchSteps):
    """`ids` (N, T) and `mask` (N, T) of the prompts, which the encoder reads once."""

    def __init__(self, model: Model, rows: np.ndarray, cache: bool, ids: np.ndarray, mask: np.ndarray):
        super().__init__(model, rows, cache)
        there = None if mask.all() else torch.from_numpy(mask).to(self.device)
        self.texts = Batch(torch.from_numpy(ids).to(self.device), there)
        self.states: Tensor | None = None  # (N, T, D)
        self.copies = 1

    def empty(self) -> Cache | None:
        return Cache(self.model.config.decoder_layers)

    def widen(self, copies: int) -> None:
        super().widen(copies)
        self.copies = copies

    def last(self) -> Tensor:
        if self.states is None:
            self.states = self.model.encode(self.texts).repeat_interleave(self.copies, 0)
            if self.texts.mask is not None:
                self.texts.mask = self.texts.mask.repeat_interleave(self.copies, 0)
        batch = Batch(self.texts.ids, self.texts.mask, decoder=self.unread())
        return self.model.decode(batch, self.states, cache=self.cache)[:, -1]


def begin(model: Model, prompts: Sequence[Sequence[int]], how: Generation, cache: bool = True) -> TorchSteps:
    ids, mask = pad(prompts)
    if model.decoder is None:
        return (Causal if model.config.causal else Prefix)(model, ids, cache)
    return Decoding(model, first(len(prompts), how), cache, ids, mask)
