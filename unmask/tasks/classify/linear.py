"""A linear model on TF-IDF n-grams: the baseline of `classify`, and the linear part of a blended model (`--blend linear`).

The model returns logits, so calibration, decoding and metrics are those of the task. `LinearModel.fit` trains a logistic regression
for one label, one-vs-rest logistic regressions for several labels, and a ridge regression for numbers. Cross-validation on the
training records chooses the regularization strength.

A saved model is the file `linear.safetensors` next to the encoder's weights: the n-grams, their IDF, and one weight per n-gram and
label. It needs scikit-learn, but not torch.
"""

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix, hstack
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from unmask.errors import UserError, first_line
from unmask.tasks.blend import FILE, UntrainableError
from unmask.tasks.classify.targets import TARGETS, MultiLabel, Regression, SingleLabel
from unmask.tasks.metrics import indicator
from unmask.tasks.task import Records
from unmask.text.segmentation import detect_common_language

TENSORS = ("ngrams", "idf", "weights", "bias", "blend_weights")
NUM_FOLDS = 3
CS: list[float] = [1, 10, 100]  # of logistic regression; cross-validation chooses one
MIN_RECORDS_TO_DROP_RARE_TERMS = 200  # with fewer records, terms that occur once are kept
UNSEEN_LABEL_LOGIT = -30.0  # of a label without training records
NGRAMS: dict[str, dict[str, Any]] = {  # settings of TfidfVectorizer
    "word": {"ngram_range": (1, 2)},
    "char": {"analyzer": "char", "ngram_range": (1, 3)},  # Chinese and Japanese, which have no spaces
}


class TfidfFeatures(TransformerMixin, BaseEstimator):
    """TF-IDF of word unigrams and bigrams, or of characters. The features of a pair are those of both texts, |a - b| and a * b."""

    def __init__(self, min_df: int = 2, max_features: int | None = None):
        self.min_df, self.max_features = min_df, max_features

    def fit(self, records: Records, y: Any = None) -> "TfidfFeatures":
        texts = [r[role] for r in records for role in ("text", "pair") if role in r]
        is_chinese = detect_common_language(t[:200] for t in texts) == "zh"  # true for Japanese too
        self.unit_, self.paired_ = "char" if is_chinese else "word", any("pair" in r for r in records)
        limits = {"min_df": self.min_df, "max_features": self.max_features}
        try:
            self.vectorizer_ = TfidfVectorizer(sublinear_tf=True, **limits, **NGRAMS[self.unit_]).fit(texts)
        except ValueError as error:  # no text has a word
            raise UntrainableError(str(error)) from None
        return self

    @classmethod
    def restore(cls, unit: str, paired: bool, ngrams: list[str], idf: np.ndarray) -> "TfidfFeatures":
        """Return the features of a saved model."""
        features = cls()
        features.unit_, features.paired_ = unit, paired
        features.vectorizer_ = TfidfVectorizer(vocabulary=ngrams, sublinear_tf=True, **NGRAMS[unit])
        features.vectorizer_.idf_ = idf
        return features

    def transform(self, records: Records) -> csr_matrix:
        """Return (N, features)."""
        a = self.vectorizer_.transform([r["text"] for r in records])
        if not self.paired_:
            return a
        b = self.vectorizer_.transform([r.get("pair", "") for r in records])
        return hstack([a, b, abs(a - b), a.multiply(b)]).tocsr()


class LinearModel:
    """Logits of records in the order of the labels: `features @ weights + bias`."""

    def __init__(
        self, features: TfidfFeatures, weights: np.ndarray, bias: np.ndarray, regularization: float | None = None
    ):
        """`weights`: (features, labels). `regularization`: C, or alpha for numbers, if cross-validation chose it."""
        self.features, self.weights, self.bias = features, weights.astype(np.float32), bias.astype(np.float32)
        self.regularization = regularization
        self.blend_weights = (0.0, 1.0)  # of the encoder and of this model, see blend.py

    def logits(self, records: Records) -> np.ndarray:
        """Return (N, labels), or (N, 1) for numbers."""
        return np.asarray(self.features.transform(list(records)) @ self.weights + self.bias, np.float64)

    def attributions(self, texts: Sequence[str], label: int) -> list[tuple[int, int, int, float]]:
        """Return (index of the text, start, end, contribution) of each n-gram in one record: their sum is the logit minus the bias."""
        record, vectorizer = dict(zip(("text", "pair"), texts)), self.features.vectorizer_
        products = self.features.transform([record]).toarray()[0] * self.weights[:, label]
        contributions = products.reshape(-1, len(vectorizer.vocabulary_)).sum(0)
        found = [
            (number, start, end, vectorizer.vocabulary_[ngram])
            for number, text in enumerate(texts)
            for ngram, start, end in ngram_spans(text, self.features.unit_)
            if ngram in vectorizer.vocabulary_
        ]
        counts = Counter(index for *_, index in found)
        return [
            (number, start, end, float(contributions[index] / counts[index])) for number, start, end, index in found
        ]

    @classmethod
    def fit(cls, task_state: dict[str, Any], train: Records) -> "LinearModel":
        target_type, records = TARGETS[task_state.get("target", "single_label")](task_state), list(train)
        estimator, (parameter, values), scoring = _search_space(target_type)
        y = encode_targets(target_type, records)
        pipeline = make_pipeline(TfidfFeatures(min_df_of(len(records))), estimator)
        can_search = len(records) >= 10 * NUM_FOLDS and (y.ndim > 1 or y.dtype.kind != "i" or can_split(y))
        if y.ndim == 1 and y.dtype.kind == "i" and len(set(y.tolist())) < 2:
            raise UntrainableError("every record has the same label")
        name = f"{type(estimator).__name__.lower()}__{parameter}"
        search = GridSearchCV(pipeline, {name: values}, cv=NUM_FOLDS, scoring=scoring, error_score="raise")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a label has fewer records than there are folds
            warnings.simplefilter("ignore", ConvergenceWarning)
            (search if can_search else pipeline).fit(records, y)
        fitted = search.best_estimator_ if can_search else pipeline
        weights, bias = _coefficients(fitted[1], target_type)
        return cls(fitted[0], weights, bias, search.best_params_[name] if can_search else None)

    def save(self, folder: Path) -> None:
        vectorizer = self.features.vectorizer_
        ngrams = json.dumps(vectorizer.get_feature_names_out().tolist(), ensure_ascii=False).encode()
        tensors = {
            "ngrams": np.frombuffer(ngrams, np.uint8), "idf": vectorizer.idf_.astype(np.float32),
            "weights": np.ascontiguousarray(self.weights), "bias": self.bias,
            "blend_weights": np.array(self.blend_weights),
        }  # fmt: skip
        save_file(tensors, folder / FILE, {"unit": self.features.unit_, "paired": str(int(self.features.paired_))})

    @classmethod
    def load(cls, folder: Path, num_labels: int) -> "LinearModel":
        path = folder / FILE
        try:
            with safe_open(path, "numpy") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in TENSORS}
            ngrams = json.loads(tensors["ngrams"].tobytes())
            unit, paired = metadata["unit"], metadata["paired"] == "1"
            num_features = len(ngrams) * (4 if paired else 1)
            shapes = [tensors[name].shape for name in ("idf", "weights", "bias", "blend_weights")]
            if unit not in NGRAMS or shapes != [(len(ngrams),), (num_features, num_labels), (num_labels,), (2,)]:
                raise ValueError(f"shapes {shapes} do not fit {len(ngrams):,} n-grams and {num_labels} labels")
            features = TfidfFeatures.restore(unit, paired, ngrams, tensors["idf"])
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            hint = "copy the model folder again, or fine-tune again"
            raise UserError(f"cannot read {path}: {first_line(error)}", hint=hint) from None
        model = cls(features, tensors["weights"], tensors["bias"])
        model.blend_weights = tuple(tensors["blend_weights"].tolist())
        return model


def ngram_spans(text: str, unit: str) -> Iterator[tuple[str, int, int]]:
    """Yield (n-gram, start, end) as TfidfVectorizer analyzes a text, with offsets in characters.

    >>> list(ngram_spans("A good film", "word"))
    [('good', 2, 6), ('film', 7, 11), ('good film', 2, 11)]
    >>> list(ngram_spans("好  电", "char"))[:3]
    [('好', 0, 1), (' ', 1, 3), ('电', 3, 4)]
    >>> [span for span in ngram_spans("İİİ film", "word") if span[0] == "film"]
    [('film', 4, 8)]
    """
    pattern = r"\b\w\w+\b" if unit == "word" else r"\s\s+|."
    lower = text.lower()
    offsets: Sequence[int] = range(len(text) + 1)
    if len(lower) != len(text):  # "İ" becomes two characters
        offsets = [n for n, character in enumerate(text) for _ in character.lower()] + [len(text)]
    matches = [
        (match[0], offsets[match.start()], offsets[match.end()]) for match in re.finditer(pattern, lower, re.DOTALL)
    ]
    if unit == "char":  # scikit-learn reads a run of whitespace as one space
        matches = [(" " if len(piece) > 1 else piece, start, end) for piece, start, end in matches]
    shortest, longest = NGRAMS[unit]["ngram_range"]
    for n in range(shortest, longest + 1):
        for i in range(len(matches) - n + 1):
            pieces = [piece for piece, *_ in matches[i : i + n]]
            yield (" " if unit == "word" else "").join(pieces), matches[i][1], matches[i + n - 1][2]


def uncalibrated(task_state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task state without what was fitted for the encoder: calibration, and the scale of numbers."""
    return {k: v for k, v in task_state.items() if k not in ("temperature", "thresholds", "mean", "sd")}


def min_df_of(num_records: int) -> int:
    """Return how many records a term must occur in."""
    return 1 if num_records < MIN_RECORDS_TO_DROP_RARE_TERMS else 2


def can_split(y: np.ndarray) -> bool:
    """Whether at least two labels have a record for every fold."""
    return sorted(np.bincount(y, minlength=2))[-2] >= NUM_FOLDS


def _search_space(target_type: SingleLabel) -> tuple[Any, tuple[str, list[float]], str]:
    """Return the estimator, its parameter with the values to try, and the metric that selects one."""
    if isinstance(target_type, Regression):
        return Ridge(), ("alpha", [0.1, 1.0, 10.0]), "r2"
    if isinstance(target_type, MultiLabel):
        return OneVsRestClassifier(LogisticRegression(max_iter=1000)), ("estimator__C", CS), "f1_micro"
    weights = None if target_type.weights is None else dict(enumerate(target_type.weights))
    logistic = LogisticRegression(max_iter=1000, class_weight=weights)
    return logistic, ("C", CS), "f1_macro" if weights else "accuracy"


def encode_targets(target_type: SingleLabel, records: Records) -> np.ndarray:
    if isinstance(target_type, Regression):
        return np.array([r["label"] for r in records], np.float64)
    if isinstance(target_type, MultiLabel):
        return indicator([r["label"] for r in records], target_type.labels)
    return np.array([target_type.label2id[str(r["label"])] for r in records])


def _coefficients(estimator: Any, target_type: SingleLabel) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (features, labels) and the bias (labels,) of a fitted estimator."""
    if isinstance(target_type, MultiLabel):
        parts = [_binary_coefficients(each) for each in estimator.estimators_]
        return np.stack([weights for weights, _ in parts], 1), np.array([bias for _, bias in parts])
    weights, bias = np.atleast_2d(estimator.coef_).T, np.atleast_1d(estimator.intercept_)
    if isinstance(target_type, Regression):
        return weights, bias
    if weights.shape[1] == 1:  # scikit-learn has one row of weights if there are two classes
        weights, bias = np.hstack([-weights / 2, weights / 2]), np.concatenate([-bias / 2, bias / 2])
    all_weights = np.zeros((len(weights), len(target_type.labels)))
    all_bias = np.full(len(target_type.labels), UNSEEN_LABEL_LOGIT)
    all_weights[:, estimator.classes_], all_bias[estimator.classes_] = weights, bias
    return all_weights, all_bias


def _binary_coefficients(estimator: Any) -> tuple[np.ndarray, float]:
    """Return weights and bias of one label; scikit-learn has a constant for a label that all or no records have."""
    if hasattr(estimator, "coef_"):
        return estimator.coef_[0], float(estimator.intercept_[0])
    return np.zeros(estimator.n_features_in_), -UNSEEN_LABEL_LOGIT if estimator.y_[0] else UNSEEN_LABEL_LOGIT
