"""Words instead of labels (`unmask learn --words "positive: great excellent"`).

A text gets the label whose words it contains most of. A teacher is trained on these texts with the words removed: otherwise it
would learn nothing but the words (2305.14794). Self-training then continues as with labels.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.errors import UserError
from unmask.text.token_text import is_ideograph

MIN_TEXTS = 10  # that the words of a label must occur in
MIN_LABELS = 2
EXAMPLE = '--words "positive: great excellent" --words "negative: bad awful"'


@dataclass
class WordLabels:
    """Texts that words give a label."""

    rows: np.ndarray  # indices of the texts
    y: np.ndarray  # index of the label of each
    texts: list[str]  # without the words
    note: str


def parse_words(values: Sequence[str]) -> dict[str, list[str]]:
    """Return label → words. Commas separate phrases; without a comma, blanks separate words.

    >>> parse_words(["pos: great excellent", "neg: not good, awful", "pos: 很好、喜欢"])
    {'pos': ['great', 'excellent', '很好', '喜欢'], 'neg': ['not good', 'awful']}
    """
    words: dict[str, list[str]] = {}
    for value in values:
        label, colon, rest = value.replace("：", ":").partition(":")
        found = [word.strip() for word in (re.split("[,，、]", rest) if re.search("[,，、]", rest) else rest.split())]
        if not colon or not label.strip() or not any(found):
            raise UserError(f"--words {value!r} has no label or no words", expected=EXAMPLE)
        words.setdefault(label.strip(), []).extend(filter(None, found))
    if len(words) < MIN_LABELS:
        raise UserError(f"--words is given for one label only: {next(iter(words), '')}", expected=EXAMPLE)
    labels_of = Counter(word for each in words.values() for word in {word.lower() for word in each})
    repeated = [word for word, count in labels_of.items() if count > 1]
    if repeated:
        raise UserError(f"--words: {', '.join(sorted(repeated))} is given for more than one label")
    return words


def word_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches the words, ignoring case. Chinese and Japanese words match anywhere, others as whole words.

    >>> word_pattern(["great", "很好", "すごい"]).findall("Great, greater, 质量很好、映画はすごいと思う")
    ['Great', '很好', 'すごい']
    """
    parts = [
        ("" if _needs_no_space(word[0]) else r"(?<!\w)")
        + re.escape(word)
        + ("" if _needs_no_space(word[-1]) else r"(?!\w)")
        for word in sorted(words, key=len, reverse=True)  # of two words at the same place, the longer one counts
    ]
    return re.compile("|".join(parts), re.IGNORECASE)


def _needs_no_space(character: str) -> bool:
    """Whether words of this script are written without spaces: ideographs and kana."""
    return is_ideograph(character) or "\u3040" <= character <= "\u30ff"


def find_words(words: Mapping[str, Sequence[str]], texts: Sequence[str]) -> list[dict[str, set[str]]]:
    """Return the different words of each label that each text contains, in lower case.

    >>> find_words({"pos": ["good"], "neg": ["not good"]}, ["Good, good!", "not good"])
    [{'pos': {'good'}, 'neg': set()}, {'pos': set(), 'neg': {'not good'}}]
    """
    label_of = {word.lower(): label for label, each in words.items() for word in each}
    pattern, found = word_pattern(list(label_of)), []
    for text in texts:
        of_text: dict[str, set[str]] = {label: set() for label in words}
        for word in {match.lower() for match in pattern.findall(text)} & label_of.keys():
            of_text[label_of[word]].add(word)
        found.append(of_text)
    return found


def count_words(words: Mapping[str, Sequence[str]], texts: Sequence[str]) -> np.ndarray:
    """Return how many different words of each label each text contains (texts, labels)."""
    return _count(words, find_words(words, texts)).astype(float)


def _count(words: Mapping[str, Sequence[str]], found: Sequence[Mapping[str, set[str]]]) -> np.ndarray:
    return np.array([[len(each[label]) for label in words] for each in found], int).reshape(len(found), len(words))


def label_by_words(words: Mapping[str, Sequence[str]], texts: Sequence[str]) -> WordLabels:
    """Label the texts that contain more words of one label than of any other. Labels are numbered in the order of `words`."""
    found = find_words(words, texts)
    counts = _count(words, found)
    top_two = np.sort(counts, 1)[:, -2:]
    rows = np.flatnonzero(top_two[:, 1] > top_two[:, 0])
    y = counts[rows].argmax(1)
    per_label = np.bincount(y, minlength=len(words))
    for label, number in zip(words, per_label):
        if number < MIN_TEXTS:
            occurrences = {word: sum(word.lower() in each[label] for each in found) for word in words[label]}
            listed = ", ".join(f"{word} {count:,}" for word, count in occurrences.items())
            raise UserError(
                f"--words: only {number:,} of {len(texts):,} texts have more words of {label!r} than of the other labels",
                expected=f"at least {MIN_TEXTS} texts for each label; texts with each word: {listed}",
                hint="give more frequent words, or more text",
            )
    everything = word_pattern([word for each in words.values() for word in each])
    listed = ", ".join(f"{label} {number:,}" for label, number in zip(words, per_label))
    note = f"words label {len(rows):,} of {len(texts):,} texts: {listed}"
    return WordLabels(rows, y, [everything.sub(" ", texts[n]) for n in rows.tolist()], note)
