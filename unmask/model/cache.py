"""Keys and values of tokens already read, so that a step of generation computes its one new token and no more."""

import torch
from torch import Tensor


class LayerKVCache:
    """What one attention has read: keys and values (B, S, H, K). Empty at first.

    >>> past = LayerKVCache()
    >>> [past.extend(torch.zeros(1, n, 2, 4), torch.zeros(1, n, 2, 4))[0].shape[1] for n in (5, 1, 1)]
    [5, 6, 7]
    """

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """New tokens' keys and values → those of all tokens."""
        if self.keys is not None and self.values is not None:
            keys, values = torch.cat([self.keys, keys], 1), torch.cat([self.values, values], 1)
        self.keys, self.values = keys, values
        return keys, values

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows, in this order: beams go on from other beams."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


class KVCache:
    """One LayerKVCache per layer, and beside it one per layer for what a decoder reads of the encoder."""

    def __init__(self, layers: int) -> None:
        self.layers = [LayerKVCache() for _ in range(layers)]
        self.cross = [LayerKVCache() for _ in range(layers)]

    @property
    def length(self) -> int:
        """Tokens read so far."""
        keys = self.layers[0].keys
        return 0 if keys is None else keys.shape[1]

    def reorder(self, rows: Tensor, cross: bool = True) -> None:
        """`cross` False: beams of one text read the same encoder states, which need not move."""
        for past in [*self.layers, *(self.cross if cross else ())]:
            past.reorder(rows)
