"""Example: one row, in numpy. Batch: a collated group of rows, in torch. Both are independent of the objective.

An objective adds `labels`. Keys that end in `.positions` hold indices inside the row; `collate` turns them into indices of the
flattened batch (B·T), so that a loss reads its positions with one `index_select`. Keys that end in `.decoder_positions` do the
same for the decoder's rows (B·U).

Attention is part of the data. The first `prefix_length` tokens attend to each other, later tokens attend only to the tokens before
them (0 = causal; None = the model's default: bidirectional, or causal for a GPT). `document_ids` numbers the documents packed into
a row; a token attends only to tokens of the same document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

TOKENS_PER_FORWARD = 2048  # for inference, padding included: fills two cores and fits their caches (docs/log.md)
MIN_TOKENS_PER_FORWARD = 512  # smaller batches are not worth a separate forward pass
MIN_LENGTH_RATIO = 0.85  # shortest to longest row of a batch


@dataclass(frozen=True, slots=True)
class StepConfig:
    """The schedule's values for one step."""

    index: int  # number of the length phase; part of every example's random seed
    length: int  # tokens per row, including special tokens
    mask_rate: float = 0.15


@dataclass(slots=True)
class Example:
    input_ids: np.ndarray  # (T,) int64
    token_type_ids: np.ndarray | None = None  # (T,) int64: 0 for A, 1 for B
    flags: np.ndarray | None = None  # (T,) uint8: WORD | SENTENCE | DOCUMENT starts here
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    prefix_length: int | None = None  # tokens that attend to each other; later ones attend only to the left
    document_ids: np.ndarray | None = None  # (T,) int64: tokens with equal ids attend to each other
    decoder_input_ids: np.ndarray | None = None  # (U,) int64
    texts: tuple[str, ...] = ()  # the one or two texts that the row was made from; not collated
    metadata: Any = None  # for the `decode` of a task; not collated
    grouped_rows: Sequence[Example] = ()  # further rows of the same record, always in the same batch

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(slots=True)
class Batch:
    input_ids: torch.Tensor  # (B, T) int64
    attention_mask: torch.Tensor | None = None  # (B, T) bool, False at padding; None when no row is padded
    token_type_ids: torch.Tensor | None = None  # (B, T) int64
    labels: dict[str, torch.Tensor] = field(default_factory=dict)
    prefix_lengths: torch.Tensor | None = None  # (B,) int64
    document_ids: torch.Tensor | None = None  # (B, T) int64
    decoder_input_ids: torch.Tensor | None = None  # (B, U) int64
    decoder_attention_mask: torch.Tensor | None = None  # (B, U) bool; None when no row is padded
    group_ids: torch.Tensor | None = None  # (B,) int64: index of each row's record; None when every record is one row

    @property
    def rows(self) -> int:
        return self.input_ids.shape[0]

    @property
    def tokens(self) -> int:
        """Return the number of tokens without padding."""
        return self.input_ids.numel() if self.attention_mask is None else int(self.attention_mask.sum())

    def row_starts(self) -> torch.Tensor:
        """Return (B,): index of each row's first token in the flattened batch."""
        import torch

        return torch.arange(0, self.input_ids.numel(), self.input_ids.shape[1], device=self.input_ids.device)

    def to(self, device: torch.device | str) -> Batch:
        def move(x: Any) -> Any:
            if isinstance(x, dict):
                return {name: move(value) for name, value in x.items()}
            return None if x is None else x.to(device, non_blocking=True)

        return Batch(**{f.name: move(getattr(self, f.name)) for f in fields(self)})


def collate(examples: Iterable[Example], pad: int) -> Batch:
    """Collate rows of any lengths into one Batch, padded on the right to the longest.

    >>> b = collate([Example(np.array([5, 6])), Example(np.array([7]))], pad=0)
    >>> b.input_ids.tolist(), b.attention_mask.tolist()
    ([[5, 6], [7, 0]], [[True, True], [True, False]])
    >>> first = Example(np.array([5]), grouped_rows=[Example(np.array([6]))])
    >>> collate([first, Example(np.array([7]))], pad=0).group_ids.tolist()
    [0, 0, 1]
    """
    import torch

    arrays = collate_numpy(examples, pad)
    labels = {name: torch.from_numpy(value) for name, value in arrays.pop("labels").items()}
    return Batch(labels=labels, **{name: torch.from_numpy(value) for name, value in arrays.items()})


def collate_numpy(examples: Iterable[Example], pad: int) -> dict[str, Any]:
    """Collate without torch: return the fields of a Batch that are not None.

    >>> collate_numpy([Example(np.array([5, 6])), Example(np.array([7]))], pad=0)["input_ids"].tolist()
    [[5, 6], [7, 0]]
    """
    records = list(examples)
    rows = [row for e in records for row in (e, *e.grouped_rows)]
    input_ids, attention_mask = _stack([e.input_ids for e in rows], pad)
    decoder_input_ids, decoder_attention_mask = None, None
    if rows[0].decoder_input_ids is not None:
        decoder_rows = [e.decoder_input_ids for e in rows if e.decoder_input_ids is not None]
        decoder_input_ids, decoder_attention_mask = _stack(decoder_rows, pad)
    labels: dict[str, list[np.ndarray]] = {}
    for b, e in enumerate(rows):
        for name, value in e.labels.items():
            value = np.atleast_1d(value)
            if name.endswith(".positions"):
                value = value + b * input_ids.shape[1]
            elif name.endswith(".decoder_positions"):
                assert decoder_input_ids is not None
                value = value + b * decoder_input_ids.shape[1]
            labels.setdefault(name, []).append(value)
    prefix_lengths = [e.prefix_length for e in rows if e.prefix_length is not None]
    group_ids = np.repeat(np.arange(len(records)), [1 + len(e.grouped_rows) for e in records])
    arrays = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "token_type_ids": _optional([e.token_type_ids for e in rows], 0),
        "labels": {name: np.concatenate(parts) for name, parts in labels.items()},
        "prefix_lengths": np.array(prefix_lengths) if prefix_lengths else None,
        "document_ids": _optional([e.document_ids for e in rows], -1),
        "decoder_input_ids": decoder_input_ids,
        "decoder_attention_mask": decoder_attention_mask,
        "group_ids": group_ids if len(rows) > len(records) else None,
    }
    return {name: value for name, value in arrays.items() if value is not None}


def _stack(rows: list[np.ndarray], fill: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Pad rows to one length; return them and the mask of their tokens (None when all have the same length)."""
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max())
    out = np.full((len(rows), width), fill, np.int64)
    for b, row in enumerate(rows):
        out[b, : len(row)] = row
    return out, np.arange(width)[None, :] < lengths[:, None] if (lengths < width).any() else None


def _optional(rows: list[np.ndarray | None], fill: int) -> np.ndarray | None:
    return None if rows[0] is None else _stack([row for row in rows if row is not None], fill)[0]


def batch_by_length(
    lengths: Sequence[int], max_tokens: int = TOKENS_PER_FORWARD, batch_size: int | None = None
) -> Iterator[list[int]]:
    """Yield indices in batches of similar length, at most `max_tokens` each including padding, or `batch_size` rows if given.

    The longest rows come first, so that an out-of-memory error occurs at once. A batch with at least `MIN_TOKENS_PER_FORWARD`
    tokens ends before a row that is much shorter, because its padding would cost more than another forward pass.

    >>> list(batch_by_length([3, 9, 4, 8], max_tokens=16)), list(batch_by_length([500, 20, 490, 30]))
    ([[1], [3, 2], [0]], [[0, 2], [3, 1]])
    >>> list(batch_by_length([3, 9, 4, 8], batch_size=3))
    [[1, 3, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    if batch_size:
        yield from (order[start : start + batch_size] for start in range(0, len(order), batch_size))
        return
    batch: list[int] = []
    for i in order:
        longest = lengths[batch[0]] if batch else 0
        too_short = longest * len(batch) >= MIN_TOKENS_PER_FORWARD and lengths[i] < MIN_LENGTH_RATIO * longest
        if batch and (too_short or longest * (len(batch) + 1) > max_tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
