"""TF-IDF + a linear model. It gives logits; from there on everything (temperature, thresholds, scores) is the task's own, so that the
figures compare. Logistic regression for labels, one against the rest for several, ridge regression for numbers; how strongly it is
regularised is chosen by cross-validation on the training records.
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

FOLDS = 3
SMALL = 200  # records below which a word that occurs once counts too
NEVER = -30.0  # logit of a label that the training records lack


class Words(TransformerMixin, BaseEstimator):
    """Texts, or pairs of them, → TF-IDF of words and pairs of words; of a pair both, where they differ, and what they share.

    Chinese, which has no spaces, is cut into characters.
    """

    def __init__(self, rare: int = 2):
        self.rare = rare

    def fit(self, records: Records, y: Any = None) -> "Words":
        texts = [r[role] for r in records for role in ("text", "pair") if role in r]
        chinese = (
            detect_common_language(t[:200] for t in texts) == "zh"
        )  # Japanese too, by its share of the same characters
        cut: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3)} if chinese else {"ngram_range": (1, 2)}
        self.vectorizer_ = TfidfVectorizer(min_df=self.rare, sublinear_tf=True, **cut).fit(texts)
        return self

    def transform(self, records: Records) -> Any:
        a = self.vectorizer_.transform([r["text"] for r in records])
        if not any("pair" in r for r in records):
            return a
        b = self.vectorizer_.transform([r.get("pair", "") for r in records])
        return hstack([a, b, abs(a - b), a.multiply(b)]).tocsr()


class Linear:
    """A linear model that gives what a task's model gives: logits for records, in the order of the labels."""

    def __init__(self, task_state: dict[str, Any], train: Records):
        self.target_type, records = TARGETS[task_state.get("target", "single_label")](task_state), list(train)
        model, grid, scoring = self._kind()
        aims = self._aims(records)
        search = make_pipeline(Words(1 if len(records) < SMALL else 2), model)
        enough = len(records) >= 10 * FOLDS and (aims.dtype.kind != "i" or np.bincount(aims).max() >= FOLDS)
        name = f"{type(model).__name__.lower()}__{next(iter(grid))}"
        choice = GridSearchCV(search, {name: next(iter(grid.values()))}, cv=FOLDS, scoring=scoring)
        with warnings.catch_warnings():  # labels with fewer records than folds; a fit that needs more rounds
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model = (choice if enough else search).fit(records, aims)
        self.chosen = choice.best_params_[name] if enough else None

    def _kind(self) -> tuple[Any, dict[str, list[float]], str]:
        """The estimator, what is tried, and what decides."""
        if isinstance(self.target_type, Regression):
            return Ridge(), {"alpha": [0.1, 1.0, 10.0]}, "r2"
        if isinstance(self.target_type, MultiLabel):
            return OneVsRestClassifier(LogisticRegression(max_iter=1000)), {"estimator__C": [1, 10, 100]}, "f1_micro"
        weights = None if self.target_type.weights is None else dict(enumerate(self.target_type.weights))
        logistic = LogisticRegression(max_iter=1000, class_weight=weights)
        return logistic, {"C": [1, 10, 100]}, "f1_macro" if weights else "accuracy"

    def _aims(self, records: Records) -> np.ndarray:
        target_type = self.target_type
        if isinstance(target_type, Regression):
            return np.array([r["label"] for r in records], np.float64)
        if isinstance(target_type, MultiLabel):
            return indicator([r["label"] for r in records], target_type.labels)
        return np.array([target_type.label2id[str(r["label"])] for r in records])

    def logits(self, records: Records) -> np.ndarray:
        target_type, given = self.target_type, list(records)
        if isinstance(target_type, Regression):
            return self.model.predict(given)[:, None]
        found = np.asarray(self.model.decision_function(given))
        if isinstance(target_type, MultiLabel):
            return found.reshape(len(given), -1)
        if found.ndim == 1:  # two classes: one number says both
            found = np.stack([np.zeros_like(found), found], -1)
        logits = np.full((len(given), len(target_type.labels)), NEVER)
        logits[:, self.model.classes_] = found
        return logits


def baseline(task: Classify, train: Records, dev: Records, judged: Records) -> dict[str, dict[str, float]]:
    task_state = {k: v for k, v in task.task_state.items() if k not in ("temperature", "thresholds", "mean", "sd")}
    model = Linear(task_state, train)  # its own temperature and thresholds, and numbers as they are
    if dev:
        task_state |= model.target_type.calibrate(model.logits(dev), dev)
    return {"TF-IDF + linear": model.target_type.score(model.target_type.decode(model.logits(judged)), judged)}
