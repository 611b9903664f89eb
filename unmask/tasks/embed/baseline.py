"""TF-IDF: vectors of words."""

import numpy as np

from unmask.tasks import contrastive
from unmask.tasks.task import Records, Task
from unmask.tasks.tfidf import fit_tfidf


def baseline(task: Task, train: Records, dev: Records, judged: Records) -> dict[str, dict[str, float]]:
    """Nothing where there are no pairs: how evenly word vectors are spread says nothing."""
    if not all("positive" in r for r in judged):
        return {}
    tfidf = fit_tfidf(text for r in train for text in (r["text"], r.get("positive", "")))
    asked, texts = [r["text"] for r in judged], [r["positive"] for r in judged]
    a, b = tfidf.transform(asked), tfidf.transform(texts)
    near = np.asarray(a.multiply(b).sum(1)).ravel().tolist()
    places = contrastive.retrieval_ranks(a, b, asked, texts)
    predictions = [{"similarity": cosine, "place": place} for cosine, place in zip(near, places)]
    return {"TF-IDF": contrastive.score(predictions, judged, ())}
