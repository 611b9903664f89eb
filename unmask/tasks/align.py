"""Words of a text and the tokens that a tokenizer makes of it, by their places in the raw text.

The whole text is tokenized as it stands, so that ids are those that anyone gets for it. Where a token covers parts of two words
("cannot" of "can" and "not", two Chinese characters in one piece), exactly these words are tokenized one by one.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from unmask.text.tokenizer import Tokenizer

Span = Sequence[int]  # [start, end) in characters


def align(tokenizer: Tokenizer, text: str, words: Sequence[Span]) -> tuple[list[int], np.ndarray]:
    """(ids, first): the text's tokens, and for each word the number of its first one, -1 when it has none.

    >>> from unmask.recipe import TokenizerRecipe
    >>> t = Tokenizer.train(["a cab, a cab"], TokenizerRecipe(kind="char"))
    >>> ids, first = align(t, "a cab", [[0, 1], [2, 5]])
    >>> [t.token(i) for i in ids], first.tolist()
    (['a', ' ', 'c', 'a', 'b'], [0, 2])
    """
    (encoding,) = tokenizer.encode_batch([text])
    word_at = [-1] * len(text)
    for n, (start, end) in enumerate(words):
        word_at[start:end] = [n] * (end - start)
    covered = [sorted({*word_at[a:b]} - {-1}) for a, b in encoding.offsets]
    torn = sorted({w for several in covered if len(several) > 1 for w in several})
    alone = dict(zip(torn, _one_by_one(tokenizer, text, [words[w] for w in torn])))
    ids: list[int] = []
    first = np.full(len(words), -1, np.int64)
    for id, several in zip(encoding.ids, covered):
        if any(w in alone for w in several):
            for w in several:
                for piece, own in alone.get(w, ()):
                    if own and first[w] < 0:
                        first[w] = len(ids)
                    ids.append(piece)
                alone[w] = []  # said once, however many tokens touched it
            continue
        for w in several:
            if first[w] < 0:
                first[w] = len(ids)
        ids.append(id)
    return ids, first


def _one_by_one(tokenizer: Tokenizer, text: str, words: Sequence[Span]) -> list[list[tuple[int, bool]]]:
    """Of each word the tokens, and whether each is of the word or of the blank before it."""
    blanks = [" " if a and text[a - 1].isspace() else "" for a, _ in words]
    pieces = [blank + text[a:b] for blank, (a, b) in zip(blanks, words)]
    out = []
    for piece, blank, encoding in zip(pieces, blanks, tokenizer.encode_batch(pieces)):
        found = []
        for id, (a, b) in zip(encoding.ids, encoding.offsets):
            bare = tokenizer.token(id) == "▁" or not piece[a:b].strip()
            if not bare or blank:  # a blank that the text does not have is left out
                found.append((id, not bare))
        out.append(found)
    return out


def mark(
    ids: Sequence[int], first: np.ndarray, words: Sequence[Span], own: Span, marker: int
) -> tuple[list[int], np.ndarray]:
    """The tokens with a marker before and after the words that lie in the characters `own`.

    >>> ids, first = mark([5, 6, 7], np.array([0, 1, 2]), [[0, 3], [4, 8], [9, 13]], [4, 8], 1)
    >>> ids, first.tolist()
    ([5, 1, 6, 1, 7], [0, 2, 4])
    """
    inside = [w for w, (a, b) in enumerate(words) if a < own[1] and own[0] < b and first[w] >= 0]
    if not inside:
        return list(ids), first
    begin = int(first[inside[0]])
    later = first[first > first[inside[-1]]]
    end = int(later.min()) if len(later) else len(ids)
    return [*ids[:begin], marker, *ids[begin:end], marker, *ids[end:]], first + (first >= begin) + (first >= end)


def in_words(spans: Iterable[tuple[int, int, str]], words: Sequence[Span]) -> list[tuple[int, int, str]]:
    """Spans of characters → of words: those that a span shares a character with. A word is of one span, the first.

    >>> in_words([(4, 12, "loc")], [[0, 2], [4, 7], [8, 12], [12, 13]])
    [(1, 3, 'loc')]
    """
    out: list[tuple[int, int, str]] = []
    starts, ends = [a for a, _ in words], [b for _, b in words]
    for start, end, label in sorted(spans):
        first = max(int(np.searchsorted(ends, start, "right")), out[-1][1] if out else 0)
        last = int(np.searchsorted(starts, end, "left"))
        if first < last:
            out.append((first, last, label))
    return out
