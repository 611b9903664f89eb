"""Where words begin and end in raw text, learnt from a file whose words are given.

A tagger is trained on the words of its file. On raw text it must find the same words, or it is asked something it never learnt:
one file keeps "U.S." and "Bre-X" whole, another writes "do" "n't". `fit` counts, at every place inside a run of characters
without white space, how often the file has a boundary there. The contexts go from general to specific, and a specific context is
stored only where it corrects the general ones:

| context                              | example           | what it learns                            |
|--------------------------------------|-------------------|-------------------------------------------|
| shapes of 1 character on each side   | `a ,`             | a comma is a word of its own              |
| shapes of 3 before and 1 or 2 after  | `A.A .`           | the last stop of "U.S." belongs to it     |
| 1 character before and 3 after       | `o n't`           | "don't" is "do" and "n't"                 |
| 4 characters before and 1 after      | `Inc .`           | an abbreviation keeps its stop            |

A context that the file does not have is decided by rule: punctuation between letters or digits stays inside the word, other
punctuation is a word of its own. In most column files every word stands between blanks; there, words that text writes without a
blank ("," "(" "'s" "n't") are joined to their neighbours before counting.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any
from unicodedata import category

from unmask.text.segmentation import has_chinese, split_words

Words = list[list[int]]
Runs = Counter[tuple[str, tuple[int, ...]]]  # characters without white space, and where in them words end → how often
WINDOWS = ((1, 1), (3, 1), (3, 2), (1, 3), (4, 1))  # characters before and after
SHAPES = 3  # so many of the windows hold shapes, the others the characters themselves
CLITIC = 3  # the window that alone decides between two letters, as in "do|n't" and "can|not"
LOOKED_AT = 200_000  # words
CACHED = 40, 100_000  # characters of a run whose boundaries are remembered, and how many such runs
MOST = 200_000  # characters of a text that are looked at one by one; a longer one is split at all punctuation
NEAR = 8  # characters of punctuation between two letters that may belong to one word
RARE = 0.05  # share of a character's occurrences
_CLOSING = tuple(".,;:!?)]}%…'’”»、。，；：！？）》」")
_OPENING = tuple("([{$£€¥#@‘“«（《「")
_QUOTES = ('"', "``", "''")
VALID = f"null, or {{segment, letters, contexts: {len(WINDOWS)} objects of true and false}}"


def are_valid(found: Any) -> bool:
    """Whether a value from a file is what `fit` gives."""
    if not found:
        return found is None or found == {}
    if not isinstance(found, dict) or not all(isinstance(found.get(k, False), bool) for k in ("segment", "letters")):
        return False
    contexts = found.get("contexts", [{} for _ in WINDOWS])
    return (
        isinstance(contexts, list)
        and len(contexts) == len(WINDOWS)
        and all(isinstance(c, dict) and all(isinstance(v, bool) for v in c.values()) for c in contexts)
    )


class Boundaries:
    """Splits text into words: by what `fit` stored, or without it at all punctuation (`split_words`)."""

    def __init__(self, values: Mapping[str, Any] | None):
        found = values or {}
        self.is_fitted = values is not None
        self.contexts: list[dict[str, bool]] = list(found.get("contexts") or [{} for _ in WINDOWS])
        self.segment = bool(found.get("segment"))  # words of several Chinese characters
        self.letters = bool(found.get("letters"))  # every letter and digit is a word
        self._known: dict[str, list[int]] = {}

    @classmethod
    def fit(cls, texts: Iterable[tuple[str, Words]]) -> dict[str, Any] | None:
        """Plain values for the constructor; None where no words are given."""
        runs = _count_runs(list(texts))
        if not runs:
            return None
        inner, chinese = (_votes(runs, kind) for kind in (_alike, _both_chinese))
        found = {"segment": chinese[False] > chinese[True], "letters": inner[True] > inner[False]}
        self = cls(found)
        clitics = {
            _context(run, at, CLITIC) for run, ends in runs for at in ends if not self.letters and _alike(run, at)
        }
        places = [
            (run, at, rule or _after_cut(run, at, ends), at in ends, n)
            for (run, ends), n in runs.items()
            for at, rule in self.candidates(run)
            if not _alike(run, at) or _context(run, at, CLITIC) in clitics
        ]
        for level in range(len(WINDOWS)):
            votes: dict[str, list[int]] = {}  # context → votes for inside, for a boundary; mistakes without it
            for run, at, rule, boundary, n in places:
                if level == CLITIC or not _alike(run, at):
                    counts = votes.setdefault(_context(run, at, level), [0, 0, 0])
                    counts[boundary] += n
                    counts[2] += n * (self.decide(run, at, rule) != boundary)
            self.contexts[level] = {key: b > a for key, (a, b, wrong) in votes.items() if wrong > min(a, b)}
        return {**found, "contexts": self.contexts}

    def __call__(self, text: str, borders: Iterable[int] = ()) -> Words:
        """[start, end) of each word; words are cut at `borders` too.

        >>> text = "Bre-X, U.S."
        >>> [text[a:b] for a, b in Boundaries({})(text)], [text[a:b] for a, b in Boundaries(None)(text)]
        (['Bre-X', ',', 'U.S', '.'], ['Bre', '-', 'X', ',', 'U', '.', 'S', '.'])
        """
        if not self.is_fitted or len(text) > MOST:
            return split_words(text, borders)
        cuts, words = sorted(borders), []
        for start, end in _runs(text):
            inside = {start + at for at in self._inside(text[start:end])}
            edges = [start, *sorted(inside | {at for at in cuts if start < at < end}), end]
            words += [[a, b] for a, b in pairwise(edges)]
        return words

    def candidates(self, run: str) -> list[tuple[int, bool]]:
        """Places inside a run where a word may end, and whether one ends there by rule."""
        base, found = self._split(run), []
        for at in range(1, len(run)):
            if at in base:
                found.append((at, self.letters or _both_chinese(run, at) or not _between_letters(run, at)))
            elif run[at - 1].isalnum() and run[at].isalnum() and not _both_chinese(run, at):
                found.append((at, self.letters))
        return found

    def decide(self, run: str, at: int, rule: bool) -> bool:
        """Whether a word ends at a place inside a run."""
        if _both_chinese(run, at):
            return rule
        for level in (CLITIC,) if _alike(run, at) else reversed(range(len(WINDOWS))):
            table = self.contexts[level]
            if table and (found := table.get(_context(run, at, level))) is not None:
                return found
        return rule

    def _inside(self, run: str) -> list[int]:
        """The places inside a run where a word ends."""
        found = self._known.get(run)
        if found is not None:
            return found
        found = []
        for at, rule in self.candidates(run):
            if self.decide(run, at, rule or _after_cut(run, at, found[-1:])):
                found.append(at)
        if len(run) <= CACHED[0]:
            if len(self._known) >= CACHED[1]:
                self._known.clear()
            self._known[run] = found
        return found

    def _split(self, run: str) -> set[int]:
        if run.isascii() and run.isprintable():  # the same, sooner
            return {at for at in range(1, len(run)) if not (run[at - 1].isalnum() and run[at].isalnum())}
        return {start for start, _ in split_words(run, (), "zh" if self.segment else "en") if start}


# ------------------------------------------------------------------------------------------ what the file has


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """[start, end) of what stands between white space."""
    return (found.span() for found in re.finditer(r"\S+", text))


def _count_runs(given: Sequence[tuple[str, Words]]) -> Runs:
    touching = any(a[1] == b[0] for _, words in given for a, b in pairwise(words))
    step = 1 + sum(len(words) for _, words in given) // LOOKED_AT
    together = _together(text[a:b] for text, words in given for a, b in words)
    counts: Runs = Counter()
    for text, words in given[::step]:
        groups: list[list[str]] = []
        last = -1
        for start, end in words:
            word = text[start:end]
            if groups and (start == last if touching else together(groups[-1][-1], word)):
                groups[-1].append(word)
            else:
                groups.append([word])
            last = end
        counts.update(("".join(group), tuple(accumulate(map(len, group)))[:-1]) for group in groups)
    return Counter({key: n for key, n in counts.items() if not any(map(str.isspace, key[0]))})


def _together(words: Iterable[str]) -> Any:
    """A function: whether text writes two words without a blank between. A hyphen is taken as one that was cut off only in a
    file that has none inside its words; elsewhere it is a dash, with blanks on either side.

    >>> together = _together(["York", ",", "do", "n't", "Bre-X", "-"])
    >>> together("York", ","), together("do", "n't"), together("York", "-"), together("New", "York")
    (True, True, False, False)
    """
    alone, inside = Counter[str](), Counter[str]()
    for word, n in Counter(words).items():
        if len(word) == 1:
            alone[word] += n
        elif not word.isalnum():
            between = [
                c for a, c, b in zip(word, word[1:], word[2:]) if a.isalnum() and b.isalnum() and not c.isalnum()
            ]
            inside.update(dict.fromkeys(between, n))
    joiners = {c for c in alone if not c.isalnum() and inside[c] < RARE * alone[c]}

    def together(a: str, b: str) -> bool:
        if any(map(str.isalnum, a)) and any(map(str.isalnum, b)):
            return b.startswith(("'", "’")) or b.lower().replace("’", "'") == "n't"
        if a.startswith(_QUOTES) or b.startswith(_QUOTES):
            return False
        return b.startswith(_CLOSING) or a.startswith(_OPENING) or a in joiners or b in joiners

    return together


def _votes(runs: Runs, kind: Any) -> Counter[bool]:
    """How often a word ends, and does not, at places of a kind."""
    votes = Counter[bool]()
    for (run, ends), n in runs.items():
        for at in range(1, len(run)):
            if kind(run, at):
                votes[at in ends] += n
    return votes


# --------------------------------------------------------------------------------------------------- contexts


def _context(run: str, at: int, level: int) -> str:
    before, after = WINDOWS[level]
    left, right = run[max(0, at - before) : at], run[at : at + after]
    if level < SHAPES:
        left, right = "".join(map(_shape, left)), "".join(map(_shape, right))
    return f"{left} {right}"


@lru_cache(10_000)
def _shape(character: str) -> str:
    """A class for letters, digits, Chinese characters and symbols; punctuation stands for itself."""
    if has_chinese(character):
        return "中"
    kind = category(character)
    if kind[0] == "L":
        return "A" if kind == "Lu" else "a"
    return "0" if kind[0] == "N" else "☺" if kind == "So" else character


def _alike(run: str, at: int) -> bool:
    """Whether a place is between two letters or two digits."""
    a, b = _shape(run[at - 1]), _shape(run[at])
    return (a in "Aa" and b in "Aa") or a == b == "0"


def _both_chinese(run: str, at: int) -> bool:
    return _shape(run[at - 1]) == "中" == _shape(run[at])


def _between_letters(run: str, at: int) -> bool:
    """Whether the punctuation at a place has a letter or digit on either side, none of them Chinese."""
    start, end = at, at
    while start > max(0, at - NEAR) and not run[start - 1].isalnum():
        start -= 1
    while end < min(len(run), at + NEAR) and not run[end].isalnum():
        end += 1
    if start == 0 or end == len(run) or "中" in (_shape(run[start - 1]), _shape(run[end])):
        return False
    return run[start - 1].isalnum() and run[end].isalnum() and all(map(_is_punctuation, run[start:end]))


def _after_cut(run: str, at: int, ends: Sequence[int]) -> bool:
    """Whether punctuation ends here that was cut off on its left: then a new word begins, where nothing else is known."""
    return not run[at - 1].isalnum() and at - 1 in ends


def _is_punctuation(character: str) -> bool:
    return category(character)[0] == "P" or (character.isascii() and not character.isalnum())
