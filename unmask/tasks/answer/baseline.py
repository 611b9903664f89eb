"""Baseline of `answer`: the sentence of the passage that is most similar to the question (TF-IDF)."""

from copy import copy

from unmask.labels.records import Record
from unmask.tasks.answer.task import Answer
from unmask.tasks.task import Prediction, Records
from unmask.tasks.tfidf import fit_tfidf
from unmask.text.segmentation import sentences

MAX_THRESHOLD_RECORDS = 2000  # training records on which the no-answer threshold is fitted


def baseline(task: Answer, train: Records, dev: Records, eval_records: Records) -> dict[str, dict[str, float]]:
    """Predict the nearest sentence. If questions may be unanswerable, a similarity below a fitted threshold is "no answer"."""
    tfidf = fit_tfidf(text for r in train for text in (r["question"], r["context"]))

    def nearest_sentence(record: Record) -> Prediction:
        candidates = sentences(record["context"])
        similarity = (tfidf.transform(candidates) @ tfidf.transform([record["question"]]).T).toarray()[:, 0]
        return {"answer": candidates[int(similarity.argmax())], "score": float(similarity.max())}

    scorer = copy(task)  # with its own threshold
    scorer.task_state = dict(task.task_state)
    if task.task_state["threshold"] is not None:
        sample = train[:MAX_THRESHOLD_RECORDS]
        scorer.task_state["threshold"] = 0.0
        scorer.task_state |= scorer.fit_null_threshold([nearest_sentence(r) for r in sample], sample)
    return {"nearest sentence": scorer.score([nearest_sentence(r) for r in eval_records], eval_records)}
