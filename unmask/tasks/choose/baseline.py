"""TF-IDF: the choice that shares most with question and context. Most frequent place: always the first, or the second …, as most
often in the training records."""

from collections import Counter

import numpy as np

from unmask.tasks.task import Prediction, Records, Task
from unmask.tasks.tfidf import fit_tfidf


def baseline(task: Task, train: Records, dev: Records, judged: Records) -> dict[str, dict[str, float]]:
    tfidf = fit_tfidf(text for r in train for text in (r.get("context", ""), r["text"], *r["choices"]))
    near, places = [], []
    usual = Counter(r["label"] for r in train).most_common(1)[0][0]
    for r in judged:
        asked = tfidf.transform([f"{r.get('context', '')} {r['text']}"])
        near.append(_chosen((tfidf.transform(r["choices"]) @ asked.T).toarray()[:, 0]))
        places.append(_chosen(np.arange(len(r["choices"])) == min(usual, len(r["choices"]) - 1)))
    return {"TF-IDF": task.score(near, judged), "most frequent place": task.score(places, judged)}


def _chosen(scores: np.ndarray) -> Prediction:
    return {"choice": int(scores.argmax()), "scores": scores.astype(float).tolist()}
