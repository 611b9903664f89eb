"""Encoder: token ids → hidden states. One class for every family; its ModelConfig says which Transformer it is.

No attention mask exists unless something is hidden: full rows in a global layer take the kernel's fast path.
"""

from typing import Literal, overload

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.layers import Layer, Rotary, layer_norm


class Embeddings(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden, padding_idx=config.pad_id)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(config.max_positions, config.hidden) if learned else None
        self.segments = nn.Embedding(config.segments, config.hidden) if config.segments else None
        self.norm = layer_norm(config)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, segments: Tensor | None) -> Tensor:
        x = self.tokens(ids)  # (B, T, D)
        if self.segments is not None:
            # The order of the sums is transformers', to the last bit.
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        return self.drop(self.norm(x))


class Encoder(nn.Module):
    """
    >>> from unmask.model.config import preset
    >>> Encoder(preset("bert-tiny", vocab_size=50))(torch.tensor([[2, 7, 3]])).shape
    torch.Size([1, 3, 128])
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config, first=i == 0) for i in range(config.layers))
        self.norm = layer_norm(config) if config.norm == "pre" else nn.Identity()
        rope = config.positions == "rope"
        any_local = any(config.is_local(i) for i in range(config.layers))
        size = (config.head_dim, config.max_positions)
        self.rotary = Rotary(*size, config.rope_theta) if rope else None
        self.local_rotary = Rotary(*size, config.local_rope_theta) if rope and any_local else None
        self.checkpointing = False  # recompute activations in the backward pass: less memory, a third more work

    @overload
    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = ...,
        segments: Tensor | None = ...,
        layers: Literal[False] = ...,
        at: Tensor | None = ...,
        prefix: Tensor | None = ...,
        documents: Tensor | None = ...,
    ) -> Tensor: ...
    @overload
    def forward(
        self, ids: Tensor, mask: Tensor | None = ..., segments: Tensor | None = ..., *, layers: Literal[True]
    ) -> tuple[Tensor, list[Tensor]]: ...
    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        layers: bool = False,
        at: Tensor | None = None,
        prefix: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """ids (B, T), mask (B, T) bool with True where a token stands, segments (B, T) → hidden (B, T, D).

        With `at` (N,), positions of the flattened batch, only those come out of the last layer: (N, D). Its MLP, most
        of its work, is then not done for tokens that no loss reads.
        With `layers` also every hidden state: the embeddings, then each layer's, the last after the final norm.
        `prefix` (B,) and `documents` (B, T) say what tokens see (`batch.py`).
        """
        T = ids.shape[1]
        if self.config.max_positions < T:
            raise UserError(
                f"a sequence of {T} tokens", valid=f"at most {self.config.max_positions}, the model's positions"
            )
        x = self.embeddings(ids, segments)
        states = [x]
        everyone = sight(T, ids.device, mask, self.config.causal, prefix, documents)
        nearby = self._window(ids, everyone)
        rope = None if self.rotary is None else self.rotary(T)
        local_rope = None if self.local_rotary is None else self.local_rotary(T)
        for i, layer in enumerate(self.layers):
            local = self.config.is_local(i)
            seen = (x, nearby, local_rope) if local else (x, everyone, rope)
            # Non-reentrant checkpointing restores the random state, so dropout repeats itself.
            last = at if i == self.config.layers - 1 else None
            x = checkpoint(layer, *seen, last, use_reentrant=False) if self.checkpointing else layer(*seen, last)
            states.append(x)
        x = self.norm(x)
        states[-1] = x
        return (x, states) if layers else x

    def _window(self, ids: Tensor, everyone: Tensor | None) -> Tensor | None:
        """What a local layer's tokens see: (B or 1, 1, T, T), or `everyone` where the window hides nothing."""
        T, reach = ids.shape[1], self.config.local_window // 2
        if self.local_rotary is None or reach + 1 >= T:
            return everyone
        place = torch.arange(T, device=ids.device)
        distance = (place[:, None] - place[None, :]).abs()  # (T, T)
        near = (distance <= reach)[None, None]
        if everyone is None:
            return near
        # Padding far from any token would see nothing, and the softmax of nothing is NaN: it sees itself.
        return (near & everyone) | (distance == 0)


def sight(
    T: int,
    device: torch.device,
    mask: Tensor | None = None,
    causal: bool = False,
    prefix: Tensor | None = None,
    documents: Tensor | None = None,
) -> Tensor | None:
    """Which token sees which, as (B or 1, 1, T or 1, T) bool; None where the attention's own kind says it all.

    In a causal row padding stands after every token and is never seen, so it needs no mask.

    >>> sight(3, torch.device("cpu"), prefix=torch.tensor([2]))[0, 0].int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    if causal and prefix is None and documents is None:
        return None
    seen = None if mask is None else mask[:, None, None, :]
    place = torch.arange(T, device=device)
    if causal or prefix is not None:
        before = (place[:, None] >= place[None, :])[None, None]
        if prefix is not None:
            before = before | (place < prefix[:, None])[:, None, None, :]
        seen = before if seen is None else seen & before
    if documents is not None:
        together = (documents[:, :, None] == documents[:, None, :])[:, None]
        seen = together if seen is None else seen & together
    if seen is not None and seen.shape[2] > 1:  # padding that sees nothing would be NaN: it sees itself
        seen = seen | (place[:, None] == place[None, :])
    return seen
