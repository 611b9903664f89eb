"""Baselines of `choose`: the choice with the highest TF-IDF similarity to context and question, and the most frequent label index."""

from collections import Counter

import numpy as np

from unmask.tasks.task import Prediction, Records, Task
from unmask.tasks.tfidf import fit_tfidf


def baseline(task: Task, train: Records, dev: Records, test: Records) -> dict[str, dict[str, float]]:
    tfidf = fit_tfidf(text for r in train for text in (r.get("context", ""), r["text"], *r["choices"]))
    by_similarity, by_index = [], []
    most_frequent = Counter(r["label"] for r in train).most_common(1)[0][0]
    for r in test:
        query = tfidf.transform([f"{r.get('context', '')} {r['text']}"])
        by_similarity.append(_prediction((tfidf.transform(r["choices"]) @ query.T).toarray()[:, 0]))
        by_index.append(_prediction(np.arange(len(r["choices"])) == min(most_frequent, len(r["choices"]) - 1)))
    return {"TF-IDF": task.score(by_similarity, test), "most frequent place": task.score(by_index, test)}


def _prediction(scores: np.ndarray) -> Prediction:
    return {"choice": int(scores.argmax()), "scores": scores.astype(float).tolist()}
