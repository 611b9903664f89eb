"""Words for one mask: a single token of the vocabulary, a word of several subwords, or one of given candidates.

A word of k subwords is scored with k masks in place of one: the first subword, then the second with the first filled in, and so on
from left to right. Its log-probability is the sum (the within-word score of Kauf & Ivanova 2305.10588). Words of different lengths
are compared by the mean over their subwords, as in X-FACTR (2010.06189). The sum would nearly always prefer single tokens,
because two masks may also stand for two words.
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

MIN_BEAM_WIDTH = 16  # beam width of the search for words with several subwords
Ids = tuple[int, ...]


class MaskSlot(NamedTuple):
    """A mask in a row, which may contain other masks."""

    ids: Ids  # the whole row
    position: int
    mask: tuple[int, int]  # index of the text, index of the mask in it


class Word(NamedTuple):
    ids: Ids
    logprob: float  # sum over the subwords

    @property
    def mean_logprob(self) -> float:
        """Return the mean per subword, by which words are ranked."""
        return self.logprob / len(self.ids)


class MaskFiller(Protocol):
    max_subwords: int  # of a word

    def top_words(self, slots: Sequence[MaskSlot], k: int) -> list[list[Word]]:
        """Return the `k` most likely words of each slot, most likely first."""
        ...


def regular_tokens(tokenizer: Tokenizer, vocab_size: int) -> np.ndarray:
    """Return (V,) bool: tokens that can fill a mask. Special tokens and entries unknown to the tokenizer cannot."""
    out = np.zeros(vocab_size, bool)
    out[: tokenizer.size] = ~tokenizer.special & [tokenizer.token(i) != "" for i in range(tokenizer.size)]
    return out


class SingleTokenFiller:
    max_subwords = 1

    def __init__(self, engine: Engine, allowed: np.ndarray):
        self.engine, self.allowed = engine, allowed

    def top_words(self, slots: Sequence[MaskSlot], k: int) -> list[list[Word]]:
        positions_by_row: dict[Ids, dict[int, None]] = {}  # equal rows, and masks of one row, share a forward pass
        for slot in slots:
            positions_by_row.setdefault(slot.ids, {})[slot.position] = None
        rows = [_row(ids, list(positions)) for ids, positions in positions_by_row.items()]
        words = {}
        for (row, positions), top in zip(positions_by_row.items(), self.engine.top_k("mlm", rows, k, self.allowed)):
            for position, ids, logprobs in zip(positions, *(values.tolist() for values in top)):
                words[row, position] = [Word((id,), logprob) for id, logprob in zip(ids, logprobs)]
        return [words[slot.ids, slot.position] for slot in slots]


class MultiTokenFiller:
    """Words of up to `max_subwords` subwords, found by beam search."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, allowed: np.ndarray, max_subwords: int):
        self.engine, self.tokenizer, self.max_subwords = engine, tokenizer, max_subwords
        self.single = SingleTokenFiller(engine, allowed)
        self.starts_word, self.continues_word, self.ideographs = _token_classes(tokenizer, allowed)

    def top_words(self, slots: Sequence[MaskSlot], k: int) -> list[list[Word]]:
        out = self.single.top_words(slots, k)
        for size in range(2, self.max_subwords + 1):
            longer = self._words_of_size(slots, size, max(k, MIN_BEAM_WIDTH))
            for n, words in enumerate(longer):
                out[n] = sorted([*out[n], *filter(self._is_canonical, words)], key=lambda w: -w.mean_logprob)[:k]
        return out

    def _is_canonical(self, word: Word) -> bool:
        """Return whether the tokenizer splits the word into these subwords; other splits do not occur in training."""
        return self.tokenizer.encode(tokens_to_text(self.tokenizer, word.ids)) == [*word.ids]

    def _words_of_size(self, slots: Sequence[MaskSlot], size: int, width: int) -> list[list[Word]]:
        """Search words of `size` subwords for each slot with a beam of `width`."""
        beams = [[Word((), 0.0)] for _ in slots]
        for step in range(size):
            extended: list[list[Word]] = [[] for _ in slots]
            for allowed, follows in self._next_tokens(step):
                jobs = [(n, w) for n, words in enumerate(beams) for w in words if follows(w)]
                rows = [_expand_mask(slots[n], w.ids, size, self.tokenizer.mask) for n, w in jobs]
                for (n, w), (ids, logprobs) in zip(jobs, self.engine.top_k("mlm", rows, width, allowed)):
                    new = zip(ids[0].tolist(), logprobs[0].tolist())
                    extended[n] += [Word((*w.ids, id), w.logprob + logprob) for id, logprob in new]
            beams = [sorted(words, key=lambda w: -w.logprob)[:width] for words in extended]
        return beams

    def _next_tokens(self, step: int) -> list[tuple[np.ndarray, Callable[[Word], bool]]]:
        """Return (allowed tokens (V,), condition on the word so far): ideographs follow ideographs, subwords other subwords."""
        if step == 0:
            return [(self.starts_word, lambda w: True)]
        rules = [
            (self.continues_word, lambda w: not self.ideographs[w.ids[-1]]),
            (self.ideographs, lambda w: self.ideographs[w.ids[-1]]),
        ]
        return [(allowed, follows) for allowed, follows in rules if allowed.any()]


class FixedCandidateFiller:
    """Scores only the given words. `words` has their token ids for each mask, in its context."""

    def __init__(self, engine: Engine, mask: int | None, words: Mapping[tuple[int, int], Sequence[Ids]]):
        self.engine, self.mask, self.words = engine, mask, words
        self.max_subwords = max(len(ids) for candidates in words.values() for ids in candidates)

    def top_words(self, slots: Sequence[MaskSlot], k: int) -> list[list[Word]]:
        rows: list[Example] = []
        row_words: list[
            list[tuple[int, int]]
        ] = []  # for each row, the (slot, word) pairs whose next subword it predicts
        for n, slot in enumerate(slots):
            shared: dict[tuple[int, Ids], int] = {}  # words of the same length with the same first subwords share a row
            for m, ids in enumerate(self.words[slot.mask]):
                for step in range(len(ids)):
                    key = (len(ids), ids[:step])
                    if key not in shared:
                        shared[key] = len(rows)
                        rows.append(_expand_mask(slot, ids[:step], len(ids), self.mask))
                        row_words.append([])
                    row_words[shared[key]].append((n, m))
        for row, pairs in zip(rows, row_words):
            position = int(row.labels["mlm.positions"][0])
            targets = [self.words[slots[n].mask][m][position - slots[n].position] for n, m in pairs]
            row.labels = {"mlm.positions": np.full(len(pairs), position), "mlm.targets": np.array(targets)}
        totals = [[0.0] * len(self.words[slot.mask]) for slot in slots]
        for pairs, logprobs in zip(row_words, self.engine.token_logprobs("mlm", rows)):
            for (n, m), logprob in zip(pairs, logprobs.tolist()):
                totals[n][m] += logprob
        scored = [map(Word, self.words[slot.mask], sums) for slot, sums in zip(slots, totals)]
        return [sorted(words, key=lambda w: -w.mean_logprob)[:k] for words in scored]


def _row(ids: Sequence[int], positions: Sequence[int]) -> Example:
    return Example(np.array(ids, np.int64), labels={"mlm.positions": np.array(positions, np.int64)})


def _expand_mask(slot: MaskSlot, filled: Ids, size: int, mask: int | None) -> Example:
    """Replace the mask by `size` tokens: the `filled` ones, then masks. The first of these masks is predicted."""
    assert mask is not None
    new = (*filled, *[mask] * (size - len(filled)))
    row = (*slot.ids[: slot.position], *new, *slot.ids[slot.position + 1 :])
    return _row(row, [slot.position + len(filled)])


def _token_classes(tokenizer: Tokenizer, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (V,) bool each: tokens that can start a word of several subwords, that can continue one, and Chinese characters.

    The last one is empty unless the tokenizer is WordPiece, which splits Chinese text into characters.
    """
    starts_word, continues_word, ideographs = (np.zeros(len(allowed), bool) for _ in range(3))
    for id in np.flatnonzero(allowed).tolist():
        token = tokenizer.token(id)
        if tokenizer.type == "wordpiece":
            continues_word[id] = token.startswith(CONTINUATION_PREFIX)
            ideographs[id] = is_ideograph(token)
            starts_word[id] = not continues_word[id] and _is_part_of_word(token)
        else:
            text = tokens_to_text(tokenizer, [id])
            continues_word[id] = not text.startswith(" ") and _is_part_of_word(text)
            starts_word[id] = _is_part_of_word(text.strip()) or not text.strip()  # a space may be a token of its own
    return starts_word, continues_word, ideographs


def _is_part_of_word(text: str) -> bool:
    """Return whether `text` has only letters, digits, combining marks and bytes of a character."""
    return bool(text) and all(c.isalnum() or c == "\ufffd" or unicodedata.category(c)[0] == "M" for c in text)
