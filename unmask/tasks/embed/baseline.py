"""Baseline of `embed`: cosines of TF-IDF vectors."""

import numpy as np

from unmask.tasks import contrastive
from unmask.tasks.task import Records, Task
from unmask.tasks.tfidf import fit_tfidf


def baseline(task: Task, train: Records, dev: Records, test: Records) -> dict[str, dict[str, float]]:
    """Return {} for records without pairs, because the uniformity of TF-IDF vectors is not informative."""
    if not all("positive" in r for r in test):
        return {}
    tfidf = fit_tfidf(text for r in train for text in (r["text"], r.get("positive", "")))
    anchors, positives = [r["text"] for r in test], [r["positive"] for r in test]
    a, b = tfidf.transform(anchors), tfidf.transform(positives)
    cosines = np.asarray(a.multiply(b).sum(1)).ravel().tolist()
    ranks = contrastive.retrieval_ranks(a, b, anchors, positives)
    predictions = [{"similarity": cosine, "place": rank} for cosine, rank in zip(cosines, ranks)]
    return {"TF-IDF": contrastive.score(predictions, test, ())}
