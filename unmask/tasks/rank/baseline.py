"""BM25 over the passages of all records."""

from unmask.tasks.task import Records, Task
from unmask.text.bm25 import BM25, extract_terms


def baseline(task: Task, train: Records, dev: Records, judged: Records) -> dict[str, dict[str, float]]:
    passages = dict.fromkeys(p for r in (*train, *judged) for p in r["passages"])
    number = {passage: n for n, passage in enumerate(passages)}
    index = BM25(map(extract_terms, passages))
    predictions = []
    for r in judged:
        scores = index.scores(extract_terms(r["query"]))
        predictions.append({"scores": scores[[number[p] for p in r["passages"]]].tolist()})
    return {"BM25": task.score(predictions, judged)}
