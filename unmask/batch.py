"""Example: one row, in numpy. Batch: a collated group of rows, in torch. Nothing here knows an objective.

`labels` is what an objective adds. Keys ending in `.positions` hold indices inside the row; collating turns them
into indices of the flattened (B·T) batch, so that a loss reads its positions with one `index_select`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Phase:
    """What the schedule says of one step: how long rows are, and how much of them is masked."""

    index: int  # number of the length phase; part of every example's address
    length: int  # tokens per row, special ones included
    mask_rate: float = 0.15


@dataclass(slots=True)
class Example:
    ids: np.ndarray  # (T,) int64
    segments: np.ndarray | None = None  # (T,) int64: 0 for A, 1 for B
    flags: np.ndarray | None = None  # (T,) uint8: WORD | SENTENCE | DOCUMENT starts here
    labels: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True)
class Batch:
    ids: torch.Tensor  # (B, T) int64
    mask: torch.Tensor | None = None  # (B, T) bool, True where a token stands; None when no row is padded
    segments: torch.Tensor | None = None  # (B, T) int64
    labels: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.ids.shape[0]

    @property
    def tokens(self) -> int:
        """Tokens that are not padding."""
        return self.ids.numel() if self.mask is None else int(self.mask.sum())

    def to(self, device: torch.device | str) -> "Batch":
        def move(x: torch.Tensor | None) -> torch.Tensor | None:
            return None if x is None else x.to(device, non_blocking=True)

        labels = {name: x.to(device, non_blocking=True) for name, x in self.labels.items()}
        return Batch(self.ids.to(device, non_blocking=True), move(self.mask), move(self.segments), labels)


def collate(examples: Iterable[Example], pad: int, multiple: int = 1) -> Batch:
    """Rows of any lengths → one Batch, padded on the right to the longest (rounded up to `multiple`).

    >>> b = collate([Example(np.array([5, 6])), Example(np.array([7]))], pad=0)
    >>> b.ids.tolist(), b.mask.tolist()
    ([[5, 6], [7, 0]], [[True, True], [True, False]])
    """
    rows = list(examples)
    width = max(len(e) for e in rows)
    width = -(-width // multiple) * multiple
    ids = np.full((len(rows), width), pad, np.int64)
    segments = np.zeros_like(ids) if rows[0].segments is not None else None
    lengths = np.array([len(e) for e in rows])
    gathered: dict[str, list[np.ndarray]] = {}
    for b, e in enumerate(rows):
        ids[b, : len(e)] = e.ids
        if segments is not None:
            assert e.segments is not None
            segments[b, : len(e)] = e.segments
        for name, value in e.labels.items():
            value = np.atleast_1d(value)
            gathered.setdefault(name, []).append(value + b * width if name.endswith(".positions") else value)
    mask = np.arange(width)[None, :] < lengths[:, None] if (lengths < width).any() else None
    return Batch(
        torch.from_numpy(ids),
        None if mask is None else torch.from_numpy(mask),
        None if segments is None else torch.from_numpy(segments),
        {name: torch.from_numpy(np.concatenate(parts)) for name, parts in gathered.items()},
    )
