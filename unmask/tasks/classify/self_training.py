"""Self-training of the linear model on unlabeled texts (`--unlabeled`): one round, with soft labels.

1. Latent semantic analysis: the TF-IDF features of all texts are projected to a few hundred dimensions and normalized. Words that
   occur in similar texts get similar vectors, so a few labels go further. (Whitening the dimensions costs 10 points of accuracy.)
2. A logistic regression on the vectors of the labeled texts predicts the labels of the unlabeled ones. The predictions are shifted
   until their mean is the label distribution of the training records: a classifier trained on few records often favors one label.
3. A ridge regression on the n-grams is trained on the labels and on these predictions.

A text is left out if it is less similar to the mean of the labeled texts than nearly all labeled texts are. With enough labeled
records, cross-validation decides whether self-training helps.
`docs/log.md` has the measurements behind each rule.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from unmask.labels.records import Record
from unmask.numeric import log_softmax
from unmask.tasks.classify.linear import CS, NUM_FOLDS, LinearModel, TfidfFeatures, can_split, encode_targets, min_df_of
from unmask.tasks.classify.targets import SingleLabel
from unmask.tasks.metrics import fit_temperature
from unmask.tasks.task import Records

DIMENSIONS = 300
MIN_DF = 3  # texts that contain an n-gram; 1 in a small corpus
SMALL_CORPUS = 1000  # texts
MAX_FEATURES = 100_000
LABELED_SHARE = 0.1  # the labeled texts together have at least this share of the weight of the unlabeled ones
SHARPNESS = 2.0  # of the soft labels: softmax of this times the standardized logits
MIN_SIMILARITY_QUANTILE = 0.02  # of the labeled texts' similarity to each other; unlabeled texts below it are left out
MIN_RECORDS_FOR_GATE = 100  # with fewer labels, cross-validation is too noisy to decide
TEACHER_C, STUDENT_ALPHA = 10.0, 3.0


@dataclass
class SelfTraining:
    model: LinearModel | None  # None: self-training was worse than the labels alone
    note: str  # for the console


class _Texts:
    """Features of labeled and unlabeled texts."""

    def __init__(self, records: Records, unlabeled: Sequence[str]):
        everything = [*records, *({"text": text} for text in unlabeled)]
        min_df = 1 if len(everything) < SMALL_CORPUS else MIN_DF
        self.features = TfidfFeatures(min_df, MAX_FEATURES).fit(everything)
        tfidf = self.features.transform(everything)
        dimensions = max(1, min(DIMENSIONS, min(tfidf.shape) - 1))
        vectors = normalize(tfidf @ randomized_svd(tfidf, dimensions, n_iter=2, random_state=0)[2].T)
        count = len(records)
        total = vectors[:count].sum(0)
        own = (vectors[:count] * normalize(total - vectors[:count])).sum(-1)  # similarity of each to all the others
        similar = vectors[count:] @ normalize(total[None])[0] >= np.quantile(own, MIN_SIMILARITY_QUANTILE)
        self.num_dropped = int((~similar).sum())
        self.labeled: tuple[csr_matrix, np.ndarray] = (tfidf[:count], vectors[:count])
        self.unlabeled: tuple[csr_matrix, np.ndarray] = (tfidf[count:][similar], vectors[count:][similar])

    def fit(self, y: np.ndarray, rows: np.ndarray, class_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Self-train on the labels `y` of the labeled `rows`; return weights (features, labels) and bias (labels,)."""
        (tfidf, vectors), (more_tfidf, more_vectors), num_labels = self.labeled, self.unlabeled, len(class_weight)
        teacher = _logistic(TEACHER_C, class_weight).fit(vectors[rows], y)
        counts = np.bincount(y, minlength=num_labels)
        soft_labels = _match_prior(_logits(teacher, more_vectors, num_labels), (counts + 1) / (counts + 1).sum())
        weight = max(1.0, LABELED_SHARE * len(soft_labels) / len(rows))
        student = Ridge(alpha=STUDENT_ALPHA, solver="sparse_cg").fit(
            vstack([tfidf[rows], more_tfidf]),
            np.concatenate([np.eye(num_labels)[y], soft_labels]),
            sample_weight=np.concatenate([weight * class_weight[y], soft_labels @ class_weight]),
        )
        return student.coef_.T, student.intercept_


def self_train(task_state: dict[str, Any], train: Records, unlabeled: Sequence[str]) -> SelfTraining:
    """Train on labeled records and unlabeled texts. The target is a single label, and the records are texts, not pairs."""
    target_type, records = SingleLabel(task_state), list(train)
    y = encode_targets(target_type, records)
    class_weight = np.array(target_type.weights or [1.0] * len(target_type.labels))
    if len(unlabeled) < len(records):
        return SelfTraining(None, f"no self-training: fewer unlabeled texts ({len(unlabeled):,}) than labeled ones")
    texts = _Texts(records, unlabeled)
    used = len(unlabeled) - texts.num_dropped
    note = f"self-training on {used:,} unlabeled texts"
    if texts.num_dropped:
        note += f"; {texts.num_dropped:,} are unlike the labeled ones and left out"
    if used < len(records):
        return SelfTraining(None, f"no self-training: only {used:,} unlabeled texts are similar to the labeled ones")
    gain, error = _gain(target_type.metric, texts, records, y, class_weight)
    if gain <= -error:
        result = f"{gain:+.1%} ± {error:.1%} {target_type.metric.replace('_', ' ')}"
        return SelfTraining(None, f"no self-training: {result} in cross-validation on the labeled records")
    weights, bias = texts.fit(y, np.arange(len(y)), class_weight)
    logits = np.asarray(texts.labeled[0] @ weights + bias)
    scale = fit_temperature(logits, y)
    scale = scale if scale != 1.0 else float(logits.std()) or 1.0
    return SelfTraining(LinearModel(texts.features, weights / scale, bias / scale), note)


def _gain(
    metric: str, texts: _Texts, records: Sequence[Record], y: np.ndarray, class_weight: np.ndarray
) -> tuple[float, float]:
    """Return the cross-validated metric of self-training minus that of the labels alone, and its standard error.

    With few labels, the gain cannot be measured and is infinite.
    """
    if len(y) < MIN_RECORDS_FOR_GATE or not can_split(y):
        return np.inf, 0.0
    alone = np.zeros((len(CS), len(y)), int)  # predictions for each regularization
    together = np.zeros(len(y), int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label has fewer records than there are folds
        for fit_rows, test_rows in StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=0).split(y, y):
            features = TfidfFeatures(min_df_of(len(fit_rows))).fit([records[n] for n in fit_rows])
            rows, held_out = (features.transform([records[n] for n in part]) for part in (fit_rows, test_rows))
            for n, C in enumerate(CS):
                alone[n, test_rows] = _logistic(C, class_weight).fit(rows, y[fit_rows]).predict(held_out)
            weights, bias = texts.fit(y[fit_rows], fit_rows, class_weight)
            together[test_rows] = np.asarray(texts.labeled[0][test_rows] @ weights + bias).argmax(-1)
    score = partial(f1_score, y, average="macro") if metric == "macro_f1" else partial(accuracy_score, y)
    best = max(alone, key=score)
    differences = (together == y).astype(float) - (best == y)
    return float(score(together) - score(best)), float(differences.std() / len(y) ** 0.5)


def _logistic(C: float, class_weight: np.ndarray) -> LogisticRegression:
    return LogisticRegression(C=C, max_iter=1000, class_weight=dict(enumerate(class_weight)))


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
