"""How good an order of passages is, as trec_eval counts it.

A passage is relevant when its relevance is above 0; nDCG's gains are the relevances themselves. What is not judged counts as not
relevant; relevant passages that were not found count as missed. A query without a relevant passage scores 0. Equal scores are
broken as trec_eval does it: the passage whose id is later in the alphabet comes first, which has nothing to do with its relevance.
"""

from collections.abc import Mapping, Sequence

import numpy as np

CUTOFF = 10
RECALL = (1, 5, 10, 100)


def rank_order(scores: Sequence[float] | np.ndarray, ids: Sequence[str] | None = None) -> np.ndarray:
    """Places of the scores, best first; equal ones by id from the end of the alphabet (without ids: the later first).

    >>> order([0.5, 0.9, 0.5], ["a", "b", "c"]).tolist()
    [1, 2, 0]
    """
    scores = np.asarray(scores, np.float64)
    ties = np.arange(len(scores)) if ids is None else np.argsort(np.argsort(np.array(ids, dtype=object)))
    return np.lexsort((-ties, -scores))


def ranking_metrics(found: Sequence[float] | np.ndarray, judged: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Scores of one query: `found` are the relevances in the order found, `judged` all that are known.

    >>> {k: round(v, 3) for k, v in ranked([0, 1, 0], [1, 0, 0, 1]).items()}
    {'ndcg@10': 0.387, 'mrr': 0.5, 'map': 0.25, 'recall@1': 0.0, 'recall@5': 0.5, 'recall@10': 0.5, 'recall@100': 0.5}
    """
    gains = np.maximum(np.asarray(found, np.float64), 0.0)
    ideal = -np.sort(-np.maximum(np.asarray(judged, np.float64), 0.0))
    hits, relevant = gains > 0, int((ideal > 0).sum())
    best = _dcg(ideal[:CUTOFF])
    places = np.flatnonzero(hits) + 1  # 1-based ranks of what is relevant
    out = {
        "ndcg@10": _dcg(gains[:CUTOFF]) / best if best else 0.0,
        "mrr": 1.0 / places[0] if len(places) else 0.0,
        "map": float((np.arange(1, len(places) + 1) / places).sum()) / relevant if relevant else 0.0,
    }
    return {k: float(v) for k, v in out.items()} | {
        f"recall@{k}": float(hits[:k].sum()) / relevant if relevant else 0.0 for k in RECALL
    }


def _dcg(gains: np.ndarray) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def evaluate_run(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Query → its scores, for every query that has judgements; one that the run lacks found nothing."""
    out = {}
    for query, judged in qrels.items():
        ids = list(run.get(query, {}))
        scores = [run[query][i] for i in ids]
        found = [judged.get(ids[n], 0.0) for n in rank_order(scores, ids)]
        out[query] = ranking_metrics(found, list(judged.values()))
    return out


def mean_metrics(per_query: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """
    >>> mean([{"mrr": 1.0}, {"mrr": 0.5}])
    {'mrr': 0.75}
    """
    return {name: float(np.mean([q[name] for q in per_query])) for name in (per_query[0] if per_query else ())}
