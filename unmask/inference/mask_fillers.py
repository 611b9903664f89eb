"""What may stand at one mask: a piece of the vocabulary, a word of several pieces, or one of given words.

A word of k pieces is judged where k masks stand: its first piece, then the second with the first put in, and so on from
left to right. Its log-probability is their sum (the within-word score of Kauf & Ivanova 2305.10588). Words of different
length are compared by its mean over their pieces, as X-FACTR (2010.06189) does: by the sum, one-piece words would nearly
always win, as two masks may also stand for two words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from unmask.batch import Example
from unmask.inference.engine import Engine
from unmask.text.token_text import CONTINUATION_PREFIX, is_ideograph, tokens_to_text
from unmask.text.tokenizer import Tokenizer

WIDTH = 16  # words of one length that are followed at least
Ids = tuple[int, ...]


class MaskSlot(NamedTuple):
    """A mask in a row that may hold others."""

    ids: Ids  # the whole row
    position: int
    mask: tuple[int, int]  # number of the text, number of the mask in it


class Word(NamedTuple):
    ids: Ids
    logprob: float  # of all its pieces

    @property
    def mean_logprob(self) -> float:
        """By which words are compared."""
        return self.logprob / len(self.ids)


class MaskFiller(Protocol):
    longest: int  # pieces that a mask may become

    def at(self, places: Sequence[MaskSlot], count: int) -> list[list[Word]]:
        """The `count` likeliest words at each place, likeliest first."""
        ...


def regular_tokens(tokenizer: Tokenizer, vocabulary: int) -> np.ndarray:
    """(V,) bool: a special token fills nothing, and an entry that the tokenizer does not know has no name."""
    out = np.zeros(vocabulary, bool)
    out[: tokenizer.size] = ~tokenizer.special & [tokenizer.token(i) != "" for i in range(tokenizer.size)]
    return out


class SingleTokenFiller:
    """One piece per mask."""

    longest = 1

    def __init__(self, engine: Engine, allowed: np.ndarray):
        self.engine, self.allowed = engine, allowed

    def at(self, places: Sequence[MaskSlot], count: int) -> list[list[Word]]:
        rows: dict[Ids, dict[int, None]] = {}  # positions: masks of one row are asked in one row, equal ones once
        for place in places:
            rows.setdefault(place.ids, {})[place.position] = None
        asked = [_row(ids, list(positions)) for ids, positions in rows.items()]
        found = {}
        for (row, positions), (ids, logprobs) in zip(
            rows.items(), self.engine.top_k("mlm", asked, count, self.allowed)
        ):
            for position, some, values in zip(positions, ids.tolist(), logprobs.tolist()):
                found[row, position] = [Word((id,), value) for id, value in zip(some, values)]
        return [found[place.ids, place.position] for place in places]


class MultiTokenFiller:
    """A mask grows to up to `longest` pieces, which together are one word."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, allowed: np.ndarray, longest: int):
        self.engine, self.tokenizer, self.longest = engine, tokenizer, longest
        self.single = SingleTokenFiller(engine, allowed)
        self.begins, self.inside, self.signs = _classes(tokenizer, allowed)

    def at(self, places: Sequence[MaskSlot], count: int) -> list[list[Word]]:
        out = self.single.at(places, count)
        for size in range(2, self.longest + 1):
            grown = self._of_size(places, size, max(count, WIDTH))
            # A word that the tokenizer would write in other pieces was never seen in training.
            known = [
                [w for w in words if self.tokenizer.encode(tokens_to_text(self.tokenizer, w.ids)) == [*w.ids]]
                for words in grown
            ]
            out = [sorted(found + more, key=lambda w: -w.mean_logprob)[:count] for found, more in zip(out, known)]
        return out

    def _of_size(self, places: Sequence[MaskSlot], size: int, width: int) -> list[list[Word]]:
        """By beam search: words of `size` pieces."""
        beams = [[Word((), 0.0)] for _ in places]
        for step in range(size):
            grown: list[list[Word]] = [[] for _ in places]
            for allowed, follows in self._next(step):
                jobs = [(n, w) for n, words in enumerate(beams) for w in words if follows(w)]
                rows = [_masked(places[n], w.ids, size, self.tokenizer.mask) for n, w in jobs]
                for (n, w), (ids, logprobs) in zip(jobs, self.engine.top_k("mlm", rows, width, allowed)):
                    new = zip(ids[0].tolist(), logprobs[0].tolist())
                    grown[n] += [Word((*w.ids, id), w.logprob + value) for id, value in new]
            beams = [sorted(words, key=lambda w: -w.logprob)[:width] for words in grown]
        return beams

    def _next(self, step: int) -> list[tuple[np.ndarray, Callable[[Word], bool]]]:
        """(pieces that may come, after which words): Chinese signs follow signs, pieces of a word its beginning."""
        if step == 0:
            return [(self.begins, lambda w: True)]
        after = [(self.inside, lambda w: not self.signs[w.ids[-1]]), (self.signs, lambda w: self.signs[w.ids[-1]])]
        return [(allowed, follows) for allowed, follows in after if allowed.any()]


class FixedCandidateFiller:
    """Only these words: for each mask their pieces, as the tokenizer writes them there."""

    def __init__(self, engine: Engine, mask: int | None, words: Mapping[tuple[int, int], Sequence[Ids]]):
        self.engine, self.mask, self.words = engine, mask, words
        self.longest = max(len(ids) for some in words.values() for ids in some)

    def at(self, places: Sequence[MaskSlot], count: int) -> list[list[Word]]:
        rows: list[Example] = []
        readers: list[list[tuple[int, int]]] = []  # of each row: (place, word) whose next piece is read there
        for n, place in enumerate(places):
            shared: dict[tuple[int, Ids], int] = {}  # words of one length with the same beginning share a row
            for m, ids in enumerate(self.words[place.mask]):
                for step in range(len(ids)):
                    key = (len(ids), ids[:step])
                    if key not in shared:
                        shared[key] = len(rows)
                        rows.append(_masked(place, ids[:step], len(ids), self.mask))
                        readers.append([])
                    readers[shared[key]].append((n, m))
        for row, some in zip(rows, readers):
            step = int(row.labels["mlm.positions"][0])
            targets = [self.words[places[n].mask][m][step - places[n].position] for n, m in some]
            row.labels = {"mlm.positions": np.full(len(some), step), "mlm.targets": np.array(targets)}
        sums = [[0.0] * len(self.words[place.mask]) for place in places]
        for some, values in zip(readers, self.engine.token_logprobs("mlm", rows)):
            for (n, m), value in zip(some, values.tolist()):
                sums[n][m] += value
        out = []
        for place, totals in zip(places, sums):
            words = [Word(ids, total) for ids, total in zip(self.words[place.mask], totals)]
            out.append(sorted(words, key=lambda w: -w.mean_logprob)[:count])
        return out


def _row(ids: Sequence[int], positions: Sequence[int]) -> Example:
    return Example(np.array(ids, np.int64), labels={"mlm.positions": np.array(positions, np.int64)})


def _masked(place: MaskSlot, known: Ids, size: int, mask: int | None) -> Example:
    """The row with `size` pieces at the place, of which the first are `known`; the next one is asked for."""
    assert mask is not None
    new = (*known, *[mask] * (size - len(known)))
    row = (*place.ids[: place.position], *new, *place.ids[place.position + 1 :])
    return _row(row, [place.position + len(known)])


def _classes(tokenizer: Tokenizer, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(V,) bool each: pieces that a word of several may begin with; that may go on in one; BERT's single Chinese signs."""
    begins, inside, signs = (np.zeros(len(allowed), bool) for _ in range(3))
    for id in np.flatnonzero(allowed).tolist():
        token = tokenizer.token(id)
        if tokenizer.type == "wordpiece":
            inside[id] = token.startswith(CONTINUATION_PREFIX)
            signs[id] = is_ideograph(token)
            begins[id] = not inside[id] and _lettered(token)
        else:
            text = tokens_to_text(tokenizer, [id])
            inside[id] = not text.startswith(" ") and _lettered(text)
            begins[id] = _lettered(text.strip()) or not text.strip()  # a blank may be a piece of its own
    return begins, inside, signs


def _lettered(text: str) -> bool:
    """Whether all of it may stand in a word: letters, digits, marks on them, bytes of a character."""
    return bool(text) and all(c.isalnum() or c == "\ufffd" or unicodedata.category(c)[0] == "M" for c in text)
