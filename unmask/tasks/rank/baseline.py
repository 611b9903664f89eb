"""Baseline of `rank`: BM25 over the passages of all records."""

from unmask.tasks.task import Records, Task
from unmask.text.bm25 import BM25, extract_terms


def baseline(task: Task, train: Records, dev: Records, eval_records: Records) -> dict[str, dict[str, float]]:
    passages = dict.fromkeys(p for r in (*train, *eval_records) for p in r["passages"])
    index_of = {passage: n for n, passage in enumerate(passages)}
    bm25 = BM25(map(extract_terms, passages))
    predictions = []
    for r in eval_records:
        scores = bm25.scores(extract_terms(r["query"]))
        predictions.append({"scores": scores[[index_of[p] for p in r["passages"]]].tolist()})
    return {"BM25": task.score(predictions, eval_records)}
