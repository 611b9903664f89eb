"""Word boundaries in raw text, fitted to a file that contains words.

A tagger is trained on the words of its file. On raw text it must find the same words: one file keeps "U.S." and "Bre-X" as one
word, another splits "don't" into "do" and "n't". `fit` counts how often the file has a boundary at each index inside a chunk
(characters without whitespace). The contexts of an index go from general to specific. A specific context is stored only if it
corrects the more general ones:

| context                              | example           | what it learns                            |
|--------------------------------------|-------------------|-------------------------------------------|
| shapes of 1 character on each side   | `a ,`             | a comma is a separate word                |
| shapes of 3 before and 1 or 2 after  | `A.A .`           | the last period of "U.S." belongs to it   |
| 1 character before and 3 after       | `o n't`           | "don't" is "do" and "n't"                 |
| 4 characters before and 1 after      | `Inc .`           | an abbreviation keeps its period          |

A rule decides for contexts that the file does not have: punctuation between letters or digits stays inside the word, other
punctuation is a separate word. In most column files all words are separated by spaces. There, words that are usually written
without a space (, ( 's n't) are joined to their neighbors before counting.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any
from unicodedata import category

from unmask.labels.records import Record
from unmask.text.segmentation import has_chinese, split_words

WordOffsets = list[list[int]]  # [start, end) of each word, in characters
ChunkCounts = Counter[tuple[str, tuple[int, ...]]]  # (chunk, indices where words end inside it) → count
CONTEXT_SIZES = ((1, 1), (3, 1), (3, 2), (1, 3), (4, 1))  # characters before and after, by level
NUM_SHAPE_LEVELS = 3  # the first levels compare character shapes, the others the characters themselves
CLITIC_LEVEL = 3  # only this level can split between two letters, as in "do|n't" and "can|not"
MAX_FIT_WORDS = 200_000  # a larger file is sampled
MAX_CACHED_CHUNKS, MAX_CACHED_LENGTH = 100_000, 40  # the length is in characters
MAX_TEXT_LENGTH = 200_000  # characters; a longer text is split at all punctuation, which is faster
MAX_INNER_PUNCTUATION = 8  # characters of punctuation between two letters that may belong to one word
JOINER_FRACTION = (
    0.05  # a symbol joins words if it occurs inside words less often than this fraction of its occurrences alone
)
_CLOSING = tuple(".,;:!?)]}%…'’”»、。，；：！？）》」")
_OPENING = tuple("([{$£€¥#@‘“«（《「")
_QUOTES = ('"', "``", "''")
VALID = f"null, or {{segment, letters, contexts: {len(CONTEXT_SIZES)} objects of true and false}}"


def span_borders(record: Record) -> list[int]:
    """Return the starts and ends of a record's spans."""
    return [border for span in record.get("spans", ()) for border in (span["start"], span["end"])]


def are_valid(state: Any) -> bool:
    """Return whether a value read from a file has the format that `Boundaries.fit` returns."""
    if not state:
        return state is None or state == {}
    if not isinstance(state, dict) or not all(isinstance(state.get(k, False), bool) for k in ("segment", "letters")):
        return False
    contexts = state.get("contexts", [{} for _ in CONTEXT_SIZES])
    return (
        isinstance(contexts, list)
        and len(contexts) == len(CONTEXT_SIZES)
        and all(isinstance(c, dict) and all(isinstance(v, bool) for v in c.values()) for c in contexts)
    )


class Boundaries:
    """Split text into words as the fitted file does. Without a state, split at all punctuation (`split_words`)."""

    def __init__(self, state: Mapping[str, Any] | None):
        values = state or {}
        self.is_fitted = state is not None
        self.contexts: list[dict[str, bool]] = list(values.get("contexts") or [{} for _ in CONTEXT_SIZES])
        self.segment = bool(values.get("segment"))  # Chinese words have several characters
        self.letters = bool(values.get("letters"))  # every letter and digit is a word
        self._cache: dict[str, list[int]] = {}  # chunk → indices where words end

    @classmethod
    def fit(cls, texts: Iterable[tuple[str, WordOffsets]]) -> dict[str, Any] | None:
        """Return the state for the constructor as plain values, or None if there are no words."""
        chunks = _count_chunks(list(texts))
        if not chunks:
            return None
        same_class, chinese = (_count_boundaries(chunks, is_kind) for is_kind in (_same_class, _both_chinese))
        state = {"segment": chinese[False] > chinese[True], "letters": same_class[True] > same_class[False]}
        self = cls(state)
        clitics = {
            _context(chunk, index, CLITIC_LEVEL)
            for chunk, ends in chunks
            for index in ends
            if not self.letters and _same_class(chunk, index)
        }
        observations = [
            (chunk, index, by_rule or _follows_split_punctuation(chunk, index, ends), index in ends, count)
            for (chunk, ends), count in chunks.items()
            for index, by_rule in self.candidates(chunk)
            if not _same_class(chunk, index) or _context(chunk, index, CLITIC_LEVEL) in clitics
        ]
        for level in range(len(CONTEXT_SIZES)):
            votes: dict[
                str, list[int]
            ] = {}  # context → counts of [not a boundary, boundary, errors of the levels so far]
            for chunk, index, by_rule, is_boundary, count in observations:
                if level == CLITIC_LEVEL or not _same_class(chunk, index):
                    counts = votes.setdefault(_context(chunk, index, level), [0, 0, 0])
                    counts[is_boundary] += count
                    counts[2] += count * (self.decide(chunk, index, by_rule) != is_boundary)
            self.contexts[level] = {
                context: yes > no for context, (no, yes, errors) in votes.items() if errors > min(no, yes)
            }
        return {**state, "contexts": self.contexts}

    def __call__(self, text: str, borders: Iterable[int] = ()) -> WordOffsets:
        """Return [start, end) of each word. Words are also split at `borders`.

        >>> text = "Bre-X, U.S."
        >>> [text[a:b] for a, b in Boundaries({})(text)], [text[a:b] for a, b in Boundaries(None)(text)]
        (['Bre-X', ',', 'U.S', '.'], ['Bre', '-', 'X', ',', 'U', '.', 'S', '.'])
        """
        if not self.is_fitted or len(text) > MAX_TEXT_LENGTH:
            return split_words(text, borders)
        all_borders, words = sorted(borders), []
        for match in re.finditer(r"\S+", text):
            start, end = match.span()
            inner = {start + index for index in self._split_chunk(match[0])}
            edges = [start, *sorted(inner | {border for border in all_borders if start < border < end}), end]
            words += [[a, b] for a, b in pairwise(edges)]
        return words

    def candidates(self, chunk: str) -> list[tuple[int, bool]]:
        """Return the indices where a word may end, each with the decision of the rule."""
        splits, out = self._split_at_punctuation(chunk), []
        for index in range(1, len(chunk)):
            if index in splits:
                out.append((index, self.letters or _both_chinese(chunk, index) or not _inside_word(chunk, index)))
            elif chunk[index - 1].isalnum() and chunk[index].isalnum() and not _both_chinese(chunk, index):
                out.append((index, self.letters))
        return out

    def decide(self, chunk: str, index: int, by_rule: bool) -> bool:
        """Return whether a word ends at an index: the most specific known context decides, else the rule."""
        if _both_chinese(chunk, index):
            return by_rule
        for level in (CLITIC_LEVEL,) if _same_class(chunk, index) else reversed(range(len(CONTEXT_SIZES))):
            table = self.contexts[level]
            if table and (decision := table.get(_context(chunk, index, level))) is not None:
                return decision
        return by_rule

    def _split_chunk(self, chunk: str) -> list[int]:
        """Return the indices inside a chunk where a word ends."""
        ends = self._cache.get(chunk)
        if ends is not None:
            return ends
        ends = []
        for index, by_rule in self.candidates(chunk):
            if self.decide(chunk, index, by_rule or _follows_split_punctuation(chunk, index, ends[-1:])):
                ends.append(index)
        if len(chunk) <= MAX_CACHED_LENGTH:
            if len(self._cache) >= MAX_CACHED_CHUNKS:
                self._cache.clear()
            self._cache[chunk] = ends
        return ends

    def _split_at_punctuation(self, chunk: str) -> set[int]:
        if chunk.isascii() and chunk.isprintable():  # the same result as split_words, faster
            return {i for i in range(1, len(chunk)) if not (chunk[i - 1].isalnum() and chunk[i].isalnum())}
        return {start for start, _ in split_words(chunk, (), "zh" if self.segment else "en") if start}


# ------------------------------------------------------------------------------------------ statistics of the file


def _count_chunks(texts: Sequence[tuple[str, WordOffsets]]) -> ChunkCounts:
    """Count the chunks of a file and where words end in them."""
    has_touching_words = any(a[1] == b[0] for _, words in texts for a, b in pairwise(words))
    step = 1 + sum(len(words) for _, words in texts) // MAX_FIT_WORDS
    are_joined = _make_joiner(text[a:b] for text, words in texts for a, b in words)
    counts: ChunkCounts = Counter()
    for text, words in texts[::step]:
        chunks: list[list[str]] = []  # each a list of words
        previous_end = -1
        for start, end in words:
            word = text[start:end]
            if chunks and (start == previous_end if has_touching_words else are_joined(chunks[-1][-1], word)):
                chunks[-1].append(word)
            else:
                chunks.append([word])
            previous_end = end
        counts.update(("".join(chunk), tuple(accumulate(map(len, chunk)))[:-1]) for chunk in chunks)
    return Counter({key: count for key, count in counts.items() if not any(map(str.isspace, key[0]))})


def _make_joiner(words: Iterable[str]) -> Callable[[str, str], bool]:
    """Return a function that tells whether two words are usually written without a space between them.

    A hyphen joins words only if the file has none inside its words; otherwise it is a dash with spaces on both sides.

    >>> are_joined = _make_joiner(["York", ",", "do", "n't", "Bre-X", "-"])
    >>> are_joined("York", ","), are_joined("do", "n't"), are_joined("York", "-"), are_joined("New", "York")
    (True, True, False, False)
    """
    alone, inside = Counter[str](), Counter[str]()  # symbols that are a word, and symbols inside words
    for word, count in Counter(words).items():
        if len(word) == 1:
            alone[word] += count
        elif not word.isalnum():
            symbols = [
                c for a, c, b in zip(word, word[1:], word[2:]) if a.isalnum() and b.isalnum() and not c.isalnum()
            ]
            inside.update(dict.fromkeys(symbols, count))
    joiners = {c for c in alone if not c.isalnum() and inside[c] < JOINER_FRACTION * alone[c]}

    def are_joined(a: str, b: str) -> bool:
        if any(map(str.isalnum, a)) and any(map(str.isalnum, b)):
            return b.startswith(("'", "’")) or b.lower().replace("’", "'") == "n't"
        if a.startswith(_QUOTES) or b.startswith(_QUOTES):
            return False
        return b.startswith(_CLOSING) or a.startswith(_OPENING) or a in joiners or b in joiners

    return are_joined


def _count_boundaries(chunks: ChunkCounts, is_kind: Callable[[str, int], bool]) -> Counter[bool]:
    """Count how often a word ends (True), and does not (False), at the indices of a kind."""
    votes = Counter[bool]()
    for (chunk, ends), count in chunks.items():
        for index in range(1, len(chunk)):
            if is_kind(chunk, index):
                votes[index in ends] += count
    return votes


# --------------------------------------------------------------------------------------------------- contexts


def _context(chunk: str, index: int, level: int) -> str:
    before, after = CONTEXT_SIZES[level]
    left, right = chunk[max(0, index - before) : index], chunk[index : index + after]
    if level < NUM_SHAPE_LEVELS:
        left, right = "".join(map(_shape, left)), "".join(map(_shape, right))
    return f"{left} {right}"


@lru_cache(10_000)
def _shape(character: str) -> str:
    """Return the class of a letter, digit, Chinese character or symbol; punctuation is its own class."""
    if has_chinese(character):
        return "中"
    kind = category(character)
    if kind[0] == "L":
        return "A" if kind == "Lu" else "a"
    return "0" if kind[0] == "N" else "☺" if kind == "So" else character


def _same_class(chunk: str, index: int) -> bool:
    """Return whether the index is between two letters or between two digits."""
    a, b = _shape(chunk[index - 1]), _shape(chunk[index])
    return (a in "Aa" and b in "Aa") or a == b == "0"


def _both_chinese(chunk: str, index: int) -> bool:
    return _shape(chunk[index - 1]) == "中" == _shape(chunk[index])


def _inside_word(chunk: str, index: int) -> bool:
    """Return whether the punctuation around the index is between two letters or digits that are not Chinese."""
    start, end = index, index
    while start > max(0, index - MAX_INNER_PUNCTUATION) and not chunk[start - 1].isalnum():
        start -= 1
    while end < min(len(chunk), index + MAX_INNER_PUNCTUATION) and not chunk[end].isalnum():
        end += 1
    if start == 0 or end == len(chunk) or "中" in (_shape(chunk[start - 1]), _shape(chunk[end])):
        return False
    return chunk[start - 1].isalnum() and chunk[end].isalnum() and all(map(_is_punctuation, chunk[start:end]))


def _follows_split_punctuation(chunk: str, index: int, ends: Sequence[int]) -> bool:
    """Return whether the character before the index is punctuation that starts a word. By rule, it is a word of one character."""
    return not chunk[index - 1].isalnum() and index - 1 in ends


def _is_punctuation(character: str) -> bool:
    return category(character)[0] == "P" or (character.isascii() and not character.isalnum())
