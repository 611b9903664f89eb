"""T5's relative positions (Raffel et al. 1910.10683 §2.1): a number per head and distance, added to attention scores.

Near distances have a bucket each, farther ones share buckets that grow logarithmically, all beyond `bucket_reach` the
last one. A bidirectional stack gives half of its buckets to what comes after; a causal one sees none of that. All layers
of a stack share one table.
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

    def forward(self, T: int, past: int = 0, seen: Tensor | None = None) -> Tensor:
        """Scores to add, (B or 1, H, T, past + T), −∞ where a token does not see another.

        The T tokens stand after `past` others. `seen`: bool, as `encoder.sight` gives it.
        """
        device = self.bias.weight.device
        distance = torch.arange(past + T, device=device)[None, :] - torch.arange(past, past + T, device=device)[:, None]
        out = self.bias(bucket(distance, self.causal, self.buckets, self.reach)).permute(2, 0, 1)[None]
        if self.causal:
            out = out.masked_fill(distance > 0, -math.inf)
        return out if seen is None else out.masked_fill(~seen, -math.inf)


def bucket(distance: Tensor, causal: bool, buckets: int, reach: int) -> Tensor:
    """Distance (key − query) → number of its bucket.

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
    # The order of these operations is transformers': a distance on an edge falls on the same side.
    growth = torch.log(far.clamp(min=1).float() / exact) / math.log(reach / exact) * (buckets - exact)
    return after + torch.where(far < exact, far, (exact + growth.long()).clamp(max=buckets - 1))
