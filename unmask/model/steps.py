"""A model read step by step: rows that grow by a token, and the logits of what comes next.

A causal model and a decoder keep what they have read in a cache; an encoder with a prefix mask reads its row again.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unmask.batch import Batch
from unmask.errors import UserError
from unmask.model.cache import Cache
from unmask.model.generation import Generation
from unmask.model.model import Model


class Steps:
    """Rows that grow, (N, L) on the model's device, and the logits of what comes next."""

    def __init__(self, model: Model, head: str, rows: Tensor, cache: bool):
        self.model, self.head, self.rows, self.start = model, head, rows, rows.shape[1]
        self.cache: Cache | None = None
        self.cached = cache

    def longest(self, how: Generation) -> int:
        """How long a row may become: what is asked for, or where nothing is, what the model can read."""
        config, wanted = self.model.config, how.length(self.start)
        if config.positions == "relative" or wanted <= config.max_positions:
            return wanted
        if how.max_new_tokens is not None or self.start >= config.max_positions:
            raise UserError(
                f"a prompt of {self.start:,} tokens and {wanted - self.start:,} new ones",
                valid=f"together at most {config.max_positions:,}, the model's positions",
            )
        return config.max_positions

    def widen(self, copies: int) -> None:
        """Each row so many times, one below the other: the beams."""
        self.rows = self.rows.repeat_interleave(copies, 0)

    def logits(self) -> Tensor:
        """(N, V) in float32."""
        return self.model.logits(self.head, self.last()).float()

    def last(self) -> Tensor:
        """Hidden states (N, D) of the rows' last tokens."""
        raise NotImplementedError

    def grow(self, tokens: Tensor, parents: Tensor | None = None) -> None:
        """Append tokens (N,), to the rows `parents` where these are others."""
        if parents is not None:
            self.rows = self.rows.index_select(0, parents)
            if self.cache is not None:
                self.cache.take(parents, cross=False)  # a beam's parent reads the same text
        self.rows = torch.cat([self.rows, tokens[:, None]], 1)


class Causal(Steps):
    def last(self) -> Tensor:
        if not self.cached:
            return self.model.encoder(self.rows)[:, -1]
        if self.cache is None:
            self.cache = Cache(self.model.config.layers)
        return self.model.encoder(self.rows[:, self.cache.length :], cache=self.cache)[:, -1]


class Prefix(Steps):
    """An encoder whose prompt sees all of itself, and what comes after only what stands before it."""

    def last(self) -> Tensor:
        prefix = torch.full((len(self.rows),), self.start, device=self.rows.device)
        return self.model.encode(Batch(self.rows, prefix=prefix))[:, -1]


class Decoding(Steps):
    def __init__(self, model: Model, head: str, rows: Tensor, cache: bool, texts: Batch):
        super().__init__(model, head, rows, cache)
        self.texts, self.states = texts, model.encode(texts)

    def widen(self, copies: int) -> None:
        super().widen(copies)
        self.states = self.states.repeat_interleave(copies, 0)
        if self.texts.mask is not None:
            self.texts.mask = self.texts.mask.repeat_interleave(copies, 0)

    def last(self) -> Tensor:
        if self.cached and self.cache is None:
            self.cache = Cache(self.model.config.decoder_layers)
        done = 0 if self.cache is None else self.cache.length
        batch = Batch(self.texts.ids, self.texts.mask, decoder=self.rows[:, done:])
        return self.model.decode(batch, self.states, cache=self.cache)[:, -1]


def begin(model: Model, head: str, prompts: list[Sequence[int]], how: Generation, cache: bool) -> Steps:
    device, config = model.embedding.device, model.config
    width = max(map(len, prompts))
    pad = 0 if how.pad_token_id is None else how.pad_token_id
    ids = torch.tensor([[*prompt, *[pad] * (width - len(prompt))] for prompt in prompts], device=device)
    if model.decoder is None:
        return (Causal if config.causal else Prefix)(model, head, ids, cache)
    start = how.decoder_start_token_id
    if start is None:
        raise UserError("the decoder has no first token", valid="decoder_start_token_id, or the tokenizer's own ids")
    lengths = torch.tensor([[len(prompt)] for prompt in prompts], device=device)
    mask = torch.arange(width, device=device)[None] < lengths if (lengths < width).any() else None
    return Decoding(model, head, torch.full((len(prompts), 1), start, device=device), cache, Batch(ids, mask))
