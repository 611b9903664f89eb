"""TF-IDF vectors, for the baselines of several tasks."""

from collections.abc import Iterable
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer

from unmask.text.bm25 import extract_terms


def fit_tfidf(texts: Iterable[str]) -> Any:
    """Return a vectorizer of lower-case words; Chinese text is segmented into words."""
    return TfidfVectorizer(analyzer=extract_terms, sublinear_tf=True).fit(dict.fromkeys(texts))
