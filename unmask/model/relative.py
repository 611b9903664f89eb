"""Relative position bias of T5 (Raffel et al. 1910.10683 §2.1): a learned number per head and distance, added to attention scores.

Each small distance has its own bucket. Larger distances share buckets of logarithmically growing size, and all distances
beyond `bucket_reach` share the last bucket. A bidirectional stack uses half of the buckets for later tokens; a causal
stack does not need them. All layers of a stack share one table.
"""

import math

import torch
from torch import Tensor, nn

from unmask.model.config import ModelConfig


class Relative(nn.Module):
    """
    >>> from unmask.model.config import preset
    >>> Relative(preset("t5-mini"), causal=True)(3)[0, 0].isinf().int().tolist()
    [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    """

    def __init__(self, config: ModelConfig, causal: bool):
        super().__init__()
        self.causal, self.buckets, self.reach = causal, config.buckets, config.bucket_reach
        self.bias = nn.Embedding(config.buckets, config.heads)

    def forward(self, T: int, past: int = 0, mask: Tensor | None = None) -> Tensor:
        """Return the bias of the attention scores, (B or 1, H, T, past + T), with −∞ for masked pairs.

        The T tokens follow `past` cached tokens. `mask`: bool, from `encoder.make_attention_mask`.
        """
        device = self.bias.weight.device
        distance = torch.arange(past + T, device=device)[None, :] - torch.arange(past, past + T, device=device)[:, None]
        out = self.bias(bucket(distance, self.causal, self.buckets, self.reach)).permute(2, 0, 1)[None]
        if self.causal:
            out = out.masked_fill(distance > 0, -math.inf)
        return out if mask is None else out.masked_fill(~mask, -math.inf)


def bucket(distance: Tensor, causal: bool, buckets: int, reach: int) -> Tensor:
    """Return the bucket of each distance (key − query).

    >>> bucket(torch.tensor([-200, -20, -3, 0, 3, 200]), causal=False, buckets=32, reach=128).tolist()
    [15, 10, 3, 0, 19, 31]
    """
    after = torch.zeros_like(distance)
    if causal:
        far = (-distance).clamp(min=0)
    else:
        buckets //= 2
        after, far = (distance > 0).long() * buckets, distance.abs()
    exact = buckets // 2
    # Same order of operations as in transformers, so that rounding puts edge distances into the same bucket.
    growth = torch.log(far.clamp(min=1).float() / exact) / math.log(reach / exact) * (buckets - exact)
    return after + torch.where(far < exact, far, (exact + growth.long()).clamp(max=buckets - 1))
