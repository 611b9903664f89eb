"""Self-training of the linear model on unlabeled texts (`--unlabeled`, `unmask learn`): one round, with soft labels.

1. Views of the texts: latent semantic analysis, which projects the TF-IDF features of all texts to a few hundred dimensions, so that
   words of similar texts get similar vectors (whitening the dimensions costs 10 points of accuracy); and, if given, the mean hidden states
   of a pre-trained model.
2. A logistic regression on each view of the labeled texts predicts the labels of the unlabeled ones. Words instead of labels give
   one more prediction (words.py). The mean of the predictions is shifted until its mean over the texts is the label distribution of the
   training records, or near equal shares if these are few: a classifier trained on few records often favors one label.
3. A ridge regression on the n-grams is trained on the labels and on these soft labels. With hidden states, regressions on all views
   are trained first, and the mean of their predictions replaces the soft labels: the views correct each other.

A text is left out if it is less similar to the mean of the labeled texts than nearly all labeled texts are. With enough labeled
records, cross-validation decides whether self-training helps.
`docs/log.md` has the measurements behind each rule.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.special import gammaln
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold

from unmask.labels.records import Record
from unmask.tasks.classify.linear import CS, NUM_FOLDS, LinearModel, TfidfFeatures, can_split, encode_targets, min_df_of
from unmask.tasks.classify.targets import SingleLabel
from unmask.tasks.classify.views import Views, decision_logits, logistic
from unmask.tasks.classify.words import label_by_words
from unmask.tasks.metrics import fit_temperature
from unmask.tasks.task import Records

MIN_RECORDS_FOR_GATE = 100  # with fewer labels, cross-validation is too noisy to decide
MIN_RECORDS_TO_CHECK_WORDS = 20
MAX_TEXTS_FOR_GATE = 5000  # unlabeled texts in cross-validation; more would take long


@dataclass
class SelfTraining:
    model: LinearModel | None  # None: self-training was worse than the labels alone
    note: str  # for the console
    used: np.ndarray = field(default_factory=lambda: np.empty(0, int))  # indices of the unlabeled texts that were used
    soft_labels: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # (used texts, labels)
    views: Views | None = None
    out_of_fold: np.ndarray | None = None  # (labeled records, labels): logits from cross-validation
    out_of_fold_alone: np.ndarray | None = None  # of the model trained on the labels alone


def self_train(
    task_state: dict[str, Any],
    train: Records,
    unlabeled: Sequence[str],
    hidden: np.ndarray | None = None,
    words: Mapping[str, Sequence[str]] | None = None,
    prior: np.ndarray | None = None,
) -> SelfTraining:
    """Train on labeled records, on words of each label, or both, and on unlabeled texts. The target is a single label of one text.

    `hidden`: hidden states (N, D) of the labeled texts and of the first unlabeled ones. `prior`: share of each label, if the labeled
    records are not to define it.
    """
    target_type, records = SingleLabel(task_state), list(train)
    y = encode_targets(target_type, records).astype(int)  # float if there are no records
    class_weight = np.array(target_type.weights or [1.0] * len(target_type.labels))
    views = Views(records, unlabeled, hidden)
    if len(unlabeled) < len(records):
        note = f"no self-training: fewer unlabeled texts ({len(unlabeled):,}) than labeled ones"
        return SelfTraining(None, note, views=views)
    used = len(views.used)
    notes = [f"self-training on {used:,} unlabeled texts"]
    if views.num_dropped:
        notes.append(f"{views.num_dropped:,} are unlike the labeled ones and left out")
    if used < len(records):
        note = f"no self-training: only {used:,} unlabeled texts are similar to the labeled ones"
        return SelfTraining(None, note, views=views)
    from_words = None
    if words:
        texts = [unlabeled[n] for n in views.used.tolist()]
        found = label_by_words({name: words.get(name, ()) for name in target_type.labels}, texts)
        from_words, note = trusted_words(views.predict_from_words(found, len(class_weight)), y)
        notes += [found.note, *([note] if note else [])]
    gate = Gate(target_type, views, records, y, class_weight, from_words)
    if gate.rejects and from_words is not None:
        notes.append(f"the words are not used: {gate.result} in cross-validation with them")
        from_words = None
        gate = Gate(target_type, views, records, y, class_weight)
    if gate.rejects:
        return SelfTraining(
            None,
            f"no self-training: {gate.result} in cross-validation on the labeled records",
            views=views,
            out_of_fold_alone=gate.alone,
        )
    weights, bias, soft_labels = fit(views, y, np.arange(len(y)), class_weight, from_words, prior)
    model = LinearModel(views.features, *_scaled(views, weights, bias, y))
    return SelfTraining(model, "; ".join(notes), views.used, soft_labels, views, gate.together, gate.alone)


def label_prior(counts: np.ndarray) -> np.ndarray:
    """Return the share of each label, given the counts of a sample.

    A small sample says little: equal shares are assumed as far as the counts fit them. The result is the mean of equal shares and of
    the smoothed shares of the sample, weighted by how probable the counts are under either (all shares being equally likely).

    >>> [label_prior(np.array(counts)).round(2).tolist() for counts in ([8, 12], [80, 120], [3, 17], [0, 0])]
    [[0.47, 0.53], [0.42, 0.58], [0.19, 0.81], [0.5, 0.5]]
    """
    n, num_labels = int(counts.sum()), len(counts)
    equal = -n * np.log(num_labels)
    any_share = gammaln(num_labels) + gammaln(counts + 1).sum() - gammaln(n + num_labels)
    weight = 1 / (1 + np.exp(np.clip(any_share - equal, -50, 50)))
    return weight / num_labels + (1 - weight) * (counts + 1) / (n + num_labels)


def trusted_words(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray | None, str]:
    """Return the logits of the unlabeled texts from words, or (None, note) if they do not predict the labels `y` of the labeled ones."""
    count, num_labels = len(y), logits.shape[1]
    predicted = logits[:count].argmax(-1)
    recalls = np.array([[np.mean(predicted[y == k] == k), np.sum(y == k)] for k in sorted(set(y.tolist()))])
    if count >= MIN_RECORDS_TO_CHECK_WORDS and len(recalls) > 1:
        recall, records = recalls.T
        error = float((recall * (1 - recall) / records).sum() ** 0.5) / len(recall)
        if recall.mean() - error <= 1 / num_labels:
            return (
                None,
                f"the words are not used: they predict {recall.mean():.0%} of the labeled records (mean over the labels)",
            )
    return logits[count:], ""


def fit(
    views: Views,
    y: np.ndarray,
    rows: np.ndarray,
    class_weight: np.ndarray,
    from_words: np.ndarray | None = None,
    prior: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Self-train on the labels `y` of the labeled `rows`; return weights (features, labels), bias (labels,) and soft labels."""
    predictions = [] if from_words is None else [from_words]
    if len(set(y.tolist())) > 1:
        predictions.append(views.predict_from_labels(y, rows, class_weight))
    counts = np.bincount(y, minlength=len(class_weight))
    prior = label_prior(counts) if prior is None else prior
    logits = sum(predictions) / len(predictions) ** 0.5
    return views.distill(logits, y, rows, class_weight, prior)


def _scaled(views: Views, weights: np.ndarray, bias: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale weights and bias so that the logits are calibrated on the labeled records, or have a standard deviation of 1."""
    logits = np.asarray(views.tfidf[: len(y) or None] @ weights + bias)
    scale = fit_temperature(logits, y) if len(y) else 1.0
    scale = scale if scale != 1.0 else float(logits.std()) or 1.0
    return weights / scale, bias / scale


class Gate:
    """Cross-validation on the labeled records: self-training against the labels alone."""

    def __init__(
        self,
        target_type: SingleLabel,
        views: Views,
        records: Sequence[Record],
        y: np.ndarray,
        class_weight: np.ndarray,
        from_words: np.ndarray | None = None,
    ):
        self.metric, self.y, self.from_words = target_type.metric, y, from_words
        self.alone: np.ndarray | None = None  # (N, labels) logits of the labels alone
        self.together: np.ndarray | None = None  # of self-training
        if len(y) >= MIN_RECORDS_FOR_GATE and can_split(y):
            self._cross_validate(views, records, class_weight)

    def _cross_validate(self, views: Views, records: Sequence[Record], class_weight: np.ndarray) -> None:
        y, num_labels, views = self.y, len(class_weight), views.first(MAX_TEXTS_FOR_GATE)
        from_words = self.from_words if self.from_words is None else self.from_words[: views.num_known - len(y)]
        alone = np.zeros((len(CS), len(y), num_labels))  # logits for each regularization
        self.together = np.zeros((len(y), num_labels))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a label has fewer records than there are folds
            for fit_rows, test_rows in StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=0).split(y, y):
                features = TfidfFeatures(min_df_of(len(fit_rows))).fit([records[n] for n in fit_rows])
                rows, held_out = (features.transform([records[n] for n in part]) for part in (fit_rows, test_rows))
                for n, C in enumerate(CS):
                    model = logistic(C, class_weight).fit(rows, y[fit_rows])
                    alone[n, test_rows] = decision_logits(model, held_out, num_labels)
                weights, bias, _ = fit(views, y[fit_rows], fit_rows, class_weight, from_words)
                self.together[test_rows] = np.asarray(views.tfidf[test_rows] @ weights + bias)
        self.alone = max(alone, key=self._score)

    def _score(self, logits: np.ndarray) -> float:
        predicted = logits.argmax(-1)
        score = partial(f1_score, average="macro") if self.metric == "macro_f1" else accuracy_score
        return float(score(self.y, predicted))

    @property
    def gain(self) -> tuple[float, float]:
        """The metric of self-training minus that of the labels alone, and its standard error; infinite if it cannot be measured."""
        if self.alone is None or self.together is None:
            return np.inf, 0.0
        differences = (self.together.argmax(-1) == self.y).astype(float) - (self.alone.argmax(-1) == self.y)
        return self._score(self.together) - self._score(self.alone), float(differences.std() / len(self.y) ** 0.5)

    @property
    def rejects(self) -> bool:
        gain, error = self.gain
        return gain < 0 and gain <= -error

    @property
    def result(self) -> str:
        gain, error = self.gain
        return f"{gain:+.1%} ± {error:.1%} {self.metric.replace('_', ' ')}"
