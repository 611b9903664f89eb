"""Encoder: token ids → hidden states. One class for every Transformer family; ModelConfig selects the variant.

An attention mask is built only if some token must be masked: full rows in a global layer use the kernel's fast path.
"""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.errors import UserError
from unmask.model.cache import KVCache
from unmask.model.config import ModelConfig
from unmask.model.layers import Layer, Rotary, UnpaddedIndex, layer_norm
from unmask.model.relative import Relative

UNPAD_BELOW = 0.95  # unpad a batch if the fraction of its positions that are tokens is below this


class Embeddings(nn.Module):
    tokens: nn.Embedding

    def __init__(self, config: ModelConfig, tokens: bool = True):
        """`tokens=False`: no token embedding, because the decoder shares the encoder's and passes it to `forward`."""
        super().__init__()
        width, self.first = config.embedding_size, config.first_position
        self.scale = width**0.5 if config.embedding_scale else 1.0
        # The padding embedding gets no gradient, unless the decoder starts with that token (T5).
        decoder_starts_with_pad = config.decoder_layers > 0 and config.start_id == config.pad_id
        if tokens:
            padding_idx = None if decoder_starts_with_pad else config.pad_id
            self.tokens = nn.Embedding(config.vocab_size, width, padding_idx=padding_idx)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(self.first + config.max_positions, width) if learned else None
        self.segments = nn.Embedding(config.segments, width) if config.segments else None
        self.norm = layer_norm(config, width) if config.embedding_norm else nn.Identity()
        self.drop = nn.Dropout(config.dropout)
        projected = width != config.hidden or config.embedding_map
        self.project = nn.Linear(width, config.hidden) if projected else nn.Identity()

    def forward(
        self, ids: Tensor, segments: Tensor | None, past: int = 0, tokens: nn.Embedding | None = None
    ) -> Tensor:
        """Embed ids (B, T) that follow `past` cached tokens → (B, T, D)."""
        x = (self.tokens if tokens is None else tokens)(ids)  # (B, T, D)
        if self.scale != 1.0:
            x = x * self.scale
        if self.segments is not None:
            # The sums are in the same order as in transformers, for bitwise equal results.
            single = segments is None or len(self.segments.weight) == 1  # RoBERTa has one vector for all segments
            x = x + (self.segments.weight[0] if single else self.segments(segments))
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
        self.unpad = False  # skip padding everywhere except in attention; for inference, never in an exported graph
        self.checkpointing = False  # gradient checkpointing: less memory, about 33% more computation

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        states: list[Tensor] | None = None,
        positions: Tensor | None = None,
        prefix: Tensor | None = None,
        documents: Tensor | None = None,
        cache: KVCache | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """ids (B, T), mask (B, T) bool with True for tokens, segments (B, T) → hidden (B, T, D).

        positions: (N,) indices into the flattened batch. The last layer then computes its MLP only for these tokens and
            returns (N, D).
        states: a list to which the embeddings and the output of each layer are appended, the last after the final norm.
        prefix, documents: (B,) and (B, T), which tokens may attend to each other (see `batch.py`).
        cache: for a causal model, the keys and values of the tokens before `ids`. The first call passes a prompt, each
            later call one token.
        weights: a list to which the attention probabilities of each layer, (B, H, T, T), are appended.
        """
        T = ids.shape[1]
        past = 0 if cache is None else cache.length
        assert cache is None or (self.config.causal and self.rotary is None and (past == 0 or T == 1))
        check_length(self.config, past + T)
        x = self.embeddings(ids, segments, past)
        unpadded = None
        if mask is not None and self.unpad and states is None and weights is None and not torch.compiler.is_compiling():
            unpadded = UnpaddedIndex(mask) if mask.sum() < UNPAD_BELOW * mask.numel() else None
            x = x if unpadded is None else unpadded.unpad(x)
        global_mask = make_attention_mask(T, ids.device, mask, self.config.causal, prefix, documents)
        if self.relative is not None:
            global_mask = self.relative(T, past, global_mask)
        local_mask = self._local_mask(ids, global_mask)
        rope = None if self.rotary is None else self.rotary(T)
        local_rope = None if self.local_rotary is None else self.local_rotary(T)
        for i in range(self.config.layers):
            if states is not None:
                states.append(x)
            layer = self.layers[i % len(self.layers)]  # ALBERT has one layer that is used every time
            attention_inputs = (local_mask, local_rope) if self.config.is_local(i) else (global_mask, rope)
            selected = positions if i == self.config.layers - 1 else None
            if self.checkpointing:
                # Non-reentrant checkpointing restores the random state, so dropout is the same in the recomputation.
                x = checkpoint(layer, x, *attention_inputs, selected, use_reentrant=False)
            else:
                layer_cache = None if cache is None else cache.layers[i]
                x = layer(x, *attention_inputs, selected, layer_cache, weights, unpadded)
        x = self.norm(x)
        if unpadded is not None and positions is None:
            x = unpadded.repad(x)
        if states is not None:
            states.append(x)
        return x

    def _local_mask(self, ids: Tensor, global_mask: Tensor | None) -> Tensor | None:
        """Return the attention mask of local layers, (B or 1, 1, T, T), or `global_mask` if the window covers the row."""
        T, reach = ids.shape[1], self.config.local_window // 2
        if self.local_rotary is None or reach + 1 >= T:
            return global_mask
        index = torch.arange(T, device=ids.device)
        distance = (index[:, None] - index[None, :]).abs()  # (T, T)
        near = (distance <= reach)[None, None]
        if global_mask is None:
            return near
        # Each position attends to itself: the softmax of a fully masked row (padding far from any token) would be NaN.
        return (near & global_mask) | (distance == 0)


def check_length(config: ModelConfig, length: int) -> None:
    """Raise UserError if a sequence of this length has more tokens than the model has positions."""
    if config.positions != "relative" and config.max_positions < length:
        raise UserError(
            f"a sequence of {length} tokens is too long for this model",
            expected=f"at most {config.max_positions} tokens, the model's maximum",
        )


def make_attention_mask(
    T: int,
    device: torch.device,
    mask: Tensor | None = None,
    causal: bool = False,
    prefix: Tensor | None = None,
    documents: Tensor | None = None,
) -> Tensor | None:
    """Build the attention mask, (B or 1, 1, T or 1, T) bool; None if the kernel needs no explicit mask.

    With causal attention, padding needs no mask, because it comes after all tokens.

    >>> make_attention_mask(3, torch.device("cpu"), prefix=torch.tensor([2]))[0, 0].int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    if causal and prefix is None and documents is None:
        return None
    visible = None if mask is None else mask[:, None, None, :]
    index = torch.arange(T, device=device)
    if causal or prefix is not None:
        may_attend = (index[:, None] >= index[None, :])[None, None]
        if prefix is not None:
            may_attend = may_attend | (index < prefix[:, None])[:, None, None, :]
        visible = may_attend if visible is None else visible & may_attend
    if documents is not None:
        same_document = (documents[:, :, None] == documents[:, None, :])[:, None]
        visible = same_document if visible is None else visible & same_document
    if visible is not None and visible.shape[2] > 1:  # padding attends to itself: a fully masked row would be NaN
        visible = visible | (index[:, None] == index[None, :])
    return visible
