"""The learner of `classify` (tasks/learner.py): one label for each text."""

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from unmask.errors import UserError
from unmask.files import write_lines
from unmask.labels.records import Record
from unmask.numeric import log_softmax
from unmask.tasks.blend import UntrainableError
from unmask.tasks.classify.active import choose_texts_to_label
from unmask.tasks.classify.blend import SOFT_LABELS
from unmask.tasks.classify.label_errors import find_label_errors
from unmask.tasks.classify.learning_curve import chance_of, curve_results, learning_curve, measure_curve
from unmask.tasks.classify.linear import LinearModel, encode_targets
from unmask.tasks.classify.self_training import SelfTraining, label_prior, self_train
from unmask.tasks.classify.targets import SingleLabel
from unmask.tasks.classify.views import TEACHER_C, Views, decision_logits, logistic
from unmask.tasks.classify.words import count_words, label_by_words, parse_words
from unmask.tasks.intervals import fraction_interval
from unmask.tasks.learner import LearnInputs, Row

MIN_LABELS_FOR_PRIOR = 20  # records of --check; with fewer, words assume equally frequent labels
MAX_HELD_OUT = 300  # texts with soft labels that measure what the encoder has learned
MAX_SUSPECTS = 200  # labels to review
TFIDF = "TF-IDF + logistic regression"
WORD_COUNTS = "counting the words"
LINEAR = "linear model with self-training"
CURVE_MODEL = "logistic regression on LSA vectors"  # of the learning curve


class Learner:
    def __init__(self, inputs: LearnInputs):
        self.inputs, self.labels = inputs, list(inputs.task_state["labels"])
        self.target_type = SingleLabel(inputs.task_state)
        self.labeled = list(inputs.labeled)
        self.y = encode_targets(self.target_type, self.labeled).astype(int)
        self.steps: list[Row] = []
        times = [time.monotonic()]
        try:
            self.alone = LinearModel.fit(inputs.task_state, self.labeled) if len(set(self.y.tolist())) > 1 else None
            times.append(time.monotonic())
            self.trained = self._self_train()
            times.append(time.monotonic())
        except UntrainableError as error:
            raise UserError(
                f"no linear model can be trained on these texts: {error}",
                hint="fine-tune a model without one: unmask finetune MODEL --train FILE",
            ) from None
        self.seconds = {TFIDF: times[1] - times[0], LINEAR: times[2] - times[1]}
        model = self.trained.model or self.alone
        if model is None:
            raise UserError(f"nothing can be learned: {self.trained.note}", hint="give records of at least two labels")
        self.model: LinearModel = model
        self.notes = [self.trained.note]
        if inputs.words and inputs.check:
            self._check_words()
        self._add_steps()

    def _self_train(self) -> SelfTraining:
        if not self.inputs.texts or not (self.alone or self.inputs.words):
            return SelfTraining(None, "no unlabeled texts: trained on the labels alone")
        check_counts = np.bincount(
            encode_targets(self.target_type, self.inputs.check).astype(int), minlength=len(self.labels)
        )
        use_check = not self.labeled and check_counts.sum() >= MIN_LABELS_FOR_PRIOR
        prior = label_prior(check_counts) if use_check else None
        inputs = self.inputs
        return self_train(inputs.task_state, self.labeled, inputs.texts, inputs.hidden, inputs.words, prior)

    def _check_words(self) -> None:
        """Raise UserError if the model from the words does not beat always predicting one label."""
        records = list(self.inputs.check)
        score = self._score(LINEAR, self.model.logits(records), records, "check")
        self.steps.append(score)
        chance = chance_of(encode_targets(self.target_type, records).astype(int))
        if score["high"] <= chance or score["score"] <= 1 / len(self.labels):
            right = round(score["score"] * len(records))
            raise UserError(
                f"the words do not predict the labels of --check: {right:,} of {len(records):,} records are right, "
                f"always predicting one label gets {round(chance * len(records)):,}",
                hint="choose other words: frequent ones that occur mostly in texts of their label",
            )

    def _add_steps(self) -> None:
        """Add the scores of the models on the test records, or else from cross-validation."""
        test = list(self.inputs.test)
        if test:
            if self.alone:
                self.steps.append(self._score(TFIDF, self.alone.logits(test), test, "test", "labels alone"))
            if self.inputs.words:
                words = {label: self.inputs.words[label] for label in self.labels}
                counts = count_words(words, [record["text"] for record in test])
                self.steps.append(self._score(WORD_COUNTS, counts, test, "test"))
            if self.trained.model:
                self.steps.append(self._score(LINEAR, self.trained.model.logits(test), test, "test", self.trained.note))
            return
        for name, logits in ((TFIDF, self.trained.out_of_fold_alone), (LINEAR, self.trained.out_of_fold)):
            if logits is not None:
                self.steps.append(self._score(name, logits, self.labeled, "cross-validation"))

    def _score(self, name: str, logits: np.ndarray, records: Sequence[Record], split: str, note: str = "") -> Row:
        scores = self.target_type.score(self.target_type.decode(logits), records)
        value = scores[self.target_type.metric]
        row = {"name": name, "split": split, "score": value, "note": note, "records": len(records)}
        row |= {"seconds": self.seconds[name]} if name in self.seconds else {}
        if interval := fraction_interval(self.target_type.metric, value, len(records)):
            row["low"], row["high"] = interval
        return row

    @classmethod
    def check_words(cls, values: Sequence[str], texts: Sequence[str] | None = None) -> dict[str, list[str]]:
        words = parse_words(values)
        if texts is not None:
            label_by_words(words, texts)
        return words

    @classmethod
    def supports(cls, task_state: Mapping[str, Any]) -> bool:
        return task_state.get("target", "single_label") == "single_label" and not task_state.get("pair")

    def save(self, folder: Path) -> None:
        """Save the linear model, and texts with soft labels that the encoder is not trained on (blend.py)."""
        self.model.save(folder)
        write_lines(folder / SOFT_LABELS, self._soft_records(range(self._num_held_out)))

    @property
    def _num_held_out(self) -> int:
        return min(MAX_HELD_OUT, len(self.trained.used) // 5)

    def _soft_records(self, numbers: Iterable[int]) -> list[Row]:
        """Return texts with soft labels. Texts with hidden states come first."""
        rows = []
        for n in numbers:
            p = self.trained.soft_labels[n]
            scores = dict(zip(self.labels, p.tolist()))
            text = self.inputs.texts[int(self.trained.used[n])]
            rows.append({"text": text, "label": self.labels[int(p.argmax())], "scores": scores})
        return rows

    # ------------------------------------------------------------------------------------------- rows for the encoder

    def training_records(self, num_texts: int) -> list[Row]:
        """Return the labeled records, and texts with soft labels: those with hidden states first."""
        rows = []
        if self.labeled:
            for record, p in zip(self.labeled, self._label_scores()):
                rows.append(
                    {"text": record["text"], "label": str(record["label"]), "scores": dict(zip(self.labels, p))}
                )
        start = self._num_held_out
        return rows + self._soft_records(range(start, min(start + num_texts, len(self.trained.used))))

    def _label_scores(self) -> list[list[float]]:
        """Return probabilities of the labeled records: mostly the given label, the rest as the linear model predicts."""
        predicted = np.exp(log_softmax(self.model.logits(self.labeled)))
        return (0.9 * np.eye(len(self.labels))[self.y] + 0.1 * predicted).tolist()

    # ------------------------------------------------------------------------------------------------------- decision

    def decide(self, count: int) -> Row:
        decision: Row = {}
        views = self.trained.views
        if views and len(views.used):
            decision["to_label"] = self._texts_to_label(views, count)
        if self.alone:
            vectors = views.dense["lsa"][: len(self.y)] if views else self.alone.features.transform(self.labeled)
            decision["curve"] = self._curve(vectors)
            decision["suspects"] = self._suspects(vectors)
        return decision

    def _texts_to_label(self, views: Views, count: int) -> list[Row]:
        texts = [self.inputs.texts[n] for n in views.used.tolist()]
        p = np.exp(log_softmax(self.model.logits([{"text": text} for text in texts])))
        chosen = choose_texts_to_label(p, views.dense["lsa"][views.num_labeled :], count, self.inputs.seed)
        return [
            {"text": texts[n], "suggested": self.labels[int(p[n].argmax())], "probability": float(p[n].max())}
            for n in chosen
        ]

    def _curve(self, vectors: Any) -> Row:
        """Return the learning curve of a logistic regression on the LSA vectors (without unlabeled texts: on the n-grams)."""
        y = self.y

        def score(train: np.ndarray, test: np.ndarray) -> float:
            if len(set(y[train].tolist())) < 2:
                return float((y[test] == y[train][0]).mean())
            return float((_quick(y[train]).fit(vectors[train], y[train]).predict(vectors[test]) == y[test]).mean())

        sizes, scores = measure_curve(y, score)
        curve, note = learning_curve(sizes, scores, chance=chance_of(y), num_test=len(y))
        return curve_results(sizes, scores, curve, note, num_labels=len(y)) | {
            "step": CURVE_MODEL,
            "metric": "accuracy",
        }

    def _suspects(self, vectors: Any) -> list[Row]:
        """Return labeled records whose label looks wrong in cross-validation."""
        p = _out_of_fold(vectors, self.y, len(self.labels))
        if p is None:
            return []
        return [
            {
                "location": self.labeled[e.index].get("location", ""),
                "text": self.labeled[e.index]["text"],
                "label": self.labels[e.given],
                "suggested": self.labels[e.suggested],
                "probability": float(p[e.index, e.suggested]),
            }
            for e in find_label_errors(p, self.y)[:MAX_SUSPECTS]
        ]


def _quick(y: np.ndarray) -> LogisticRegression:
    return logistic(TEACHER_C["lsa"], np.ones(int(y.max()) + 1))


def _out_of_fold(vectors: Any, y: np.ndarray, num_labels: int) -> np.ndarray | None:
    """Return out-of-fold probabilities (N, labels), or None if there are too few records of a second label."""
    from sklearn.model_selection import StratifiedKFold

    if sorted(np.bincount(y, minlength=2))[-2] < 5:
        return None
    logits = np.zeros((len(y), num_labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label has fewer records than there are folds
        for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(y, y):
            logits[test] = decision_logits(_quick(y[train]).fit(vectors[train], y[train]), vectors[test], num_labels)
    return np.exp(log_softmax(logits))
