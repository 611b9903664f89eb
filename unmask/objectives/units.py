"""Masking units: which tokens MLM chooses together.

| unit  | chosen together                                                     | [MASK], random or kept is decided for | paper |
|-------|---------------------------------------------------------------------|------------|-----------------------|
| token | one token                                                           | each token | BERT 1810.04805       |
| word  | all pieces of a word                                                | each token | BERT's whole-word code, 1906.08101 |
| span  | 1 to 10 words; lengths geometric (p = 0.2), renormalised, mean 3.8  | the span   | SpanBERT 1907.10529   |
| ngram | 1 to 3 words, of n words with a probability proportional to 1/n     | each token | ALBERT 1909.11942     |
| named | the phrases of the user's file, then words to fill up               | the unit   | after ERNIE 1904.09223 |

Words are those of the store's WORD flags, so Chinese words and every tokenizer are served alike.

The share of tokens is exact on average: units are taken in random order while they fit into rate × tokens, and the one
that would go over is taken by a lot whose chance is the share of it that still fits.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from unmask.errors import UserError
from unmask.text.flags import WORD
from unmask.text.store import Split
from unmask.text.tokenizer import Tokenizer

Unit = tuple[int, int]  # positions [start, end) of one row
CHUNK_TOKENS = 1 << 16  # tokens in which phrases are looked for at a time
MAX_SAMPLED_TOKENS = 4_000_000  # tokens looked at, at most, where some phrases are never found
MAX_PHRASES_SHOWN = 5  # phrases named that do not occur


def span_length_probabilities(unit: str) -> np.ndarray:
    """Chances of 1, 2, … words.

    >>> span_length_probabilities("ngram").round(3).tolist(), round(float(span_length_probabilities("span") @ np.arange(1, 11)), 1)
    ([0.545, 0.273, 0.182], 3.8)
    """
    chances = 1 / np.arange(1, 4) if unit == "ngram" else 0.8 ** np.arange(10)
    return chances / chances.sum()


def word_spans(candidates: np.ndarray, flags: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the words among the positions `candidates` (sorted); without flags each token is a word.

    >>> word_spans(np.array([1, 2, 3, 5]), np.array([0, 1, 0, 1, 0, 0, 0], np.uint8))
    (array([1, 3, 5]), array([3, 4, 6]))
    """
    begins = np.ones(len(candidates), bool)
    if flags is not None and len(candidates):
        begins[1:] = (np.diff(candidates) > 1) | ((flags[candidates[1:]] & WORD) > 0)
    at = np.flatnonzero(begins)
    ends = np.append(at[1:], len(candidates)) - 1
    return candidates[at], candidates[ends] + 1 if len(at) else candidates[at]


def sample_units(units: Sequence[Unit], budget: float, rng: np.random.Generator) -> list[Unit]:
    """The first units that fit into `budget` tokens; the next one at random, so that the mean is the budget."""
    if not units:
        return []
    sizes = np.array([end - start for start, end in units])
    total = np.cumsum(sizes)
    full = int(np.searchsorted(total, budget, "right"))
    if full < len(units):
        left = budget - (total[full - 1] if full else 0)
        full += int(rng.random() < left / sizes[full])
    return list(units[:full])


def sample_spans(
    starts: np.ndarray, ends: np.ndarray, chances: np.ndarray, budget: float, rng: np.random.Generator
) -> list[Unit]:
    """Runs of whole words of random lengths at random places, none touching another, enough to fill `budget`.

    Where so much is to be hidden that no place is left, single words fill it up.
    """
    tries = min(len(starts), int(1.5 * budget) + 10)  # runs at most, and places for each
    lengths, places = 1 + rng.choice(len(chances), size=tries, p=chances), rng.random((tries, 10))
    free, hidden = np.ones(len(starts), bool), np.zeros(len(starts), bool)
    out: list[Unit] = []
    filled = failed = 0
    for length, place in zip(lengths.tolist(), places):
        if filled > budget:
            return out
        if failed == 10:  # lengths one after the other for which no place was found: the row is full
            break
        failed += 1
        for first in (place * max(1, len(starts) - length + 1)).astype(int).tolist():
            last = min(first + length, len(starts))
            unbroken = (starts[first + 1 : last] == ends[first : last - 1]).all()  # no special token in between
            if unbroken and free[first:last].all():
                free[max(0, first - 1) : last + 1] = False
                hidden[first:last] = True
                out.append((int(starts[first]), int(ends[last - 1])))
                filled, failed = filled + out[-1][1] - out[-1][0], 0
                break
    return out + [(int(starts[i]), int(ends[i])) for i in rng.permutation(np.flatnonzero(~hidden))]


class Phrases:
    """The user's phrases as tokens, found in rows where whole words stand."""

    def __init__(self, path: str, tokenizer: Tokenizer):
        self.path, self.special = path, tokenizer.special
        self.by_first_token: dict[int, list[tuple[int, ...]]] = {}  # first token → phrases, the longest first
        self.phrases: dict[
            str, set[tuple[int, ...]]
        ] = {}  # as the file has them → as tokens; none when unknown to them
        for line in read_phrases(path):
            self.phrases[line] = set()
            for text in (line, f" {line}"):  # byte-level and unigram pieces carry the blank before a word
                ids = tuple(tokenizer.encode(text))
                if ids and not tokenizer.special[list(ids)].any():
                    self.phrases[line].add(ids)
        for ids in dict.fromkeys(ids for tokens in self.phrases.values() for ids in sorted(tokens)):
            self.by_first_token.setdefault(ids[0], []).append(ids)
        for phrases in self.by_first_token.values():
            phrases.sort(key=len, reverse=True)
        self.first = np.array(sorted(self.by_first_token))

    def find(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> list[Unit]:
        """Occurrences from left to right, the longest phrase at each place, none inside another."""
        out: list[Unit] = []
        for start, phrase in self._matches(ids, starts, ends):
            if not out or start >= out[-1][1]:
                out.append((start, start + len(phrase)))
        return out

    def _matches(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Every occurrence: where it starts, and the phrase; from left to right, the longest first."""
        borders = set(ends.tolist())
        for start in starts[np.isin(ids[starts], self.first)].tolist():
            for phrase in self.by_first_token[int(ids[start])]:
                end = start + len(phrase)
                if end in borders and tuple(ids[start:end].tolist()) == phrase:
                    yield start, phrase

    def missing(self, splits: Sequence[Split]) -> tuple[list[str], int]:
        """Phrases that do not occur in the text, and how many tokens of it were looked at.

        Pieces from all over the text, until every phrase was seen or MAX_SAMPLED_TOKENS tokens were read; as long as there is none at
        all, all of it.
        """
        left, seen, read = dict(self.phrases), False, 0
        over = max((len(ids) for tokens in self.phrases.values() for ids in tokens), default=0)
        order = [(split, start) for split in splits for start in spread_offsets(len(split.tokens))]
        for split, start in order:
            if not left or (seen and read >= MAX_SAMPLED_TOKENS):
                break
            piece = slice(start, start + CHUNK_TOKENS + over)  # a phrase may stand on a border
            ids, flags = split.tokens[piece].astype(np.int64), split.flags[piece]
            read += min(CHUNK_TOKENS, len(ids))
            found = {phrase for _, phrase in self._matches(ids, *word_spans(np.flatnonzero(~self.special[ids]), flags))}
            seen |= bool(found)
            left = {line: tokens for line, tokens in left.items() if not tokens & found}
        return list(left), read

    def report(self, splits: Sequence[Split]) -> str:
        """How many of the phrases the text has; refused when it has none."""
        missing, read = self.missing(splits)
        if len(missing) == len(self.phrases):
            raise UserError(
                f"none of the {len(missing):,} phrases of {self.path} occurs in the text, e.g. {missing[0]!r}",
                expected="phrases as the text has them: whole words, with the same signs between them",
                hint="--mask-unit word, or a file of phrases of this text",
            )
        whole = read >= sum(len(split.tokens) for split in splits)
        where = "the text" if whole or not missing else f"the {read:,} tokens looked at"
        said = f"{len(self.phrases) - len(missing):,} of {len(self.phrases):,} phrases of {self.path} occur in {where}"
        never = ", ".join(repr(line) for line in missing[:MAX_PHRASES_SHOWN]) + (
            ", …" if len(missing) > MAX_PHRASES_SHOWN else ""
        )
        return f"{said}; not there: {never}" if missing else said


def spread_offsets(total: int) -> list[int]:
    """Where the pieces of a text of `total` tokens start: every 64th, then the one after each, so that some are from all over.

    >>> [start // CHUNK_TOKENS for start in spread_offsets(130 * CHUNK_TOKENS)][:5]
    [0, 64, 128, 1, 65]
    """
    starts = range(0, total, CHUNK_TOKENS)
    return [start for first in range(64) for start in starts[first::64]]


def read_phrases(path: str) -> list[str]:
    """Lines that are not empty; of a tab-separated one, the first column."""
    if not path:
        raise UserError(
            "mlm.mask_unit=phrase without a file of phrases", hint="--set mlm.phrases=FILE, one phrase per line"
        )
    try:
        lines = Path(path).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read the phrases {path}: {error}", expected="a UTF-8 file, one phrase per line"
        ) from None
    phrases = [line.split("\t")[0].strip() for line in lines]
    if not any(phrases):
        raise UserError(f"no phrases in {path}", expected="one phrase per line")
    return [phrase for phrase in phrases if phrase]
