"""Example: one row, in numpy. Batch: a collated group of rows, in torch. Nothing here knows an objective.

`labels` is what an objective adds. Keys ending in `.positions` hold indices inside the row; collating turns them
into indices of the flattened (B·T) batch, so that a loss reads its positions with one `index_select`. Keys ending in
`.outputs` do the same for the decoder's row (B·U).

What a token may see is data: `prefix` tokens see each other, the ones after them see only what stands before
(0 = causal; None = as the model is made: all of the row, or causal for a GPT). `documents` numbers the documents packed
into a row; tokens see their own only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

WORTH, ALIKE = 512, 0.85  # tokens that make a forward pass of their own worth it; how alike lengths in one have to be
TOKENS = 2048  # per forward pass when answering, padding included: fills two cores, and fits their caches (docs/log.md)


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
    prefix: int | None = None  # tokens that see each other; the later ones see what stands before them
    documents: np.ndarray | None = None  # (T,) int64: tokens of equal number see each other
    decoder: np.ndarray | None = None  # (U,) int64: what an encoder–decoder's decoder is given
    texts: tuple[str, ...] = ()  # what the row was made from: one text, or two; never collated
    about: Any = None  # what a task's `decode` has to know of the row; never collated
    more: Sequence[Example] = ()  # further rows of the same record: they stay in one batch with this one

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True)
class Batch:
    ids: torch.Tensor  # (B, T) int64
    mask: torch.Tensor | None = None  # (B, T) bool, True where a token stands; None when no row is padded
    segments: torch.Tensor | None = None  # (B, T) int64
    labels: dict[str, torch.Tensor] = field(default_factory=dict)
    prefix: torch.Tensor | None = None  # (B,) int64
    documents: torch.Tensor | None = None  # (B, T) int64
    decoder: torch.Tensor | None = None  # (B, U) int64
    decoder_mask: torch.Tensor | None = None  # (B, U) bool; None when no row is padded
    groups: torch.Tensor | None = None  # (B,) int64: the record that each row is of; None when each is one of its own

    @property
    def rows(self) -> int:
        return self.ids.shape[0]

    @property
    def tokens(self) -> int:
        """Tokens that are not padding."""
        return self.ids.numel() if self.mask is None else int(self.mask.sum())

    def firsts(self) -> torch.Tensor:
        """(B,): where each row begins in the flattened batch."""
        import torch

        return torch.arange(0, self.ids.numel(), self.ids.shape[1], device=self.ids.device)

    def to(self, device: torch.device | str) -> Batch:
        def move(x: Any) -> Any:
            if isinstance(x, dict):
                return {name: move(value) for name, value in x.items()}
            return None if x is None else x.to(device, non_blocking=True)

        return Batch(**{f.name: move(getattr(self, f.name)) for f in fields(self)})


def collate(examples: Iterable[Example], pad: int) -> Batch:
    """Rows of any lengths → one Batch, padded on the right to the longest.

    >>> b = collate([Example(np.array([5, 6])), Example(np.array([7]))], pad=0)
    >>> b.ids.tolist(), b.mask.tolist()
    ([[5, 6], [7, 0]], [[True, True], [True, False]])
    >>> collate([Example(np.array([5]), more=[Example(np.array([6]))]), Example(np.array([7]))], pad=0).groups.tolist()
    [0, 0, 1]
    """
    import torch

    arrays = stack(examples, pad)
    labels = {name: torch.from_numpy(value) for name, value in arrays.pop("labels").items()}
    return Batch(labels=labels, **{name: torch.from_numpy(value) for name, value in arrays.items()})


def stack(examples: Iterable[Example], pad: int) -> dict[str, Any]:
    """The same in numpy, for a model that runs without torch: the fields of a Batch that there are.

    >>> stack([Example(np.array([5, 6])), Example(np.array([7]))], pad=0)["ids"].tolist()
    [[5, 6], [7, 0]]
    """
    firsts = list(examples)
    rows = [row for e in firsts for row in (e, *e.more)]
    ids, mask = _stack([e.ids for e in rows], pad)
    decoder, decoder_mask = None, None
    if rows[0].decoder is not None:
        decoder, decoder_mask = _stack([e.decoder for e in rows if e.decoder is not None], pad)
    gathered: dict[str, list[np.ndarray]] = {}
    for b, e in enumerate(rows):
        for name, value in e.labels.items():
            value = np.atleast_1d(value)
            if name.endswith(".positions"):
                value = value + b * ids.shape[1]
            elif name.endswith(".outputs"):
                assert decoder is not None
                value = value + b * decoder.shape[1]
            gathered.setdefault(name, []).append(value)
    prefix = [e.prefix for e in rows if e.prefix is not None]
    found = {
        "ids": ids,
        "mask": mask,
        "segments": _optional([e.segments for e in rows], 0),
        "prefix": np.array(prefix) if prefix else None,
        "documents": _optional([e.documents for e in rows], -1),
        "decoder": decoder,
        "decoder_mask": decoder_mask,
        "groups": np.repeat(np.arange(len(firsts)), [1 + len(e.more) for e in firsts])
        if len(rows) > len(firsts)
        else None,
    }
    labels = {name: np.concatenate(parts) for name, parts in gathered.items()}
    return {"labels": labels, **{name: value for name, value in found.items() if value is not None}}


def _stack(rows: list[np.ndarray], fill: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows one below the other, and where they stand (None when all are of one length)."""
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max())
    out = np.full((len(rows), width), fill, np.int64)
    for b, row in enumerate(rows):
        out[b, : len(row)] = row
    return out, np.arange(width)[None, :] < lengths[:, None] if (lengths < width).any() else None


def _optional(rows: list[np.ndarray | None], fill: int) -> np.ndarray | None:
    return None if rows[0] is None else _stack([row for row in rows if row is not None], fill)[0]


def groups(lengths: Sequence[int], tokens: int = TOKENS) -> Iterator[list[int]]:
    """Indices grouped by length, at most `tokens` with padding; longest first: memory fails at once or never.

    A group of `WORTH` tokens ends where a row is so much shorter that its padding would cost more than another forward pass.

    >>> list(groups([3, 9, 4, 8], tokens=16)), list(groups([500, 20, 490, 30]))
    ([[1], [3, 2], [0]], [[0, 2], [3, 1]])
    """
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        longest = lengths[group[0]] if group else 0
        shorter = longest * len(group) >= WORTH and lengths[i] < ALIKE * longest
        if group and (shorter or longest * (len(group) + 1) > tokens):
            yield group
            group = []
        group.append(i)
    if group:
        yield group
