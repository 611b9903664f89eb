"""Contrastive losses of sentence vectors, and their retrieval and similarity metrics (see embed/task.py for the papers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.numeric import l2_normalize
from unmask.tasks.metrics import spearman

if TYPE_CHECKING:
    from torch import Tensor

MAX_UNIFORMITY_VECTORS = 1024  # uniformity compares all pairs of them
MAX_COSINES = 2**22  # cosines computed at a time: at most 32 MB, plus their exclusion mask
MAX_SHOWN = 20  # rows in a report


def mean_by_text(vectors: Tensor, role: Tensor) -> Tensor:
    """Return the mean vector of each text's windows. The first window of a text has its role (≥ 0), the others have -1."""
    import torch

    first = role >= 0
    text = first.cumsum(0) - 1
    sums = vectors.new_zeros(int(first.sum()), vectors.shape[1]).index_add_(0, text, vectors)
    return sums / torch.bincount(text)[:, None]


def in_batch_loss(
    unit: Tensor, role: Tensor, key: Tensor, record: Tensor, temperature: float, both: bool = False
) -> Tensor:
    """Return the cross-entropy of each anchor's positive among all positives and negatives, summed over the anchors.

    unit: (N, D), of length 1. role: (N,) 0 anchor, 1 positive, 2 negative. key: (N,) equal for equal texts. record: (N,) index.
    both: add the loss of each positive with respect to the anchors, and halve the sum.
    """
    import torch
    import torch.nn.functional as F

    anchors, others = role == 0, role > 0
    logits = unit[anchors] @ unit[others].T / temperature  # (A, C)
    positives = role[others] == 1  # in the order of the anchors
    is_target = (record[anchors][:, None] == record[others]) & positives  # one per row
    target = is_target.int().argmax(1)
    anchor_key = key[anchors]
    # Not negatives: texts equal to the positive, texts equal to the anchor, and positives of an equal anchor.
    excluded = key[others][None] == key[others][target][:, None]
    excluded |= key[others][None] == anchor_key[:, None]
    excluded |= (anchor_key[record[others]] == anchor_key[:, None]) & positives
    logits = logits.masked_fill(excluded & ~is_target, -torch.inf)
    loss = F.cross_entropy(logits, target, reduction="sum")
    if not both:
        return loss
    reverse = logits[:, positives].T
    return (loss + F.cross_entropy(reverse, torch.arange(len(reverse), device=reverse.device), reduction="sum")) / 2


def cosent_loss(a: Tensor, b: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Return the CoSENT loss of a batch times its number of pairs, because all losses here are sums.

    >>> import torch
    >>> v = torch.eye(2)
    >>> round(float(cosent_loss(v, v.flip(0) , torch.tensor([1.0, 0.0]), 1.0)), 4)  # equal cosines: 2 · log(1 + exp(0))
    1.3863
    """
    import torch

    cosine = (a * b).sum(-1) / temperature
    difference = cosine[None, :] - cosine[:, None]  # (i, j): should be negative if pair i has the higher score
    difference = difference[scores[:, None] > scores[None, :]]
    return len(a) * torch.logsumexp(torch.cat([difference, difference.new_zeros(1)]), 0)


def mean_by_record(values: np.ndarray, record: np.ndarray, count: int) -> np.ndarray:
    """Average the windows of each record: (rows, D) → (records, D)."""
    out = np.zeros((count, values.shape[1] if values.ndim > 1 else 1), values.dtype)
    np.add.at(out, record, values)
    return out / np.maximum(1, np.bincount(record, minlength=count))[:, None].astype(out.dtype)


def retrieval_ranks(a: Any, b: Any, anchors: Sequence[str], positives: Sequence[str]) -> list[int]:
    """Return the rank (from 1) of each b among all b by the cosine with its a. Ties get the worse rank.

    Texts equal to the positive or to the anchor, and positives of an equal anchor, are not ranked.

    >>> e = np.eye(3)
    >>> retrieval_ranks(e, e[[0, 2, 1]], ["a", "b", "c"], ["x", "y", "z"])
    [1, 3, 3]
    """
    keys: dict[str, int] = {}
    anchor = np.array([keys.setdefault(text, len(keys)) for text in anchors])
    positive = np.array([keys.setdefault(text, len(keys)) for text in positives])
    out: list[int] = []
    rows = max(1, MAX_COSINES // max(1, len(positives)))
    for start in range(0, len(anchors), rows):
        part = slice(start, start + rows)
        cosine = a[part] @ b.T
        cosine = cosine if isinstance(cosine, np.ndarray) else cosine.toarray()  # TF-IDF vectors are sparse
        target = cosine[np.arange(len(cosine)), np.arange(start, start + len(cosine))]
        excluded = (positive[part][:, None] == positive[None]) | (anchor[part][:, None] == positive[None])
        excluded |= anchor[part][:, None] == anchor[None]
        out += (1 + ((cosine >= target[:, None]) & ~excluded).sum(1)).tolist()
    return out


def compare_pairs(
    a: np.ndarray, b: np.ndarray, anchors: Sequence[str], positives: Sequence[str], sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the cosine and the rank ("place") of each pair of vectors, for the full vectors and for each of the Matryoshka `sizes`."""
    out: list[dict[str, Any]] = [{} for _ in a]
    for size in (a.shape[1], *sizes):
        x, y = l2_normalize(a[:, :size]), l2_normalize(b[:, :size])
        suffix = "" if size == a.shape[1] else f"@{size}"
        for prediction, cosine, rank in zip(out, (x * y).sum(1).tolist(), retrieval_ranks(x, y, anchors, positives)):
            prediction |= {f"similarity{suffix}": cosine, f"place{suffix}": rank}
    return out


def uniformity(vectors: np.ndarray) -> float:
    """Return the negated uniformity loss (2005.10242): how evenly vectors cover the sphere. Higher is better; 0 = all are equal.

    >>> uniformity(np.ones((3, 2))), round(uniformity(np.eye(2)), 3)
    (0.0, 4.0)
    """
    gram = l2_normalize(vectors) @ l2_normalize(vectors).T
    distances = 2 - 2 * gram[~np.eye(len(gram), dtype=bool)]  # squared
    return abs(float(-np.log(np.mean(np.exp(-2 * np.round(distances, 12)))))) if len(distances) else 0.0


def score(
    predictions: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]], sizes: Sequence[int]
) -> dict[str, float]:
    """Return Spearman's correlation for scored pairs, recall and MRR for other pairs, and uniformity for single texts."""
    if not predictions:
        return {}
    if all("vector" in p for p in predictions):
        vectors = np.array([p["vector"] for p in predictions[:MAX_UNIFORMITY_VECTORS]], np.float64)
        return {"uniformity": uniformity(vectors)}
    if not all("similarity" in p for p in predictions):
        return {}
    out: dict[str, float] = {}
    for suffix in ("", *(f"@{size}" for size in sizes)):
        if all("score" in r for r in records):
            correlation = spearman([r["score"] for r in records], [p[f"similarity{suffix}"] for p in predictions])
            out[f"spearman{suffix}"] = correlation or 0.0  # undefined if all similarities are equal
        else:
            rank = np.array([p[f"place{suffix}"] for p in predictions])
            out[f"mrr{suffix}"] = float((1 / rank).mean())
            if not suffix:
                out |= {f"recall@{k}": float((rank <= k).mean()) for k in (1, 5, 10)}
    return out


def details(predictions: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the pairs with the largest errors, for a report."""
    if not predictions or not all("similarity" in p for p in predictions):
        return {}
    rows = []
    for p, r in zip(predictions, records):
        expected, predicted = (f"{r['score']:g}", f"{p['similarity']:.3f}") if "score" in r else ("1", str(p["place"]))
        row = {"location": r.get("location", ""), "text": f"{r['text']} | {r['positive']}", "score": p["similarity"]}
        rows.append(row | {"expected": expected, "predicted": predicted})
    if all("score" in r for r in records):
        y_true, cosine = np.array([r["score"] for r in records]), np.array([p["similarity"] for p in predictions])
        true_range, cosine_range = (max(float(np.ptp(x)), 1e-12) for x in (y_true, cosine))
        error = np.abs((y_true - y_true.min()) / true_range - (cosine - cosine.min()) / cosine_range)
        scatter = {"scatter": {"truth": y_true.tolist(), "predicted": cosine.tolist()}}
        return scatter | {"errors": [rows[n] for n in np.argsort(-error, kind="stable")[:MAX_SHOWN]]}
    rank = np.array([p["place"] for p in predictions])
    wrong = [rows[n] for n in np.argsort(-rank, kind="stable") if rank[n] > 1]
    return {"errors": wrong[:MAX_SHOWN], "examples": [row for row, n in zip(rows, rank) if n == 1][:10]}
