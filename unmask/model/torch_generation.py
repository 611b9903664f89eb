"""Text generation with a torch Model. A causal model and a decoder keep keys and values in a cache and compute one new
token per step; an encoder with a prefix mask reads its whole row again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from unmask.batch import Batch
from unmask.model.cache import KVCache
from unmask.model.generation import GenerationConfig
from unmask.model.generation_state import GenerationState, decoder_start_rows, lm_head_name, pad_prompts

if TYPE_CHECKING:
    from unmask.model.model import Model


class TorchGenerationState(GenerationState):
    def __init__(self, model: Model, rows: np.ndarray, cache: bool):
        super().__init__(model.config, rows)
        self.model, self.head, self.device = model, lm_head_name(model), model.embedding.device
        self.cache = self.new_cache() if cache else None
        self._was_training = model.training

    def __enter__(self) -> Self:
        self._was_training = self.model.training
        self.model.eval()
        return self

    def __exit__(self, *error: object) -> None:
        self.model.train(self._was_training)

    def new_cache(self) -> KVCache | None:
        return KVCache(self.model.config.layers)

    @torch.inference_mode()
    def logits(self) -> np.ndarray:
        with self.forward_lock():
            return self.model.logits(self.head, self.last_hidden()).float().cpu().numpy()

    def last_hidden(self) -> Tensor:
        """Return the hidden states (N, D) of the last token of each row."""
        raise NotImplementedError

    def uncached_tokens(self) -> Tensor:
        """Return the tokens (N, new) that are not in the cache yet, on the model's device."""
        cached = 0 if self.cache is None else self.cache.length
        return torch.from_numpy(np.ascontiguousarray(self.rows[:, cached:])).to(self.device)

    @torch.inference_mode()
    def append_tokens(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> None:
        super().append_tokens(tokens, parents)
        if parents is not None and self.cache is not None:
            # All beams of a prompt attend to the same encoder states, so the cross-attention cache keeps its order.
            self.cache.reorder(torch.from_numpy(parents).to(self.device), cross=False)


class CausalState(TorchGenerationState):
    def last_hidden(self) -> Tensor:
        return self.model.encoder(self.uncached_tokens(), cache=self.cache)[:, -1]


class PrefixState(TorchGenerationState):
    """An encoder with a prefix mask: attention is bidirectional in the prompt and causal after it."""

    def new_cache(self) -> KVCache | None:
        return None

    def last_hidden(self) -> Tensor:
        prefix = torch.full((len(self.rows),), self.start, device=self.device)
        return self.model.encode(Batch(self.uncached_tokens(), prefix_lengths=prefix))[:, -1]


class EncoderDecoderState(TorchGenerationState):
    """An encoder–decoder. The encoder reads the prompts, `ids` (N, T) and `mask` (N, T), once."""

    def __init__(self, model: Model, rows: np.ndarray, cache: bool, ids: np.ndarray, mask: np.ndarray):
        super().__init__(model, rows, cache)
        attention_mask = None if mask.all() else torch.from_numpy(mask).to(self.device)
        self.prompts = Batch(torch.from_numpy(ids).to(self.device), attention_mask)
        self.encoder_states: Tensor | None = None  # (N, T, D)
        self.copies = 1

    def new_cache(self) -> KVCache | None:
        return KVCache(self.model.config.decoder_layers)

    def expand_beams(self, copies: int) -> None:
        super().expand_beams(copies)
        self.copies = copies

    def last_hidden(self) -> Tensor:
        prompts = self.prompts
        if self.encoder_states is None:
            self.encoder_states = self.model.encode(prompts).repeat_interleave(self.copies, 0)
            if prompts.attention_mask is not None:
                prompts.attention_mask = prompts.attention_mask.repeat_interleave(self.copies, 0)
        batch = Batch(prompts.input_ids, prompts.attention_mask, decoder_input_ids=self.uncached_tokens())
        return self.model.decode(batch, self.encoder_states, cache=self.cache)[:, -1]


def start_generation(
    model: Model, prompts: Sequence[Sequence[int]], options: GenerationConfig, cache: bool = True
) -> TorchGenerationState:
    ids, mask = pad_prompts(prompts)
    if model.decoder is None:
        return (CausalState if model.config.causal else PrefixState)(model, ids, cache)
    return EncoderDecoderState(model, decoder_start_rows(len(prompts), options), cache, ids, mask)
