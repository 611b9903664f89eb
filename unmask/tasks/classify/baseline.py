"""Baseline of `classify`: TF-IDF features and a linear model.

The linear model returns logits. Calibration, decoding and metrics are those of the task, so the numbers are comparable. It is a
logistic regression for one label, one-vs-rest logistic regressions for several labels, and a ridge regression for numbers.
Cross-validation on the training records chooses the regularization strength.
"""

import warnings
from typing import Any

import numpy as np
from scipy.sparse import hstack
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from unmask.tasks.classify.targets import TARGETS, MultiLabel, Regression
from unmask.tasks.classify.task import Classify
from unmask.tasks.metrics import indicator
from unmask.tasks.task import Records
from unmask.text.segmentation import detect_common_language

NUM_FOLDS = 3
MIN_RECORDS_TO_DROP_RARE_TERMS = 200  # with fewer records, terms that occur once are kept
UNSEEN_LABEL_LOGIT = -30.0  # of a label without training records


class TfidfFeatures(TransformerMixin, BaseEstimator):
    """TF-IDF of word unigrams and bigrams. The features of a pair are those of both texts, |a - b| and a * b.

    Chinese and Japanese, which have no spaces, use character n-grams.
    """

    def __init__(self, min_df: int = 2):
        self.min_df = min_df

    def fit(self, records: Records, y: Any = None) -> "TfidfFeatures":
        texts = [r[role] for r in records for role in ("text", "pair") if role in r]
        is_chinese = detect_common_language(t[:200] for t in texts) == "zh"  # true for Japanese too
        ngrams: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3)} if is_chinese else {"ngram_range": (1, 2)}
        self.vectorizer_ = TfidfVectorizer(min_df=self.min_df, sublinear_tf=True, **ngrams).fit(texts)
        return self

    def transform(self, records: Records) -> Any:
        a = self.vectorizer_.transform([r["text"] for r in records])
        if not any("pair" in r for r in records):
            return a
        b = self.vectorizer_.transform([r.get("pair", "") for r in records])
        return hstack([a, b, abs(a - b), a.multiply(b)]).tocsr()


class LinearModel:
    """A linear model with the outputs of a fine-tuned model: logits of records, in the order of the labels."""

    def __init__(self, task_state: dict[str, Any], train: Records):
        self.target_type, records = TARGETS[task_state.get("target", "single_label")](task_state), list(train)
        estimator, (parameter, values), scoring = self._search_space()
        y = self._encode_targets(records)
        pipeline = make_pipeline(TfidfFeatures(1 if len(records) < MIN_RECORDS_TO_DROP_RARE_TERMS else 2), estimator)
        can_search = len(records) >= 10 * NUM_FOLDS and (y.dtype.kind != "i" or np.bincount(y).max() >= NUM_FOLDS)
        name = f"{type(estimator).__name__.lower()}__{parameter}"
        search = GridSearchCV(pipeline, {name: values}, cv=NUM_FOLDS, scoring=scoring)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a label has fewer records than there are folds
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model = (search if can_search else pipeline).fit(records, y)
        self.regularization = search.best_params_[name] if can_search else None

    def _search_space(self) -> tuple[Any, tuple[str, list[float]], str]:
        """Return the estimator, its parameter with the values to try, and the metric that selects one."""
        if isinstance(self.target_type, Regression):
            return Ridge(), ("alpha", [0.1, 1.0, 10.0]), "r2"
        if isinstance(self.target_type, MultiLabel):
            return OneVsRestClassifier(LogisticRegression(max_iter=1000)), ("estimator__C", [1, 10, 100]), "f1_micro"
        weights = None if self.target_type.weights is None else dict(enumerate(self.target_type.weights))
        logistic = LogisticRegression(max_iter=1000, class_weight=weights)
        return logistic, ("C", [1, 10, 100]), "f1_macro" if weights else "accuracy"

    def _encode_targets(self, records: Records) -> np.ndarray:
        target_type = self.target_type
        if isinstance(target_type, Regression):
            return np.array([r["label"] for r in records], np.float64)
        if isinstance(target_type, MultiLabel):
            return indicator([r["label"] for r in records], target_type.labels)
        return np.array([target_type.label2id[str(r["label"])] for r in records])

    def logits(self, records: Records) -> np.ndarray:
        """Return (N, labels), or (N, 1) for numbers."""
        target_type, inputs = self.target_type, list(records)
        if isinstance(target_type, Regression):
            return self.model.predict(inputs)[:, None]
        scores = np.asarray(self.model.decision_function(inputs))
        if isinstance(target_type, MultiLabel):
            return scores.reshape(len(inputs), -1)
        if scores.ndim == 1:  # scikit-learn returns one score per record if there are two classes
            scores = np.stack([np.zeros_like(scores), scores], -1)
        logits = np.full((len(inputs), len(target_type.labels)), UNSEEN_LABEL_LOGIT)
        logits[:, self.model.classes_] = scores
        return logits


def baseline(task: Classify, train: Records, dev: Records, eval_records: Records) -> dict[str, dict[str, float]]:
    # The linear model is calibrated separately, and its numbers are not standardized.
    task_state = {k: v for k, v in task.task_state.items() if k not in ("temperature", "thresholds", "mean", "sd")}
    model = LinearModel(task_state, train)
    if dev:
        task_state |= model.target_type.calibrate(model.logits(dev), dev)
    predictions = model.target_type.decode(model.logits(eval_records))
    return {"TF-IDF + linear": model.target_type.score(predictions, eval_records)}
