"""Vectors against each other: the losses that bring texts together, and how well they find each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.numeric import l2_normalize
from unmask.tasks.metrics import spearman

if TYPE_CHECKING:
    from torch import Tensor

MAX_UNIFORMITY_VECTORS = 1024  # vectors whose spread is looked at
MAX_COSINES = 2**22  # cosines computed at a time: at most 32 MB, and as much again for what is left out of them
MAX_SHOWN = 20


def mean_by_text(vectors: Tensor, role: Tensor) -> Tensor:
    """A vector per text, the mean of its windows'; role ≥ 0 is that of a first window."""
    import torch

    first = role >= 0
    text = first.cumsum(0) - 1
    sums = vectors.new_zeros(int(first.sum()), vectors.shape[1]).index_add_(0, text, vectors)
    return sums / torch.bincount(text)[:, None]


def in_batch_loss(
    unit: Tensor, role: Tensor, key: Tensor, record: Tensor, temperature: float, both: bool = False
) -> Tensor:
    """Sum over the anchors of the cross entropy of their positive among all positives and negatives.

    unit (N, D) of length 1; role (N,): 0 anchor, 1 positive, 2 negative; key (N,): equal for equal texts; record (N,).
    """
    import torch
    import torch.nn.functional as F

    anchors, others = role == 0, role > 0
    logits = unit[anchors] @ unit[others].T / temperature  # (A, C)
    positives = role[others] == 1  # in the order of the anchors
    right = (record[anchors][:, None] == record[others]) & positives  # one per row
    target = right.int().argmax(1)
    asked = key[anchors]
    same = key[others][None] == key[others][target][:, None]  # the same text as the right one …
    same |= key[others][None] == asked[:, None]  # … or as the anchor itself …
    same |= (asked[record[others]] == asked[:, None]) & positives  # … or right for an equal anchor
    logits = logits.masked_fill(same & ~right, -torch.inf)
    loss = F.cross_entropy(logits, target, reduction="sum")
    if not both:
        return loss
    back = logits[:, positives].T
    return (loss + F.cross_entropy(back, torch.arange(len(back), device=back.device), reduction="sum")) / 2


def cosent_loss(a: Tensor, b: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """CoSENT of a batch times its pairs: a sum, as losses here are.

    >>> import torch
    >>> v = torch.eye(2)
    >>> round(float(cosent_loss(v, v.flip(0) , torch.tensor([1.0, 0.0]), 1.0)), 4)  # equal cosines: 2 · log(1 + exp(0))
    1.3863
    """
    import torch

    cosine = (a * b).sum(-1) / temperature
    worse = cosine[None, :] - cosine[:, None]  # (i, j): how far j is above i, and should not be where i has more
    worse = worse[scores[:, None] > scores[None, :]]
    return len(a) * torch.logsumexp(torch.cat([worse, worse.new_zeros(1)]), 0)


def mean_by_record(values: np.ndarray, record: np.ndarray, count: int) -> np.ndarray:
    """(rows, D) → (records, D): the mean of a text's windows."""
    out = np.zeros((count, values.shape[1] if values.ndim > 1 else 1), values.dtype)
    np.add.at(out, record, values)
    return out / np.maximum(1, np.bincount(record, minlength=count))[:, None].astype(out.dtype)


def retrieval_ranks(a: Any, b: Any, asked: Sequence[str], texts: Sequence[str]) -> list[int]:
    """The place (from 1) of each b among all, by its cosine with its a; one that is as near as another stands behind it.

    Left out: equal texts, the anchor's own text, and what is right for an equal anchor.

    >>> e = np.eye(3)
    >>> retrieval_ranks(e, e[[0, 2, 1]], ["a", "b", "c"], ["x", "y", "z"])
    [1, 3, 3]
    """
    names: dict[str, int] = {}
    anchor = np.array([names.setdefault(t, len(names)) for t in asked])
    text = np.array([names.setdefault(t, len(names)) for t in texts])
    out: list[int] = []
    rows = max(1, MAX_COSINES // max(1, len(texts)))
    for start in range(0, len(asked), rows):
        part = slice(start, start + rows)
        cosine = a[part] @ b.T
        cosine = cosine if isinstance(cosine, np.ndarray) else cosine.toarray()  # of counted words, mostly zeros
        own = cosine[np.arange(len(cosine)), np.arange(start, start + len(cosine))]
        same = (text[part][:, None] == text[None]) | (anchor[part][:, None] == text[None])
        same |= anchor[part][:, None] == anchor[None]
        out += (1 + ((cosine >= own[:, None]) & ~same).sum(1)).tolist()
    return out


def compare_pairs(
    a: np.ndarray, b: np.ndarray, asked: Sequence[str], texts: Sequence[str], sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Of each pair of vectors the cosine and the place, of the whole vectors and of their first so many numbers."""
    out: list[dict[str, Any]] = [{} for _ in a]
    for size in (a.shape[1], *sizes):
        x, y = l2_normalize(a[:, :size]), l2_normalize(b[:, :size])
        end = "" if size == a.shape[1] else f"@{size}"
        for prediction, cosine, place in zip(out, (x * y).sum(1).tolist(), retrieval_ranks(x, y, asked, texts)):
            prediction |= {f"similarity{end}": cosine, f"place{end}": place}
    return out


def uniformity(vectors: np.ndarray) -> float:
    """How evenly vectors are spread over the sphere (2005.10242), its sign turned: higher is better, 0 = all are one.

    >>> uniformity(np.ones((3, 2))), round(uniformity(np.eye(2)), 3)
    (0.0, 4.0)
    """
    gram = l2_normalize(vectors) @ l2_normalize(vectors).T
    apart = 2 - 2 * gram[~np.eye(len(gram), dtype=bool)]  # squared distances
    return abs(float(-np.log(np.mean(np.exp(-2 * np.round(apart, 12)))))) if len(apart) else 0.0


def score(
    predictions: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]], sizes: Sequence[int]
) -> dict[str, float]:
    """Spearman of scored pairs; recall and MRR of others; how evenly the vectors of plain text are spread."""
    if not predictions:
        return {}
    if all("vector" in prediction for prediction in predictions):
        return {
            "uniformity": uniformity(
                np.array([prediction["vector"] for prediction in predictions[:MAX_UNIFORMITY_VECTORS]], np.float64)
            )
        }
    if not all("similarity" in prediction for prediction in predictions):
        return {}
    out: dict[str, float] = {}
    for end in ("", *(f"@{size}" for size in sizes)):
        if all("score" in r for r in records):
            found = spearman([r["score"] for r in records], [a[f"similarity{end}"] for a in predictions])
            out[f"spearman{end}"] = found or 0.0  # a model that finds all pairs alike has learnt nothing
        else:
            place = np.array([a[f"place{end}"] for a in predictions])
            out[f"mrr{end}"] = float((1 / place).mean())
            if not end:
                out |= {f"recall@{k}": float((place <= k).mean()) for k in (1, 5, 10)}
    return out


def details(predictions: Sequence[dict[str, Any]], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """For a report: what is furthest from where it should be."""
    if not predictions or not all("similarity" in prediction for prediction in predictions):
        return {}
    rows = [
        {"location": r.get("location", ""), "text": f"{r['text']} | {r['positive']}", "score": a["similarity"]}
        for a, r in zip(predictions, records)
    ]
    for row, a, r in zip(rows, predictions, records):
        expected, predicted = (f"{r['score']:g}", f"{a['similarity']:.3f}") if "score" in r else ("1", str(a["place"]))
        row |= {"expected": expected, "predicted": predicted}
    if all("score" in r for r in records):
        truth, cosine = np.array([r["score"] for r in records]), np.array([a["similarity"] for a in predictions])
        wide = max(float(np.ptp(truth)), 1e-12), max(float(np.ptp(cosine)), 1e-12)
        far = np.abs((truth - truth.min()) / wide[0] - (cosine - cosine.min()) / wide[1])
        scatter = {"scatter": {"truth": truth.tolist(), "predicted": cosine.tolist()}}
        return scatter | {"errors": [rows[n] for n in np.argsort(-far, kind="stable")[:MAX_SHOWN]]}
    place = np.array([a["place"] for a in predictions])
    wrong = [rows[n] for n in np.argsort(-place, kind="stable") if place[n] > 1]
    return {"errors": wrong[:MAX_SHOWN], "examples": [row for row, p in zip(rows, place) if p == 1][:10]}
