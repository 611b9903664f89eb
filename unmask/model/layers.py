"""Transformer layer: rotary positions, attention, MLP, and the layer that combines them.

Vaswani et al. 1706.03762 (post-norm) and later variants: pre-norm, rotary positions (Su et al. 2104.09864), GeGLU
(Shazeer 2002.05202), local attention (Beltagy et al. 2004.05150). ModelConfig selects the variant.
Shapes: B rows, T tokens, D hidden, H heads, K = D / H.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.model.cache import LayerKVCache
from unmask.model.config import ModelConfig

_gelu_tanh = partial(F.gelu, approximate="tanh")
ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def layer_norm(config: ModelConfig, width: int = 0) -> nn.LayerNorm | nn.RMSNorm:
    if config.norm_kind == "rms":
        return nn.RMSNorm(width or config.hidden, eps=config.norm_eps)
    return nn.LayerNorm(width or config.hidden, eps=config.norm_eps, bias=config.norm_bias)


class Rotary(nn.Module):
    """Table of cosines and sines for all positions (RoPE).

    >>> Rotary(dim=4, length=8, theta=10_000.0)(3)[0].shape
    torch.Size([3, 1, 4])
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, dim: int, length: int, theta: float):
        super().__init__()
        # Computed in float32, also for a model that is cast later, as in transformers.
        frequency = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)  # (K/2,)
        angle = torch.arange(length, dtype=torch.float32)[:, None, None] * frequency  # (P, 1, K/2)
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], -1), persistent=False)
        self.register_buffer("sin", torch.cat([-angle.sin(), angle.sin()], -1), persistent=False)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        return self.cos[:length], self.sin[:length]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x[k], x[k + K/2]) by the angle of their position. x (B, T, H, K), cos and sin (T, 1, K).

    `sin` contains the sign of the first half, so a roll replaces the usual negation and concatenation: the result is
    bitwise equal to transformers, with one copy fewer. A fused addcmul is not faster and changes logits by up to 2e-5.
    """
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def select_positions(x: Tensor, positions: Tensor | None) -> Tensor:
    """Return x (B, T, D) at `positions` (N,) of the flattened batch, (N, D), or x unchanged if they are None."""
    return x if positions is None else x.flatten(0, 1).index_select(0, positions)


class UnpaddedIndex:
    """Positions of the tokens in a padded batch. All layers except attention then compute only these tokens, (N, D)."""

    def __init__(self, mask: Tensor):
        self.shape, flat = mask.shape, mask.flatten()
        self.positions = flat.nonzero().squeeze(1)  # (N,) indices into the flattened batch
        self.number = flat.cumsum(0) - 1  # (B·T,) position → index of its token in (N, D)

    def unpad(self, x: Tensor) -> Tensor:
        """(B, T, D) → (N, D)."""
        return select_positions(x, self.positions)

    def repad(self, x: Tensor) -> Tensor:
        """(N, D) → (B, T, D), with zeros for padding."""
        B, T = self.shape
        return x.new_zeros(B * T, x.shape[-1]).index_copy_(0, self.positions, x).view(B, T, -1)


class Attention(nn.Module):
    """Self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: ModelConfig, causal: bool | None = None):
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.causal = config.causal if causal is None else causal
        self.scale = None if config.attention_scale else 1.0  # None: the kernel's default, 1 / sqrt(K)
        inner = config.heads * config.head_dim
        self.qkv = nn.Linear(config.hidden, 3 * inner, bias=config.attention_bias)
        self.out = nn.Linear(inner, config.hidden, bias=config.attention_bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        rope: tuple[Tensor, Tensor] | None,
        positions: Tensor | None = None,
        cache: LayerKVCache | None = None,
        weights: list[Tensor] | None = None,
        unpadded: UnpaddedIndex | None = None,
    ) -> Tensor:
        """x (B, T, D) → (B, T, D), or (N, D) at `positions`. For the other parameters see `Layer.forward`."""
        qkv = self.qkv(x) if unpadded is None else unpadded.repad(self.qkv(x))
        B, T, _ = qkv.shape
        q, k, v = qkv.view(B, T, 3, self.heads, -1).unbind(2)
        if rope is not None:
            cos, sin = (table.to(q.dtype) for table in rope)  # bf16 under autocast
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            k, v = cache.extend(k, v)
        if weights is not None:
            weights.append(self._weights(q, k, mask))
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2),  # (B, H, T, K): a view, because the kernels support strides
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=mask,
            is_causal=bool(self.causal and mask is None and T > 1),  # a single token attends to the whole cache
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )
        y = y.transpose(1, 2).reshape(B, T, -1)
        return self.out(
            unpadded.unpad(y) if unpadded is not None and positions is None else select_positions(y, positions)
        )

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """Compute the attention probabilities (B, H, T, T), which the kernel does not return. q, k (B, T, H, K)."""
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = torch.einsum("bqhk,bshk->bhqs", q, k) * scale
        if self.causal and mask is None:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -torch.inf)
        elif mask is not None:  # relative positions
            scores = scores + mask
        return scores.softmax(-1)


class MLP(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gated, self.activation = config.gated, ACTIVATION[config.activation]
        width = 2 * config.mlp_width if config.gated else config.mlp_width
        self.up = nn.Linear(config.hidden, width, bias=config.mlp_bias)
        self.down = nn.Linear(config.mlp_width, config.hidden, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        if not self.gated:
            return self.down(self.activation(self.up(x)))
        a, gate = self.up(x).chunk(2, -1)
        return self.down(self.activation(a) * gate)


class Layer(nn.Module):
    def __init__(self, config: ModelConfig, first: bool = False):
        super().__init__()
        self.pre = config.norm == "pre"
        self.attention, self.mlp = Attention(config), MLP(config)
        # Pre-norm: if the embeddings are already normalized, the first layer does not normalize them again.
        normalized = self.pre and first and config.embedding_norm
        self.attention_norm = nn.Identity() if normalized else layer_norm(config)
        self.mlp_norm = layer_norm(config)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        rope: tuple[Tensor, Tensor] | None,
        positions: Tensor | None = None,
        cache: LayerKVCache | None = None,
        weights: list[Tensor] | None = None,
        unpadded: UnpaddedIndex | None = None,
    ) -> Tensor:
        """(B, T, D) → (B, T, D), or (N, D) at `positions` of the flattened batch (the last layer only).

        cache: keys and values of the tokens before x; those of x are added.
        weights: a list to which the attention probabilities (B, H, T, T), query × key, are appended.
        unpadded: if given, input and output are (N, D), without padding.
        """
        if unpadded is None:
            residual = select_positions(x, positions)
        else:
            residual = x if positions is None else x.index_select(0, unpadded.number[positions])
        if self.pre:
            attended = self.attention(self.attention_norm(x), mask, rope, positions, cache, weights, unpadded)
            x = residual + self.drop(attended)
            return x + self.drop(self.mlp(self.mlp_norm(x)))
        attended = self.attention(x, mask, rope, positions, cache, weights, unpadded)
        x = self.attention_norm(residual + self.drop(attended))
        return self.mlp_norm(x + self.drop(self.mlp(x)))
