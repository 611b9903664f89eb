"""BM25 ranking (Robertson's, as in Lucene): score texts by the words that they share with a query."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from unmask.text.segmentation import detect_language, word_ids

K1, B = 1.5, 0.75


def extract_terms(text: str) -> list[str]:
    """Return the lower-cased words without punctuation; Chinese is split by the segmenter.

    >>> extract_terms("Don't sort 3 Lists!")
    ['don', 't', 'sort', '3', 'lists']
    """
    text = text.lower()
    numbers = word_ids(text, detect_language(text))
    starts = np.flatnonzero(np.diff(numbers, prepend=-2))
    parts = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)])]
    return [part for part in parts if any(map(str.isalnum, part))]


class BM25:
    """An index of texts; each text is a list of words.

    >>> index = BM25([["a", "list"], ["a", "class"]])
    >>> index.scores(["list"]).round(3).tolist(), index.best(["list"], 5)[0][0]
    ([0.277, 0.0], 0)
    """

    def __init__(self, texts: Iterable[list[str]]):
        occurrences: dict[str, list[tuple[int, int]]] = {}  # word → (text, count)
        lengths = []
        for n, text in enumerate(texts):
            lengths.append(len(text))
            for word, count in Counter(text).items():
                occurrences.setdefault(word, []).append((n, count))
        self.size = len(lengths)
        norm = K1 * (1 - B + B * np.array(lengths) / max(1.0, sum(lengths) / max(1, len(lengths))))
        self.postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # word → texts, scores
        for word, pairs in occurrences.items():
            indices, counts = np.array(pairs).T
            idf = np.log(1 + (self.size - len(indices) + 0.5) / (len(indices) + 0.5))
            self.postings[word] = indices, idf * counts / (counts + norm[indices])

    def scores(self, query: Iterable[str]) -> np.ndarray:
        """Return (texts,): 0 if the text shares no word with the query."""
        out = np.zeros(self.size)
        for word in query:
            if word in self.postings:
                indices, scores = self.postings[word]
                out[indices] += scores
        return out

    def best(self, query: Iterable[str], count: int) -> list[tuple[int, float]]:
        """Return (text, score) of at most `count` texts that share a word with the query, best first."""
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[:count]
        return [(int(n), float(scores[n])) for n in order if scores[n] > 0]
