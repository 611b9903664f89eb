"""Ranking metrics with the definitions of trec_eval.

A passage is relevant if its relevance is above 0; the gains of nDCG are the relevances themselves. A passage without a judgment is
not relevant, and a relevant passage that was not retrieved counts as a miss. A query without a relevant passage scores 0. As in
trec_eval, ties are broken by passage id in descending alphabetical order, which is independent of relevance.
"""

from collections.abc import Mapping, Sequence

import numpy as np

NDCG_CUTOFF = 10
RECALL_CUTOFFS = (1, 5, 10, 100)


def rank_order(scores: Sequence[float] | np.ndarray, ids: Sequence[str] | None = None) -> np.ndarray:
    """Return the indices of the scores, best first. Ties are broken by id in descending order (without ids: the later one first).

    >>> rank_order([0.5, 0.9, 0.5], ["a", "b", "c"]).tolist()
    [1, 2, 0]
    """
    scores = np.asarray(scores, np.float64)
    ties = np.arange(len(scores)) if ids is None else np.argsort(np.argsort(np.array(ids, dtype=object)))
    return np.lexsort((-ties, -scores))


def ranking_metrics(ranked: Sequence[float] | np.ndarray, judged: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Return the metrics of one query. `ranked`: relevances in the order of the ranking; `judged`: all known relevances.

    >>> {k: round(v, 3) for k, v in ranking_metrics([0, 1, 0], [1, 0, 0, 1]).items()}
    {'ndcg@10': 0.387, 'mrr': 0.5, 'map': 0.25, 'recall@1': 0.0, 'recall@5': 0.5, 'recall@10': 0.5, 'recall@100': 0.5}
    """
    gains = np.maximum(np.asarray(ranked, np.float64), 0.0)
    ideal = -np.sort(-np.maximum(np.asarray(judged, np.float64), 0.0))
    hits, num_relevant = gains > 0, int((ideal > 0).sum())
    ideal_dcg = _dcg(ideal[:NDCG_CUTOFF])
    ranks = np.flatnonzero(hits) + 1  # ranks of the relevant passages, from 1
    out = {
        "ndcg@10": _dcg(gains[:NDCG_CUTOFF]) / ideal_dcg if ideal_dcg else 0.0,
        "mrr": 1.0 / ranks[0] if len(ranks) else 0.0,
        "map": float((np.arange(1, len(ranks) + 1) / ranks).sum()) / num_relevant if num_relevant else 0.0,
    }
    return {k: float(v) for k, v in out.items()} | {
        f"recall@{k}": float(hits[:k].sum()) / num_relevant if num_relevant else 0.0 for k in RECALL_CUTOFFS
    }


def _dcg(gains: np.ndarray) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def evaluate_run(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Return the metrics of every query that has judgments. A query that is missing in the run has an empty ranking."""
    out = {}
    for query, judged in qrels.items():
        ids = list(run.get(query, {}))
        scores = [run[query][i] for i in ids]
        ranked = [judged.get(ids[n], 0.0) for n in rank_order(scores, ids)]
        out[query] = ranking_metrics(ranked, list(judged.values()))
    return out


def mean_metrics(per_query: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """
    >>> mean_metrics([{"mrr": 1.0}, {"mrr": 0.5}])
    {'mrr': 0.75}
    """
    return {name: float(np.mean([q[name] for q in per_query])) for name in (per_query[0] if per_query else ())}
