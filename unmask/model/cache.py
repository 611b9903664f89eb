"""Key-value cache for text generation: each step computes only its new token."""

import torch
from torch import Tensor


class LayerKVCache:
    """Keys and values (B, S, H, K) of one attention layer; empty at first.

    >>> cache = LayerKVCache()
    >>> [cache.extend(torch.zeros(1, n, 2, 4), torch.zeros(1, n, 2, 4))[0].shape[1] for n in (5, 1, 1)]
    [5, 6, 7]
    """

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens; return those of all tokens."""
        if self.keys is not None and self.values is not None:
            keys, values = torch.cat([self.keys, keys], 1), torch.cat([self.values, values], 1)
        self.keys, self.values = keys, values
        return keys, values

    def reorder(self, rows: Tensor) -> None:
        """Select these rows in this order, because a beam may continue another beam."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


class KVCache:
    """A cache per layer for self-attention, and one per layer for the cross-attention of a decoder."""

    def __init__(self, layers: int) -> None:
        self.layers = [LayerKVCache() for _ in range(layers)]
        self.cross = [LayerKVCache() for _ in range(layers)]

    @property
    def length(self) -> int:
        """Return the number of cached tokens."""
        keys = self.layers[0].keys
        return 0 if keys is None else keys.shape[1]

    def reorder(self, rows: Tensor, cross: bool = True) -> None:
        """Reorder the rows. `cross=False` skips the cross-attention, which is the same for all beams of a text."""
        for cache in [*self.layers, *(self.cross if cross else ())]:
            cache.reorder(rows)
