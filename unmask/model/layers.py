"""The parts of a Transformer layer: rotary positions, attention, MLP, and the layer that joins them.

Vaswani et al. 1706.03762 (post-norm) and its later habits: pre-norm, rotary positions (Su et al. 2104.09864), GeGLU
(Shazeer 2002.05202), local attention (Beltagy et al. 2004.05150). Which of them a layer uses is in its ModelConfig.
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
    """Cosines and sines of every position, computed once.

    >>> Rotary(dim=4, length=8, theta=10_000.0)(3)[0].shape
    torch.Size([3, 1, 4])
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, dim: int, length: int, theta: float):
        super().__init__()
        # float32 throughout, also for a model that is later cast: it is what transformers does.
        frequency = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)  # (K/2,)
        angle = torch.arange(length, dtype=torch.float32)[:, None, None] * frequency  # (P, 1, K/2)
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], -1), persistent=False)
        self.register_buffer("sin", torch.cat([-angle.sin(), angle.sin()], -1), persistent=False)

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        return self.cos[:length], self.sin[:length]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x[k], x[k + K/2]) by their position's angle. x (B, T, H, K), cos and sin (T, 1, K).

    The sign of the first half is in `sin`, so a roll does for the usual negation and concatenation: same bits as
    transformers, one copy fewer. (A fused addcmul is no faster here and moves logits by up to 2e-5.)
    """
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def select_positions(x: Tensor, at: Tensor | None) -> Tensor:
    """x (B, T, D) at positions `at` (N,) of the flattened rows → (N, D); all of it when `at` is None."""
    return x if at is None else x.flatten(0, 1).index_select(0, at)


class UnpaddedIndex:
    """Where the tokens of a padded batch stand: everything but attention is then done for them alone, as (N, D)."""

    def __init__(self, mask: Tensor):
        self.shape, flat = mask.shape, mask.flatten()
        self.positions = flat.nonzero().squeeze(1)  # (N,) positions of the flattened batch
        self.number = flat.cumsum(0) - 1  # (B·T,) of each position, which token it holds

    def unpad(self, x: Tensor) -> Tensor:
        """(B, T, D) → (N, D)."""
        return select_positions(x, self.positions)

    def repad(self, x: Tensor) -> Tensor:
        """(N, D) → (B, T, D), zero where nothing stands."""
        B, T = self.shape
        return x.new_zeros(B * T, x.shape[-1]).index_copy_(0, self.positions, x).view(B, T, -1)


class Attention(nn.Module):
    """Self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: ModelConfig, causal: bool | None = None):
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.causal = config.causal if causal is None else causal
        self.scale = None if config.attention_scale else 1.0  # None: the kernel's, one over the root of K
        inner = config.heads * config.head_dim
        self.qkv = nn.Linear(config.hidden, 3 * inner, bias=config.attention_bias)
        self.out = nn.Linear(inner, config.hidden, bias=config.attention_bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        rope: tuple[Tensor, Tensor] | None,
        at: Tensor | None = None,
        past: LayerKVCache | None = None,
        weights: list[Tensor] | None = None,
        rows: UnpaddedIndex | None = None,
    ) -> Tensor:
        """`weights`, where somebody looks, is given (B, H, T, T): how much each token (row) takes from each (column)."""
        qkv = self.qkv(x) if rows is None else rows.repad(self.qkv(x))
        B, T, _ = qkv.shape
        q, k, v = qkv.view(B, T, 3, self.heads, -1).unbind(2)
        if rope is not None:
            cos, sin = (table.to(q.dtype) for table in rope)  # bf16 under autocast
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if past is not None:
            k, v = past.extend(k, v)
        if weights is not None:
            weights.append(self._weights(q, k, mask))
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2),  # (B, H, T, K): views, the kernels read strides
            k.transpose(1, 2),
            v.transpose(1, 2),
            attn_mask=mask,
            is_causal=bool(self.causal and mask is None and T > 1),  # one token sees all that stands before it
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )
        y = y.transpose(1, 2).reshape(B, T, -1)
        return self.out(select_positions(y, at) if rows is None or at is not None else rows.unpad(y))

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """What the kernel multiplies the values with, which it does not give away. q, k (B, T, H, K)."""
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
        # Pre-norm: where the embeddings come normalised, the first layer does not do it again.
        again = self.pre and first and config.embedding_norm
        self.attention_norm = nn.Identity() if again else layer_norm(config)
        self.mlp_norm = layer_norm(config)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        rope: tuple[Tensor, Tensor] | None,
        at: Tensor | None = None,
        past: LayerKVCache | None = None,
        weights: list[Tensor] | None = None,
        rows: UnpaddedIndex | None = None,
    ) -> Tensor:
        """(B, T, D) → (B, T, D), or (N, D) at the positions `at` of the flattened batch (the last layer only).

        `past` holds what stands before x in the row, and takes x in. With `rows`, x and what comes out are (N, D).
        """
        own = select_positions(x, at) if rows is None else x if at is None else x.index_select(0, rows.number[at])
        if self.pre:
            x = own + self.drop(self.attention(self.attention_norm(x), mask, rope, at, past, weights, rows))
            return x + self.drop(self.mlp(self.mlp_norm(x)))
        x = self.attention_norm(own + self.drop(self.attention(x, mask, rope, at, past, weights, rows)))
        return self.mlp_norm(x + self.drop(self.mlp(x)))
