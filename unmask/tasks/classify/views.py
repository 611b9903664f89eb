"""Views of labeled and unlabeled texts, and the models that self-training fits on them (self_training.py)."""

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from unmask.numeric import log_softmax
from unmask.tasks.classify.linear import TfidfFeatures
from unmask.tasks.classify.words import WordLabels
from unmask.tasks.task import Records

DIMENSIONS = 300
MIN_DF = 3  # texts that contain an n-gram; 1 in a small corpus
SMALL_CORPUS = 1000  # texts
MAX_FEATURES = 100_000
LABELED_SHARE = 0.1  # the labeled texts together have at least this share of the weight of the unlabeled ones
SHARPNESS = 2.0  # of the soft labels: softmax of this times the standardized logits
MIN_SIMILARITY_QUANTILE = 0.02  # of the labeled texts' similarity to each other; unlabeled texts below it are left out
MIN_HIDDEN = (
    50  # unlabeled texts with hidden states, and at least as many as labeled ones; fewer hidden states are not used
)
TEACHER_C = {"lsa": 10.0, "hidden": 10.0}
WORDS_C, STUDENT_ALPHA, VIEW_ALPHA = 1.0, 3.0, 1.0


class Views:
    """Features of labeled and unlabeled texts. `hidden`: (N, D) of the labeled texts and of the first unlabeled ones."""

    def __init__(self, records: Records, unlabeled: Sequence[str], hidden: np.ndarray | None = None):
        everything = [*records, *({"text": text} for text in unlabeled)]
        min_df = 1 if len(everything) < SMALL_CORPUS else MIN_DF
        self.features = TfidfFeatures(min_df, MAX_FEATURES).fit(everything)
        tfidf = self.features.transform(everything)
        dimensions = max(1, min(DIMENSIONS, min(tfidf.shape) - 1))
        self.projection = randomized_svd(tfidf, dimensions, n_iter=2, random_state=0)[2].T
        vectors, count = normalize(tfidf @ self.projection), len(records)
        similar = np.ones(len(unlabeled), bool)
        if count:
            total = vectors[:count].sum(0)
            own = (vectors[:count] * normalize(total - vectors[:count])).sum(-1)  # similarity of each to all the others
            similar = vectors[count:] @ normalize(total[None])[0] >= np.quantile(own, MIN_SIMILARITY_QUANTILE)
        self.num_labeled, self.used = count, np.flatnonzero(similar)
        self.num_dropped = len(unlabeled) - len(self.used)
        rows = np.concatenate([np.arange(count), count + self.used])
        self.tfidf: csr_matrix = tfidf[rows]
        self.dense = {"lsa": vectors[rows]}
        known = rows[rows < len(hidden)] if hidden is not None else rows[:0]  # texts without hidden states come last
        if hidden is not None and len(known) - count >= max(count, MIN_HIDDEN):
            scale = hidden.std(0) * hidden.shape[1] ** 0.5
            self.dense["hidden"] = ((hidden[known] - hidden.mean(0)) / np.where(scale > 0, scale, 1)).astype(np.float64)
        self.num_known = min(map(len, self.dense.values()))  # rows that all views have

    def first(self, num_unlabeled: int) -> "Views":
        """Return the labeled texts and only the first unlabeled ones, with the same features."""
        part, end = copy(self), self.num_labeled + num_unlabeled
        part.used, part.tfidf = self.used[:num_unlabeled], self.tfidf[:end]
        part.dense = {name: view[:end] for name, view in self.dense.items()}
        part.num_known = min(self.num_known, end)
        return part

    def predict_from_labels(self, y: np.ndarray, rows: np.ndarray, class_weight: np.ndarray) -> np.ndarray:
        """Return logits (unlabeled texts that all views have, labels) of models trained on the labels `y` of the labeled `rows`."""
        start, end = self.num_labeled, self.num_known
        logits = [
            standardize(
                decision_logits(
                    logistic(TEACHER_C[name], class_weight).fit(view[rows], y), view[start:end], len(class_weight)
                )
            )
            for name, view in self.dense.items()
        ]
        return sum(logits) / len(logits) ** 0.5

    def predict_from_words(self, found: WordLabels, num_labels: int) -> np.ndarray:
        """Return logits of a model trained on the labels from words: (labeled texts, then unlabeled ones that all views have; labels)."""
        vectors = normalize(self.features.transform([{"text": text} for text in found.texts]) @ self.projection)
        teacher = LogisticRegression(C=WORDS_C, max_iter=1000, class_weight="balanced").fit(vectors, found.y)
        return standardize(decision_logits(teacher, self.dense["lsa"][: self.num_known], num_labels))

    def distill(
        self, logits: np.ndarray, y: np.ndarray, rows: np.ndarray, class_weight: np.ndarray, prior: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Train the linear model on labels and on soft labels; return its weights, its bias, and the soft labels (texts, labels)."""
        student = partial(self._student, y=y, rows=rows, class_weight=class_weight)
        soft_labels, start, end = match_prior(logits, prior), self.num_labeled, self.num_known
        if len(self.dense) > 1:
            views: list[Any] = [*self.dense.values(), self.tfidf]
            predicted = [
                np.asarray(view[start:] @ w + b) for view in views for w, b in [student(view[:end], soft_labels)]
            ]
            standardized = [standardize(each) for each in predicted]
            soft_labels = match_prior(sum(each[: end - start] for each in standardized) / len(views) ** 0.5, prior)
            if end < self.tfidf.shape[0]:  # no hidden states
                others = [each[end - start :] for each in standardized if len(each) > end - start]
                soft_labels = np.concatenate([soft_labels, match_prior(sum(others) / len(others) ** 0.5, prior)])
        return *student(self.tfidf, soft_labels), soft_labels

    def _student(
        self, view: Any, soft_labels: np.ndarray, y: np.ndarray, rows: np.ndarray, class_weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fit a ridge regression on labels and soft labels; return weights (features, labels) and bias (labels,)."""
        stack, unlabeled = vstack if isinstance(view, csr_matrix) else np.concatenate, view[self.num_labeled :]
        weight = max(1.0, LABELED_SHARE * len(soft_labels) / max(1, len(rows)))
        alpha, solver = (STUDENT_ALPHA, "sparse_cg") if isinstance(view, csr_matrix) else (VIEW_ALPHA, "cholesky")
        ridge = Ridge(alpha=alpha, solver=solver).fit(
            stack([view[rows], unlabeled]),
            np.concatenate([np.eye(len(class_weight))[y], soft_labels]),
            sample_weight=np.concatenate([weight * class_weight[y], soft_labels @ class_weight]),
        )
        return ridge.coef_.T, ridge.intercept_


def logistic(C: float, class_weight: np.ndarray) -> LogisticRegression:
    return LogisticRegression(C=C, max_iter=1000, class_weight=dict(enumerate(class_weight)))


def decision_logits(model: LogisticRegression, vectors: Any, num_labels: int) -> np.ndarray:
    """Return (N, labels)."""
    scores = model.decision_function(vectors)
    if scores.ndim == 1:
        scores = np.stack([-scores / 2, scores / 2], -1)
    logits = np.full((len(scores), num_labels), scores.min())
    logits[:, model.classes_] = scores
    return logits


def standardize(logits: np.ndarray) -> np.ndarray:
    centered = logits - logits.mean(-1, keepdims=True)
    return centered / (centered.std() or 1.0)


def match_prior(logits: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return probabilities (N, labels) whose mean over the texts is `prior`.

    >>> match_prior(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([0.5, 0.5])).mean(0).round(3).tolist()
    [0.5, 0.5]
    """
    bias = np.zeros(len(prior))
    for _ in range(50):
        probabilities = np.exp(log_softmax(SHARPNESS * logits + bias))
        bias += np.log(prior / probabilities.mean(0))
    return probabilities
