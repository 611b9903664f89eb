"""Texts that are longer than a row: where windows over them begin, how they are cut, which are refused, and what is said of it.

`Windowing` does it for the rows of one task; the functions are for all who read text with a model.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unmask.errors import UserError
from unmask.text.tokenizer import Tokenizer

TRUNCATES_LONGER_TEXT = "cut at the end of the longer part"  # what becomes of a pair
OVERFLOW_ACTIONS = {
    "window": "read in windows",
    "truncate": "cut: only their beginning is read",
    "error": "rejected",
}  # of a text


def window_starts(tokens: int, size: int, overlap: int = 0) -> list[int]:
    """Where windows of `size` begin: as few as cover everything and overlap by `overlap` or more, evenly spread.

    >>> window_starts(5, 3), window_starts(9, 6, 1), window_starts(2, 3)
    ([0, 2], [0, 3], [0])
    """
    count = 1 if tokens <= size else -(-(tokens - overlap) // (size - overlap))
    return [round(n * (tokens - size) / (count - 1)) for n in range(count)] if count > 1 else [0]


def strided_starts(tokens: int, size: int, overlap: int) -> list[int]:
    """Where windows of `size` begin that overlap by exactly `overlap`; the last may be shorter.

    >>> strided_starts(10, 4, 1), strided_starts(3, 4, 1), strided_starts(0, 4, 1)
    ([0, 3, 6], [0], [0])
    """
    return list(range(0, max(1, tokens - overlap), size - overlap)) if tokens > size else [0]


def centered_window(tokens: int, first: int, end: int, size: int) -> tuple[int, int]:
    """[start, end) of the window of `size` that has the tokens [first, end) in its middle.

    >>> centered_window(10, 4, 5, 3), centered_window(10, 0, 1, 3), centered_window(2, 1, 2, 3)
    ((3, 6), (0, 3), (0, 2))
    """
    size = min(tokens, size)
    start = min(max(0, (first + end - size) // 2), tokens - size)
    return start, start + size


def word_windows(count: int, first: np.ndarray, room: int) -> tuple[list[tuple[int, int]], np.ndarray]:
    """[start, end) of overlapping windows over `count` tokens, and for each word the window that decides it.

    `first`: the number of each word's first token, -1 where it has none. A word is decided by the window in which that token stands most
    inside; where the text begins or ends a window has no edge.

    >>> word_windows(9, np.array([0, 2, 4, 6, 8]), 6)
    ([(0, 6), (3, 9)], array([0, 0, 0, 1, 1]))
    """
    overlap = room // 4
    spans, begins = [], first[first >= 0]
    for k, start in enumerate(window_starts(count, room, overlap)):
        end = min(count, start + room)
        at = np.searchsorted(begins, start)  # a window begins with a word, where one begins in its first tokens
        if k and at < len(begins) and begins[at] - start <= overlap // 2:
            start = int(begins[at])
        spans.append((start, end))
    inside = np.full((len(spans), len(first)), -1.0)
    for k, (start, end) in enumerate(spans):
        left = np.where(start == 0, np.inf, first - start)
        right = np.where(end == count, np.inf, end - 1 - first)
        inside[k] = np.where((first >= start) & (first < end), np.minimum(left, right), -1.0)
    return spans, np.where(first >= 0, inside.argmax(0), -1)


def truncate_pair(a: list[int], b: list[int], room: int) -> tuple[list[int], list[int]]:
    """Both, cut at the end until they fit; the longer one gives way first.

    >>> truncate_pair([1, 2, 3, 4, 5], [6, 7], 5)
    ([1, 2, 3], [6, 7])
    >>> truncate_pair([1, 2, 3, 4], [5, 6, 7, 8], 5)
    ([1, 2, 3], [5, 6])
    """
    keep_b = min(len(b), max(room // 2, room - len(a)))
    return a[: room - keep_b], b[:keep_b]


def truncate_texts(tokenizer: Tokenizer, texts: Sequence[str], room: int, left: bool = False) -> list[str]:
    """Each text as far as it has no more than `room` tokens; with `left`, its end is kept."""

    def part(text: str, offsets: Sequence[tuple[int, int]]) -> str:
        kept, found = room, text
        while kept and len(tokenizer.encode(found)) > room:  # half a word may have more pieces than it had in its word
            found = text[offsets[-kept][0] :] if left else text[: offsets[kept - 1][1]]
            kept -= 1
        return found

    encoded = tokenizer.encode_batch(texts)
    return [t if len(e) <= room else part(t, e.offsets) for t, e in zip(texts, encoded, strict=True)]


@dataclass
class Tally:
    """What happened to records when they became rows."""

    overflowing: Counter[str] = field(
        default_factory=Counter
    )  # what became of a text that is longer than a row → records
    other_counts: Counter[str] = field(default_factory=Counter)  # anything else that was cut or left out → how often
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def note_lines(self) -> list[str]:
        """What else is to be said before training."""
        return [*self.notes, *(f"{count:,} {what}" for what, count in self.other_counts.items())]


class Windowing:
    """How the records of one task become rows of at most `length` tokens. `overflow` is task.overflow: "window" reads a longer text in
    windows, "truncate" keeps its beginning, "error" raises; `cut`: what becomes of it where windows have no meaning."""

    def __init__(self, tokenizer: Tokenizer, length: int, overflow: str, cut: str = ""):
        self.tokenizer, self.length, self.overflow, self.cut = tokenizer, length, overflow, cut
        self.tally = Tally()

    def reset(self) -> None:
        """Count anew what happens to records."""
        self.tally = Tally()

    def max_text_tokens(self, pair: bool = False) -> int:
        """Tokens of text in a row."""
        return self.length - len(self.tokenizer.build_inputs_with_special_tokens([], [] if pair else None)[0])

    def overflow_action(self, pair: bool = False) -> str:
        """What becomes of a text that is longer than a row, or of a pair that is."""
        cut = self.cut or (TRUNCATES_LONGER_TEXT if pair else "")
        return cut if cut and self.overflow != "error" else OVERFLOW_ACTIONS[self.overflow]

    def check_overflow(
        self, record: Mapping[str, Any], sizes: Iterable[int], room: int, what: str = "the text", pair: bool = False
    ) -> bool:
        """Whether one of a record's rows would have more tokens (`sizes`) than there is room for. Such a record is counted, or refused."""
        tokens = next((size for size in sizes if size > room), None)
        if tokens is None:
            return False
        if self.overflow == "error":
            whole = not self.cut and not pair
            raise UserError(
                f"{record.get('location', what)}: {tokens:,} tokens, a row has room for {room:,}",
                hint="--overflow window reads all of it, --overflow truncate its beginning"
                if whole
                else "--overflow truncate cuts it",
            )
        self.tally.overflowing[self.overflow_action(pair)] += 1
        return True

    def windows(self, ids: list[int], room: int) -> list[list[int]]:
        """The windows of a text, or its beginning."""
        starts = window_starts(len(ids), room) if self.overflow == "window" else [0]
        return [ids[start : start + room] for start in starts]

    def truncate_pair(self, record: Mapping[str, Any], a: list[int], b: list[int]) -> tuple[list[int], list[int]]:
        """Two texts that share a row, cut to fit."""
        room = self.max_text_tokens(pair=True)
        self.check_overflow(record, [len(a) + len(b)], room, pair=True)
        return truncate_pair(a, b, room)

    def training_notes(self, count: int) -> list[str]:
        """Before training on `count` records: what becomes of long ones, and what else was cut or left out."""
        long = [
            f"{n:,} of {count:,} records are longer than a row of {self.length}: {what}"
            for what, n in self.tally.overflowing.items()
        ]
        return long + self.tally.note_lines()

    def truncation_notes(self, count: int) -> list[str]:
        """After predicting `count` records: what was not read of them."""
        long = [
            f"{n:,} of {count:,} are longer than a row of {self.length}: {what}"
            for what, n in self.tally.overflowing.items()
            if what.startswith("cut")
        ]
        return long + self.tally.note_lines()
