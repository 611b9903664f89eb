"""BM25 (Robertson's, as Lucene computes it): how well a text answers a query, by the words they share."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from unmask.text.segmentation import detect_language, word_ids

K1, B = 1.5, 0.75


def extract_terms(text: str) -> list[str]:
    """Lower-case words, Chinese as the segmenter cuts it; punctuation is none.

    >>> extract_terms("Don't sort 3 Lists!")
    ['don', 't', 'sort', '3', 'lists']
    """
    text = text.lower()
    numbers = word_ids(text, detect_language(text))
    begins = np.flatnonzero(np.diff(numbers, prepend=-2))
    parts = [text[a:b] for a, b in zip(begins, [*begins[1:], len(text)])]
    return [part for part in parts if any(map(str.isalnum, part))]


class BM25:
    """An index of texts, given as their words.

    >>> index = BM25([["a", "list"], ["a", "class"]])
    >>> index.scores(["list"]).round(3).tolist(), index.best(["list"], 5)[0][0]
    ([0.277, 0.0], 0)
    """

    def __init__(self, texts: Iterable[list[str]]):
        found: dict[str, list[tuple[int, int]]] = {}  # word → (text, how often it is there)
        lengths = []
        for n, text in enumerate(texts):
            lengths.append(len(text))
            for word, count in Counter(text).items():
                found.setdefault(word, []).append((n, count))
        self.size = len(lengths)
        norm = K1 * (1 - B + B * np.array(lengths) / max(1.0, sum(lengths) / max(1, len(lengths))))
        self.postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # word → its texts, what it adds to their scores
        for word, places in found.items():
            at, counts = np.array(places).T
            rare = np.log(1 + (self.size - len(at) + 0.5) / (len(at) + 0.5))
            self.postings[word] = at, rare * counts / (counts + norm[at])

    def scores(self, query: Iterable[str]) -> np.ndarray:
        """(texts,): 0 where no word is shared."""
        out = np.zeros(self.size)
        for word in query:
            if word in self.postings:
                at, more = self.postings[word]
                out[at] += more
        return out

    def best(self, query: Iterable[str], count: int) -> list[tuple[int, float]]:
        """(text, score) of those that share a word with the query, best first, at most `count`."""
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[:count]
        return [(int(n), float(scores[n])) for n in order if scores[n] > 0]
