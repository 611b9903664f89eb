"""Decoder of T5 and BART: causal self-attention over its own tokens and cross-attention to the encoder's states.

A layer is the encoder's layer plus cross-attention (Vaswani et al. 1706.03762 §3.1), with the same ModelConfig. The token
embedding is the encoder's and is passed to every call.
"""

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.model.cache import KVCache, LayerKVCache
from unmask.model.config import ModelConfig
from unmask.model.encoder import Embeddings, check_length
from unmask.model.layers import MLP, Attention, layer_norm, select_positions
from unmask.model.relative import Relative


class CrossAttention(nn.Module):
    """Queries from the decoder's tokens x (B, U, D), keys and values from the encoder's states (B, T, D)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.scale = None if config.attention_scale else 1.0
        inner = config.heads * config.head_dim
        self.q = nn.Linear(config.hidden, inner, bias=config.attention_bias)
        self.kv = nn.Linear(config.hidden, 2 * inner, bias=config.attention_bias)
        self.out = nn.Linear(inner, config.hidden, bias=config.attention_bias)

    def forward(self, x: Tensor, states: Tensor, mask: Tensor | None, cache: LayerKVCache | None = None) -> Tensor:
        """Return (B, U, D). The first step fills `cache`; later steps read it."""
        B, T, _ = states.shape
        q = self.q(x).view(B, x.shape[1], self.heads, -1)
        if cache is None or cache.keys is None or cache.values is None:
            k, v = self.kv(states).view(B, T, 2, self.heads, -1).unbind(2)
            if cache is not None:
                cache.keys, cache.values = k, v
        else:
            k, v = cache.keys, cache.values
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )
        return self.out(y.transpose(1, 2).reshape(*x.shape[:2], -1))


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig, first: bool = False):
        super().__init__()
        self.pre = config.norm == "pre"
        self.attention, self.cross, self.mlp = Attention(config, causal=True), CrossAttention(config), MLP(config)
        normalized = self.pre and first and config.embedding_norm
        self.attention_norm = nn.Identity() if normalized else layer_norm(config)
        self.cross_norm, self.mlp_norm = layer_norm(config), layer_norm(config)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        bias: Tensor | None,
        states: Tensor,
        mask: Tensor | None,
        positions: Tensor | None = None,
        cache: LayerKVCache | None = None,
        cross_cache: LayerKVCache | None = None,
    ) -> Tensor:
        """x (B, U, D) → (B, U, D), or (N, D) at `positions`: the MLP of the last layer is computed only there."""
        if self.pre:
            x = x + self.drop(self.attention(self.attention_norm(x), bias, None, cache=cache))
            x = x + self.drop(self.cross(self.cross_norm(x), states, mask, cross_cache))
            x = select_positions(x, positions)
            return x + self.drop(self.mlp(self.mlp_norm(x)))
        x = self.attention_norm(x + self.drop(self.attention(x, bias, None, cache=cache)))
        x = self.cross_norm(x + self.drop(self.cross(x, states, mask, cross_cache)))
        x = select_positions(x, positions)
        return self.mlp_norm(x + self.drop(self.mlp(x)))


class Decoder(nn.Module):
    """
    >>> import torch
    >>> from unmask.model.config import preset
    >>> from unmask.model.model import Model
    >>> model = Model(preset("t5-mini", vocab_size=50), heads=["lm"])
    >>> model.decoder(torch.tensor([[0, 7]]), model.encoder.embeddings.tokens, model(torch.tensor([[5, 6, 1]]))).shape
    torch.Size([1, 2, 256])
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config, tokens=False)
        self.layers = nn.ModuleList(DecoderLayer(config, first=i == 0) for i in range(config.decoder_layers))
        self.norm = layer_norm(config) if config.norm == "pre" else nn.Identity()
        self.relative = Relative(config, causal=True) if config.positions == "relative" else None
        self.checkpointing = False

    def forward(
        self,
        ids: Tensor,
        tokens: nn.Embedding,
        states: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """ids (B, U), the encoder's states (B, T, D) and mask (B, T) → (B, U, D), or (N, D) at flattened `positions`.

        Padding comes after all tokens of a row, so the causal mask hides it. `cache` holds the tokens before `ids`: after
        the first call, `ids` has one token per row.
        """
        U, past = ids.shape[1], 0 if cache is None else cache.length
        assert past == 0 or U == 1
        check_length(self.config, past + U)
        x = self.embeddings(ids, None, past, tokens)
        bias = None if self.relative is None else self.relative(U, past)
        cross_mask = None if mask is None else mask[:, None, None, :]
        for i, layer in enumerate(self.layers):
            selected = positions if i == self.config.decoder_layers - 1 else None
            if self.checkpointing:
                x = checkpoint(layer, x, bias, states, cross_mask, selected, use_reentrant=False)
            elif cache is None:
                x = layer(x, bias, states, cross_mask, selected)
            else:
                x = layer(x, bias, states, cross_mask, selected, cache.layers[i], cache.cross[i])
        return self.norm(x)
