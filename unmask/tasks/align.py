"""Alignment of the words of a text with its tokens, by character offsets.

The text is tokenized as a whole, so that its ids are the same as everywhere else. Only if a token covers parts of two words
("cannot" of "can" and "not", two Chinese characters in one token), these words are tokenized one by one.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from unmask.text.tokenizer import Tokenizer

Span = Sequence[int]  # [start, end) in characters


def align(tokenizer: Tokenizer, text: str, words: Sequence[Span]) -> tuple[list[int], np.ndarray]:
    """Return (ids, first): the tokens of the text, and for each word the index of its first token, or -1 if it has none.

    >>> from unmask.recipe import TokenizerRecipe
    >>> t = Tokenizer.train(["a cab, a cab"], TokenizerRecipe(type="char"))
    >>> ids, first = align(t, "a cab", [[0, 1], [2, 5]])
    >>> [t.token(i) for i in ids], first.tolist()
    (['a', ' ', 'c', 'a', 'b'], [0, 2])
    """
    (encoding,) = tokenizer.encode_batch([text])
    word_at = [-1] * len(text)
    for n, (start, end) in enumerate(words):
        word_at[start:end] = [n] * (end - start)
    covered = [sorted({*word_at[a:b]} - {-1}) for a, b in encoding.offsets]
    merged = sorted({w for overlap in covered if len(overlap) > 1 for w in overlap})  # words that share a token
    separate = dict(zip(merged, _tokenize_words(tokenizer, text, [words[w] for w in merged])))
    ids: list[int] = []
    first = np.full(len(words), -1, np.int64)
    for id, overlap in zip(encoding.ids, covered):
        if any(w in separate for w in overlap):
            for w in overlap:
                for word_id, is_word in separate.get(w, ()):
                    if is_word and first[w] < 0:
                        first[w] = len(ids)
                    ids.append(word_id)
                separate[w] = []  # add its tokens once, even if several tokens of the text overlap it
            continue
        for w in overlap:
            if first[w] < 0:
                first[w] = len(ids)
        ids.append(id)
    return ids, first


def _tokenize_words(tokenizer: Tokenizer, text: str, words: Sequence[Span]) -> list[list[tuple[int, bool]]]:
    """Return the tokens of each word, each with False if it is only the space before the word."""
    spaces = [" " if a and text[a - 1].isspace() else "" for a, _ in words]
    texts = [space + text[a:b] for space, (a, b) in zip(spaces, words)]
    out = []
    for word, space, encoding in zip(texts, spaces, tokenizer.encode_batch(texts)):
        tokens = []
        for id, (a, b) in zip(encoding.ids, encoding.offsets):
            is_space = tokenizer.token(id) == "▁" or not word[a:b].strip()
            if not is_space or space:  # drop a space that the tokenizer added
                tokens.append((id, not is_space))
        out.append(tokens)
    return out


def mark(
    ids: Sequence[int], first: np.ndarray, words: Sequence[Span], span: Span, marker: int
) -> tuple[list[int], np.ndarray]:
    """Insert a marker token before and after the words that overlap the characters `span`.

    >>> ids, first = mark([5, 6, 7], np.array([0, 1, 2]), [[0, 3], [4, 8], [9, 13]], [4, 8], 1)
    >>> ids, first.tolist()
    ([5, 1, 6, 1, 7], [0, 2, 4])
    """
    inside = [w for w, (a, b) in enumerate(words) if a < span[1] and span[0] < b and first[w] >= 0]
    if not inside:
        return list(ids), first
    begin = int(first[inside[0]])
    later = first[first > first[inside[-1]]]
    end = int(later.min()) if len(later) else len(ids)
    return [*ids[:begin], marker, *ids[begin:end], marker, *ids[end:]], first + (first >= begin) + (first >= end)


def in_words(spans: Iterable[tuple[int, int, str]], words: Sequence[Span]) -> list[tuple[int, int, str]]:
    """Convert character spans to word spans: all words that a span overlaps. A word belongs to the first span only.

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
