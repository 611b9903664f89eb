"""Masking units: the tokens that MLM selects together.

| unit   | selected together                                                   | [MASK], random or kept is sampled for | paper |
|--------|---------------------------------------------------------------------|------------|-----------------------|
| token  | one token                                                           | each token | BERT 1810.04805       |
| word   | all subwords of a word                                              | each token | BERT's whole-word code, 1906.08101 |
| span   | 1 to 10 words; lengths geometric (p = 0.2), renormalized, mean 3.8  | the span   | SpanBERT 1907.10529   |
| ngram  | 1 to 3 words; n words with a probability proportional to 1/n        | each token | ALBERT 1909.11942     |
| phrase | the phrases of the user's file, then single words                   | the unit   | after ERNIE 1904.09223 |

Word boundaries come from the store's WORD flags, so masking whole words works for Chinese and for every tokenizer.

The mask rate is exact on average: units are taken in random order while they fit into rate × tokens. The unit that would exceed
this budget is taken with probability (remaining budget) / (its tokens).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from unmask.errors import UserError
from unmask.text.flags import WORD
from unmask.text.store import Split
from unmask.text.tokenizer import Tokenizer

Unit = tuple[int, int]  # positions [start, end) of one row
CHUNK_TOKENS = 1 << 16  # tokens searched for phrases at a time
MAX_SAMPLED_TOKENS = 4_000_000  # stop the search for missing phrases after this many tokens
MAX_PHRASES_SHOWN = 5  # missing phrases in a message


def span_length_probabilities(unit: str) -> np.ndarray:
    """Return the probabilities of 1, 2, … words.

    >>> span_length_probabilities("ngram").round(3).tolist(), round(float(span_length_probabilities("span") @ np.arange(1, 11)), 1)
    ([0.545, 0.273, 0.182], 3.8)
    """
    weights = 1 / np.arange(1, 4) if unit == "ngram" else 0.8 ** np.arange(10)
    return weights / weights.sum()


def word_spans(candidates: np.ndarray, flags: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends of the words among the sorted positions `candidates`. Without flags each token is a word.

    >>> word_spans(np.array([1, 2, 3, 5]), np.array([0, 1, 0, 1, 0, 0, 0], np.uint8))
    (array([1, 3, 5]), array([3, 4, 6]))
    """
    is_start = np.ones(len(candidates), bool)
    if flags is not None and len(candidates):
        is_start[1:] = (np.diff(candidates) > 1) | ((flags[candidates[1:]] & WORD) > 0)
    first = np.flatnonzero(is_start)
    last = np.append(first[1:], len(candidates)) - 1
    return candidates[first], candidates[last] + 1 if len(first) else candidates[first]


def sample_units(units: Sequence[Unit], budget: float, rng: np.random.Generator) -> list[Unit]:
    """Take the first units that fit into `budget` tokens; include the next one at random, so that the mean is the budget."""
    if not units:
        return []
    sizes = np.array([end - start for start, end in units])
    total = np.cumsum(sizes)
    count = int(np.searchsorted(total, budget, "right"))
    if count < len(units):
        remaining = budget - (total[count - 1] if count else 0)
        count += int(rng.random() < remaining / sizes[count])
    return list(units[:count])


def sample_spans(
    starts: np.ndarray, ends: np.ndarray, probabilities: np.ndarray, budget: float, rng: np.random.Generator
) -> list[Unit]:
    """Sample spans of whole words at random positions until they fill `budget`. Spans do not touch each other.

    If there is no free position left, single words follow. `probabilities`: of span lengths 1, 2, … words.
    """
    max_spans = min(len(starts), int(1.5 * budget) + 10)
    lengths = 1 + rng.choice(len(probabilities), size=max_spans, p=probabilities)
    attempts = rng.random((max_spans, 10))  # candidate positions for each span, as fractions of the row
    is_free, is_taken = np.ones(len(starts), bool), np.zeros(len(starts), bool)
    out: list[Unit] = []
    filled = failed = 0
    for length, fractions in zip(lengths.tolist(), attempts):
        if filled > budget:
            return out
        if failed == 10:  # ten spans in a row found no free position: the row is full
            break
        failed += 1
        for first in (fractions * max(1, len(starts) - length + 1)).astype(int).tolist():
            last = min(first + length, len(starts))
            contiguous = (starts[first + 1 : last] == ends[first : last - 1]).all()  # no special token in between
            if contiguous and is_free[first:last].all():
                is_free[max(0, first - 1) : last + 1] = False
                is_taken[first:last] = True
                out.append((int(starts[first]), int(ends[last - 1])))
                filled, failed = filled + out[-1][1] - out[-1][0], 0
                break
    return out + [(int(starts[i]), int(ends[i])) for i in rng.permutation(np.flatnonzero(~is_taken))]


class Phrases:
    """The user's phrases as token ids. They match whole words only."""

    def __init__(self, path: str, tokenizer: Tokenizer):
        self.path, self.special = path, tokenizer.special
        self.by_first_token: dict[int, list[tuple[int, ...]]] = {}  # first token → phrases, the longest first
        # Phrase in the file → its tokenizations; none if it has unknown tokens.
        self.phrases: dict[str, set[tuple[int, ...]]] = {}
        for line in read_phrases(path):
            self.phrases[line] = set()
            for text in (line, f" {line}"):  # byte-level and unigram tokens include the space before a word
                ids = tuple(tokenizer.encode(text))
                if ids and not tokenizer.special[list(ids)].any():
                    self.phrases[line].add(ids)
        for ids in dict.fromkeys(ids for tokens in self.phrases.values() for ids in sorted(tokens)):
            self.by_first_token.setdefault(ids[0], []).append(ids)
        for phrases in self.by_first_token.values():
            phrases.sort(key=len, reverse=True)
        self.first = np.array(sorted(self.by_first_token))

    def find(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> list[Unit]:
        """Return the occurrences from left to right, without overlaps. At each position the longest phrase wins."""
        out: list[Unit] = []
        for start, phrase in self._matches(ids, starts, ends):
            if not out or start >= out[-1][1]:
                out.append((start, start + len(phrase)))
        return out

    def _matches(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the start and the phrase of every occurrence, from left to right, the longest first."""
        word_ends = set(ends.tolist())
        for start in starts[np.isin(ids[starts], self.first)].tolist():
            for phrase in self.by_first_token[int(ids[start])]:
                end = start + len(phrase)
                if end in word_ends and tuple(ids[start:end].tolist()) == phrase:
                    yield start, phrase

    def missing(self, splits: Sequence[Split]) -> tuple[list[str], int]:
        """Return the phrases that do not occur in the text, and the number of tokens searched.

        Chunks spread over the text are searched until every phrase was found or MAX_SAMPLED_TOKENS tokens were read. If no phrase was
        found by then, the whole text is searched.
        """
        missing, found_any, num_read = dict(self.phrases), False, 0
        overlap = max((len(ids) for tokens in self.phrases.values() for ids in tokens), default=0)
        chunks = [(split, start) for split in splits for start in spread_offsets(len(split.tokens))]
        for split, start in chunks:
            if not missing or (found_any and num_read >= MAX_SAMPLED_TOKENS):
                break
            chunk = slice(start, start + CHUNK_TOKENS + overlap)  # a phrase may cross the end of a chunk
            ids, flags = split.tokens[chunk].astype(np.int64), split.flags[chunk]
            num_read += min(CHUNK_TOKENS, len(ids))
            words = word_spans(np.flatnonzero(~self.special[ids]), flags)
            matched = {phrase for _, phrase in self._matches(ids, *words)}
            found_any |= bool(matched)
            missing = {line: tokens for line, tokens in missing.items() if not tokens & matched}
        return list(missing), num_read

    def report(self, splits: Sequence[Split]) -> str:
        """Return a sentence about how many phrases occur in the text. Raise UserError if none does."""
        missing, num_read = self.missing(splits)
        if len(missing) == len(self.phrases):
            raise UserError(
                f"none of the {len(missing):,} phrases of {self.path} occurs in the text, e.g. {missing[0]!r}",
                expected="phrases of whole words, with the same punctuation as in the text",
                hint="--mask-unit word, or --set mlm.phrases=FILE with phrases of this text",
            )
        read_all = num_read >= sum(len(split.tokens) for split in splits)
        where = "the text" if read_all or not missing else f"the {num_read:,} tokens searched"
        note = f"{len(self.phrases) - len(missing):,} of {len(self.phrases):,} phrases of {self.path} occur in {where}"
        if not missing:
            return note
        ellipsis = ", …" if len(missing) > MAX_PHRASES_SHOWN else ""
        return f"{note}; missing: {', '.join(map(repr, missing[:MAX_PHRASES_SHOWN]))}{ellipsis}"


def spread_offsets(total: int) -> list[int]:
    """Return the start of each chunk of `total` tokens: every 64th chunk, then the ones after these, and so on.

    >>> [start // CHUNK_TOKENS for start in spread_offsets(130 * CHUNK_TOKENS)][:5]
    [0, 64, 128, 1, 65]
    """
    starts = range(0, total, CHUNK_TOKENS)
    return [start for first in range(64) for start in starts[first::64]]


def read_phrases(path: str) -> list[str]:
    """Return the lines that are not empty; for tab-separated lines, the first column."""
    if not path:
        raise UserError(
            "mlm.mask_unit=phrase needs a file of phrases", hint="--set mlm.phrases=FILE, one phrase per line"
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
