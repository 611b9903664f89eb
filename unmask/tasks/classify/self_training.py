"""Self-training of the linear model on unlabeled texts (`--unlabeled`): one round, with soft labels.

1. Latent semantic analysis: the TF-IDF features of all texts are projected to a few hundred dimensions and normalized. Words that
   occur in similar texts get similar vectors, so a few labels go further. (Whitened dimensions lose 10 points of accuracy.)
2. A logistic regression on the vectors of the labeled texts predicts the unlabeled ones. The mean predicted distribution is matched
   to the shares of the labels, because few labels rarely have them exactly.
3. A ridge regression on the n-grams is trained on the labels and on these predictions.

Texts that are unlike every labeled text are left out. With enough labels, cross-validation decides whether self-training helps.
`docs/log.md` has the measurements behind each rule.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from unmask.numeric import log_softmax
from unmask.tasks.classify.linear import NUM_FOLDS, LinearModel, TfidfFeatures, encode_targets
from unmask.tasks.classify.targets import SingleLabel
from unmask.tasks.metrics import fit_temperature
from unmask.tasks.task import Records

DIMENSIONS = 300
MIN_DF = 3  # texts that contain an n-gram
MAX_FEATURES = 100_000
LABELED_SHARE = 0.1  # the labeled texts together have at least this share of the weight of the unlabeled ones
SHARPNESS = 2.0  # of the soft labels: softmax of this times the standardized logits
MIN_SIMILARITY_QUANTILE = (
    0.02  # texts less similar to the labeled ones than this quantile of the labeled ones are left out
)
MIN_RECORDS_FOR_GATE = 100  # with fewer labels, cross-validation is too noisy to decide
TEACHER_C, STUDENT_ALPHA = 10.0, 3.0
CS = (1.0, 10.0, 100.0)  # regularizations of the model trained on the labels alone, as in linear.py


@dataclass
class SelfTraining:
    model: LinearModel | None  # None: self-training was worse than the labels alone
    note: str  # for the console


class _Texts:
    """Features of labeled and unlabeled texts."""

    def __init__(self, records: Records, unlabeled: Sequence[str]):
        everything = [*records, *({"text": text} for text in unlabeled)]
        self.features = TfidfFeatures(min_df=MIN_DF, max_features=MAX_FEATURES).fit(everything)
        tfidf = self.features.transform(everything)
        dimensions = min(DIMENSIONS, min(tfidf.shape) - 1)
        vectors = normalize(tfidf @ randomized_svd(tfidf, dimensions, n_iter=2, random_state=0)[2].T)
        count = len(records)
        total = vectors[:count].sum(0)
        own = (vectors[:count] * normalize(total - vectors[:count])).sum(-1)  # similarity of each to all the others
        similar = vectors[count:] @ normalize(total[None])[0] >= np.quantile(own, MIN_SIMILARITY_QUANTILE)
        self.num_dropped = int((~similar).sum())
        self.labeled: tuple[csr_matrix, np.ndarray] = (tfidf[:count], vectors[:count])
        self.unlabeled: tuple[csr_matrix, np.ndarray] = (tfidf[count:][similar], vectors[count:][similar])

    def fit(self, y: np.ndarray, rows: np.ndarray, num_labels: int) -> tuple[np.ndarray, np.ndarray]:
        """Self-train on the labels `y` of the labeled `rows`; return weights (features, labels) and bias (labels,)."""
        (tfidf, vectors), (more_tfidf, more_vectors) = self.labeled, self.unlabeled
        teacher = LogisticRegression(C=TEACHER_C, max_iter=1000).fit(vectors[rows], y)
        counts = np.bincount(y, minlength=num_labels)
        soft_labels = _match_prior(_logits(teacher, more_vectors, num_labels), (counts + 1) / (counts + 1).sum())
        weight = max(1.0, LABELED_SHARE * len(soft_labels) / len(rows))
        student = Ridge(alpha=STUDENT_ALPHA, solver="sparse_cg").fit(
            vstack([tfidf[rows], more_tfidf]),
            np.concatenate([np.eye(num_labels)[y], soft_labels]),
            sample_weight=np.concatenate([np.full(len(rows), weight), np.ones(len(soft_labels))]),
        )
        return student.coef_.T, student.intercept_


def self_train(task_state: dict[str, Any], train: Records, unlabeled: Sequence[str]) -> SelfTraining:
    """Train on labeled records and unlabeled texts. The target is a single label, and the records are texts, not pairs."""
    target_type, records = SingleLabel(task_state), list(train)
    y, num_labels = encode_targets(target_type, records), len(target_type.labels)
    texts = _Texts(records, unlabeled)
    used = len(unlabeled) - texts.num_dropped
    note = f"self-training on {used:,} unlabeled texts"
    if texts.num_dropped:
        note += f"; {texts.num_dropped:,} are unlike the labeled ones and left out"
    if used < len(records) or ((gain := _gain(target_type, texts, records, y)) is not None and gain <= 0):
        reason = "too few texts are left" if used < len(records) else f"cross-validation: {gain:+.1%} accuracy"
        return SelfTraining(None, f"no self-training on the unlabeled texts: {reason}")
    weights, bias = texts.fit(y, np.arange(len(y)), num_labels)
    logits = np.asarray(texts.labeled[0] @ weights + bias)
    scale = fit_temperature(logits, y)
    scale = scale if scale != 1.0 else float(logits.std()) or 1.0
    return SelfTraining(LinearModel(texts.features, weights / scale, bias / scale), note)


def _gain(target_type: SingleLabel, texts: _Texts, records: Records, y: np.ndarray) -> float | None:
    """Return the cross-validated accuracy of self-training minus that of the labels alone; None with few labels."""
    if len(y) < MIN_RECORDS_FOR_GATE or np.bincount(y).max() < NUM_FOLDS:
        return None
    alone = np.zeros((len(CS), len(y)))  # correct predictions for each regularization
    together = np.zeros(len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label has fewer records than there are folds
        for fit_rows, test_rows in StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=0).split(y, y):
            rows, held_out = texts.labeled[0][fit_rows], texts.labeled[0][test_rows]
            for n, C in enumerate(CS):
                model = LogisticRegression(C=C, max_iter=1000).fit(rows, y[fit_rows])
                alone[n, test_rows] = model.predict(held_out) == y[test_rows]
            weights, bias = texts.fit(y[fit_rows], fit_rows, len(target_type.labels))
            together[test_rows] = np.asarray(held_out @ weights + bias).argmax(-1) == y[test_rows]
    return float(together.mean() - alone.mean(1).max())


def _logits(model: LogisticRegression, vectors: np.ndarray, num_labels: int) -> np.ndarray:
    """Return (N, labels), standardized."""
    scores = model.decision_function(vectors)
    if scores.ndim == 1:
        scores = np.stack([-scores / 2, scores / 2], -1)
    logits = np.full((len(vectors), num_labels), scores.min())
    logits[:, model.classes_] = scores
    return (logits - logits.mean(-1, keepdims=True)) / (scores.std() or 1.0)


def _match_prior(logits: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return probabilities (N, labels) whose mean over the texts is `prior`.

    >>> _match_prior(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([0.5, 0.5])).mean(0).round(3).tolist()
    [0.5, 0.5]
    """
    bias = np.zeros(len(prior))
    for _ in range(50):
        probabilities = np.exp(log_softmax(SHARPNESS * logits + bias))
        bias += np.log(prior / probabilities.mean(0))
    return probabilities
