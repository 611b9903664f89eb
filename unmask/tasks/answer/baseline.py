"""Nearest sentence: the sentence of the passage that shares most with the question (TF-IDF)."""

from copy import copy

from unmask.labels.records import Record
from unmask.tasks.answer.task import Answer
from unmask.tasks.task import Prediction, Records
from unmask.tasks.tfidf import fit_tfidf
from unmask.text.segmentation import sentences

ENOUGH = 2000  # training records that tell how much a sentence has to share with its question


def baseline(task: Answer, train: Records, dev: Records, judged: Records) -> dict[str, dict[str, float]]:
    """A sentence that shares too little is "no answer", where there may be none: how little is learnt from training records."""
    tfidf = fit_tfidf(text for r in train for text in (r["question"], r["context"]))

    def nearest(record: Record) -> Prediction:
        parts = sentences(record["context"])
        near = (tfidf.transform(parts) @ tfidf.transform([record["question"]]).T).toarray()[:, 0]
        return {"answer": parts[int(near.argmax())], "score": float(near.max())}

    own, known = copy(task), train[:ENOUGH]
    own.task_state = task.task_state | {"threshold": None if task.task_state["threshold"] is None else 0.0}
    own.task_state |= own.fit_null_threshold(
        [nearest(r) for r in known] if own.task_state["threshold"] is not None else [], known
    )
    return {"nearest sentence": own.score([nearest(r) for r in judged], judged)}
