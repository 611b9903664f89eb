"""Encoder: token ids → hidden states. One class for every family; its ModelConfig says which Transformer it is.

No attention mask exists unless something is hidden: full rows in a global layer take the kernel's fast path.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.errors import UserError
from unmask.model.cache import KVCache
from unmask.model.config import ModelConfig
from unmask.model.layers import Layer, Rotary, UnpaddedIndex, layer_norm
from unmask.model.relative import Relative

UNPAD_BELOW = 0.95  # share of a batch that is text, below which it is worth taking the padding out


class Embeddings(nn.Module):
    tokens: nn.Embedding

    def __init__(self, config: ModelConfig, tokens: bool = True):
        """Without `tokens` it has no table of its own and is given one: the decoder shares the encoder's."""
        super().__init__()
        width, self.first = config.embedding_size, config.first_position
        self.scale = width**0.5 if config.embedding_scale else 1.0
        # Padding learns nothing as an input, unless the decoder begins with it.
        starts = config.decoder_layers > 0 and config.start_id == config.pad_id
        if tokens:
            self.tokens = nn.Embedding(config.vocab_size, width, padding_idx=None if starts else config.pad_id)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(self.first + config.max_positions, width) if learned else None
        self.segments = nn.Embedding(config.segments, width) if config.segments else None
        self.norm = layer_norm(config, width) if config.embedding_norm else nn.Identity()
        self.drop = nn.Dropout(config.dropout)
        mapped = width != config.hidden or config.embedding_map
        self.project = nn.Linear(width, config.hidden) if mapped else nn.Identity()

    def forward(
        self, ids: Tensor, segments: Tensor | None, past: int = 0, tokens: nn.Embedding | None = None
    ) -> Tensor:
        """The row's tokens after its first `past` ones."""
        x = (self.tokens if tokens is None else tokens)(ids)  # (B, T, D)
        if self.scale != 1.0:
            x = x * self.scale
        if self.segments is not None:
            # The order of the sums is transformers', to the last bit.
            alike = segments is None or len(self.segments.weight) == 1  # RoBERTa has one vector for all
            x = x + (self.segments.weight[0] if alike else self.segments(segments))
        if self.positions is not None:
            first = self.first + past
            x = x + self.positions.weight[first : first + ids.shape[1]]
        return self.project(self.drop(self.norm(x)))


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
        count = 1 if config.shared_layers else config.layers
        self.layers = nn.ModuleList(Layer(config, first=i == 0) for i in range(count))
        self.norm = layer_norm(config) if config.norm == "pre" else nn.Identity()
        rope = config.positions == "rope"
        any_local = any(config.is_local(i) for i in range(config.layers))
        size = (config.head_dim, config.max_positions)
        self.rotary = Rotary(*size, config.rope_theta) if rope else None
        self.local_rotary = Rotary(*size, config.local_rope_theta) if rope and any_local else None
        self.relative = Relative(config, config.causal) if config.positions == "relative" else None
        self.unpad = False  # whether padding is left out of all but attention: for answers, never in an exported graph
        self.checkpointing = False  # recompute activations in the backward pass: less memory, a third more work

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        states: list[Tensor] | None = None,
        at: Tensor | None = None,
        prefix: Tensor | None = None,
        documents: Tensor | None = None,
        cache: KVCache | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """ids (B, T), mask (B, T) bool with True where a token stands, segments (B, T) → hidden (B, T, D).

        With `at` (N,), positions of the flattened batch, only those come out of the last layer: (N, D). Its MLP, most
        of its work, is then not done for tokens that no loss reads.
        `states`, an empty list, is given the embeddings, then what each layer made, the last after the final norm.
        `prefix` (B,) and `documents` (B, T) say what tokens see (`batch.py`).
        `weights`, an empty list, is given each layer's attention, (B, H, T, T).
        `cache`, of a causal model, holds the tokens before `ids`, and takes these in: first a prompt, then one by one.
        """
        T = ids.shape[1]
        past = 0 if cache is None else cache.length
        assert cache is None or (self.config.causal and self.rotary is None and (past == 0 or T == 1))
        check_length(self.config, past + T)
        x = self.embeddings(ids, segments, past)
        rows = None
        if mask is not None and self.unpad and states is None and weights is None and not torch.compiler.is_compiling():
            rows = UnpaddedIndex(mask) if mask.sum() < UNPAD_BELOW * mask.numel() else None
            x = x if rows is None else rows.unpad(x)
        everyone = make_attention_mask(T, ids.device, mask, self.config.causal, prefix, documents)
        if self.relative is not None:
            everyone = self.relative(T, past, everyone)
        nearby = self._window(ids, everyone)
        rope = None if self.rotary is None else self.rotary(T)
        local_rope = None if self.local_rotary is None else self.local_rotary(T)
        for i in range(self.config.layers):
            if states is not None:
                states.append(x)
            layer = self.layers[i % len(self.layers)]  # shared: the one there is
            local = self.config.is_local(i)
            seen = (x, nearby, local_rope) if local else (x, everyone, rope)
            # Non-reentrant checkpointing restores the random state, so dropout repeats itself.
            last = at if i == self.config.layers - 1 else None
            if self.checkpointing:
                x = checkpoint(layer, *seen, last, use_reentrant=False)
            else:
                x = layer(*seen, last, None if cache is None else cache.layers[i], weights, rows)
        x = self.norm(x)
        if rows is not None and at is None:
            x = rows.repad(x)
        if states is not None:
            states.append(x)
        return x

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


def check_length(config: ModelConfig, length: int) -> None:
    if config.positions != "relative" and config.max_positions < length:
        raise UserError(
            f"a sequence of {length} tokens", expected=f"at most {config.max_positions}, the model's positions"
        )


def make_attention_mask(
    T: int,
    device: torch.device,
    mask: Tensor | None = None,
    causal: bool = False,
    prefix: Tensor | None = None,
    documents: Tensor | None = None,
) -> Tensor | None:
    """Which token sees which, as (B or 1, 1, T or 1, T) bool; None where the attention's own kind says it all.

    In a causal row padding stands after every token and is never seen, so it needs no mask.

    >>> make_attention_mask(3, torch.device("cpu"), prefix=torch.tensor([2]))[0, 0].int().tolist()
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
