"""Handle texts that are longer than a sequence: split them into windows, truncate them, or raise an error.

`Windowing` applies `task.overflow` to the records of one task. The functions are shared with inference.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unmask.errors import UserError
from unmask.text.tokenizer import Tokenizer

TRUNCATES_LONGER_TEXT = "cut at the end of the longer part"  # overflow action for pairs
OVERFLOW_ACTIONS = {
    "window": "read in windows",
    "truncate": "cut: only their beginning is read",
    "error": "rejected",
}  # overflow action for single texts


def window_starts(tokens: int, size: int, overlap: int = 0) -> list[int]:
    """Return the starts of the fewest evenly spaced windows that cover all tokens and overlap by at least `overlap`.

    >>> window_starts(5, 3), window_starts(9, 6, 1), window_starts(2, 3)
    ([0, 2], [0, 3], [0])
    """
    count = 1 if tokens <= size else -(-(tokens - overlap) // (size - overlap))
    return [round(n * (tokens - size) / (count - 1)) for n in range(count)] if count > 1 else [0]


def strided_starts(tokens: int, size: int, overlap: int) -> list[int]:
    """Return the starts of windows that overlap by exactly `overlap`; the last window may be shorter.

    >>> strided_starts(10, 4, 1), strided_starts(3, 4, 1), strided_starts(0, 4, 1)
    ([0, 3, 6], [0], [0])
    """
    return list(range(0, max(1, tokens - overlap), size - overlap)) if tokens > size else [0]


def centered_window(tokens: int, first: int, end: int, size: int) -> tuple[int, int]:
    """Return [start, end) of the window of `size` tokens that is centered on the tokens [first, end).

    >>> centered_window(10, 4, 5, 3), centered_window(10, 0, 1, 3), centered_window(2, 1, 2, 3)
    ((3, 6), (0, 3), (0, 2))
    """
    size = min(tokens, size)
    start = min(max(0, (first + end - size) // 2), tokens - size)
    return start, start + size


def word_windows(count: int, first: np.ndarray, room: int) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return [start, end) of overlapping windows over `count` tokens, and for each word the window that predicts it.

    `first`: index of each word's first token, or -1 if the word has no token. A word is predicted by the window in
    which this token is farthest from an edge. The start and the end of the text do not count as edges.

    >>> word_windows(9, np.array([0, 2, 4, 6, 8]), 6)
    ([(0, 6), (3, 9)], array([0, 0, 0, 1, 1]))
    """
    overlap = room // 4
    spans, begins = [], first[first >= 0]
    for k, start in enumerate(window_starts(count, room, overlap)):
        end = min(count, start + room)
        index = np.searchsorted(begins, start)  # move the start to the next word start, if one is near
        if k and index < len(begins) and begins[index] - start <= overlap // 2:
            start = int(begins[index])
        spans.append((start, end))
    edge_distance = np.full((len(spans), len(first)), -1.0)
    for k, (start, end) in enumerate(spans):
        left = np.where(start == 0, np.inf, first - start)
        right = np.where(end == count, np.inf, end - 1 - first)
        edge_distance[k] = np.where((first >= start) & (first < end), np.minimum(left, right), -1.0)
    return spans, np.where(first >= 0, edge_distance.argmax(0), -1)


def truncate_pair(a: list[int], b: list[int], room: int) -> tuple[list[int], list[int]]:
    """Truncate both texts at the end until they fit; the longer one is truncated first.

    >>> truncate_pair([1, 2, 3, 4, 5], [6, 7], 5)
    ([1, 2, 3], [6, 7])
    >>> truncate_pair([1, 2, 3, 4], [5, 6, 7, 8], 5)
    ([1, 2, 3], [5, 6])
    """
    keep_b = min(len(b), max(room // 2, room - len(a)))
    return a[: room - keep_b], b[:keep_b]


def truncate_texts(tokenizer: Tokenizer, texts: Sequence[str], room: int, left: bool = False) -> list[str]:
    """Truncate each text to at most `room` tokens: keep its beginning or, with `left`, its end."""

    def truncate(text: str, offsets: Sequence[tuple[int, int]]) -> str:
        num_tokens, result = room, text
        while num_tokens and len(tokenizer.encode(result)) > room:  # a word cut in half may need more tokens
            result = text[offsets[-num_tokens][0] :] if left else text[: offsets[num_tokens - 1][1]]
            num_tokens -= 1
        return result

    encoded = tokenizer.encode_batch(texts)
    return [t if len(e) <= room else truncate(t, e.offsets) for t, e in zip(texts, encoded, strict=True)]


@dataclass
class Tally:
    """Count the records that were truncated, windowed or otherwise changed when they became sequences."""

    overflowing: Counter[str] = field(default_factory=Counter)  # overflow action → number of records
    other_counts: Counter[str] = field(default_factory=Counter)  # any other loss → number of times
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def note_lines(self) -> list[str]:
        """Return the notes and the other counts as lines to print."""
        return [*self.notes, *(f"{count:,} {name}" for name, count in self.other_counts.items())]


class Windowing:
    """Fit the records of one task into sequences of at most `length` tokens.

    `overflow` is task.overflow: "window" splits a longer text into windows, "truncate" keeps its beginning, "error"
    raises UserError. `cut` describes the overflow action of a task that cannot use windows.
    """

    def __init__(self, tokenizer: Tokenizer, length: int, overflow: str, cut: str = ""):
        self.tokenizer, self.length, self.overflow, self.cut = tokenizer, length, overflow, cut
        self.tally = Tally()

    def reset(self) -> None:
        """Reset all counts and notes."""
        self.tally = Tally()

    def max_text_tokens(self, pair: bool = False) -> int:
        """Return the maximum number of text tokens in a sequence, without special tokens."""
        return self.length - len(self.tokenizer.build_inputs_with_special_tokens([], [] if pair else None)[0])

    def overflow_action(self, pair: bool = False) -> str:
        """Describe how an over-long text or pair is handled."""
        cut = self.cut or (TRUNCATES_LONGER_TEXT if pair else "")
        return cut if cut and self.overflow != "error" else OVERFLOW_ACTIONS[self.overflow]

    def check_overflow(
        self, record: Mapping[str, Any], sizes: Iterable[int], room: int, name: str = "the text", pair: bool = False
    ) -> bool:
        """Return whether one of a record's sequences (`sizes` in tokens) exceeds `room`.

        Such a record is counted, or rejected with UserError if `overflow` is "error".
        """
        tokens = next((size for size in sizes if size > room), None)
        if tokens is None:
            return False
        if self.overflow == "error":
            can_window = not self.cut and not pair
            raise UserError(
                f"{record.get('location', name)}: {tokens:,} tokens, a row has room for {room:,}",
                hint="--overflow window reads all of it, --overflow truncate its beginning"
                if can_window
                else "--overflow truncate cuts it",
            )
        self.tally.overflowing[self.overflow_action(pair)] += 1
        return True

    def windows(self, ids: list[int], room: int) -> list[list[int]]:
        """Return the windows of a text, or only its beginning."""
        starts = window_starts(len(ids), room) if self.overflow == "window" else [0]
        return [ids[start : start + room] for start in starts]

    def truncate_pair(self, record: Mapping[str, Any], a: list[int], b: list[int]) -> tuple[list[int], list[int]]:
        """Truncate two texts that share a sequence."""
        room = self.max_text_tokens(pair=True)
        self.check_overflow(record, [len(a) + len(b)], room, pair=True)
        return truncate_pair(a, b, room)

    def training_notes(self, count: int) -> list[str]:
        """Return the lines that report, before training on `count` records, how over-long records are handled."""
        long = [
            f"{n:,} of {count:,} records are longer than a row of {self.length}: {action}"
            for action, n in self.tally.overflowing.items()
        ]
        return long + self.tally.note_lines()

    def truncation_notes(self, count: int) -> list[str]:
        """Return the lines that report, after predicting `count` records, which text was not read."""
        long = [
            f"{n:,} of {count:,} are longer than a row of {self.length}: {action}"
            for action, n in self.tally.overflowing.items()
            if action.startswith("cut")
        ]
        return long + self.tally.note_lines()
