"""What a fine-tuned model has to beat on the same records: counted words, and the same model without pre-training.

For classify, counted words are TF-IDF + a linear model; what they are for other tasks is in simple.py. The linear model gives logits; from
there on everything (temperature, thresholds, scores) is the task's own, so that the figures compare. Logistic regression for labels, one against the rest for several, ridge regression for numbers; how strongly it is
regularised is chosen by cross-validation on the training records.
"""

import warnings
from collections.abc import Sequence
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

from unmask.console import Console
from unmask.labels.records import Record
from unmask.recipe import Recipe
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import ensure
from unmask.runs.part import Part, prepare
from unmask.runs.simple_baselines import SIMPLE, Found
from unmask.tasks.classify.targets import TARGETS, Number, Several
from unmask.tasks.classify.task import Classify
from unmask.tasks.metrics import indicator
from unmask.text.segmentation import language_of
from unmask.train.run import Run

LINEAR, SCRATCH, FOLDER = "TF-IDF + linear", "without pre-training", "without-pretraining"
FOLDS = 3
SMALL = 200  # records below which a word that occurs once counts too
NEVER = -30.0  # logit of a label that the training records lack


class Words(TransformerMixin, BaseEstimator):
    """Texts, or pairs of them, → TF-IDF of words and pairs of words; of a pair both, where they differ, and what they share.

    Chinese, which has no spaces, is cut into characters.
    """

    def __init__(self, rare: int = 2):
        self.rare = rare

    def fit(self, records: Sequence[Record], y: Any = None) -> "Words":
        texts = [r[role] for r in records for role in ("text", "pair") if role in r]
        chinese = language_of(t[:200] for t in texts) == "zh"  # Japanese too, by its share of the same characters
        cut: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3)} if chinese else {"ngram_range": (1, 2)}
        self.vectorizer_ = TfidfVectorizer(min_df=self.rare, sublinear_tf=True, **cut).fit(texts)
        return self

    def transform(self, records: Sequence[Record]) -> Any:
        a = self.vectorizer_.transform([r["text"] for r in records])
        if not any("pair" in r for r in records):
            return a
        b = self.vectorizer_.transform([r.get("pair", "") for r in records])
        return hstack([a, b, abs(a - b), a.multiply(b)]).tocsr()


class Linear:
    """A linear model that gives what a task's model gives: logits for records, in the order of the labels."""

    def __init__(self, learnt: dict[str, Any], train: Sequence[Record]):
        self.goal, records = TARGETS[learnt.get("target", "one")](learnt), list(train)
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
        if isinstance(self.goal, Number):
            return Ridge(), {"alpha": [0.1, 1.0, 10.0]}, "r2"
        if isinstance(self.goal, Several):
            return OneVsRestClassifier(LogisticRegression(max_iter=1000)), {"estimator__C": [1, 10, 100]}, "f1_micro"
        weights = None if self.goal.weights is None else dict(enumerate(self.goal.weights))
        logistic = LogisticRegression(max_iter=1000, class_weight=weights)
        return logistic, {"C": [1, 10, 100]}, "f1_macro" if weights else "accuracy"

    def _aims(self, records: Sequence[Record]) -> np.ndarray:
        goal = self.goal
        if isinstance(goal, Number):
            return np.array([r["label"] for r in records], np.float64)
        if isinstance(goal, Several):
            return indicator([r["label"] for r in records], goal.labels)
        return np.array([goal.place[str(r["label"])] for r in records])

    def logits(self, records: Sequence[Record]) -> np.ndarray:
        goal, given = self.goal, list(records)
        if isinstance(goal, Number):
            return self.model.predict(given)[:, None]
        found = np.asarray(self.model.decision_function(given))
        if isinstance(goal, Several):
            return found.reshape(len(given), -1)
        if found.ndim == 1:  # two classes: one number says both
            found = np.stack([np.zeros_like(found), found], -1)
        logits = np.full((len(given), len(goal.labels)), NEVER)
        logits[:, self.model.classes_] = found
        return logits


def linear(
    task: Classify, train: Sequence[Record], dev: Sequence[Record], judged: Sequence[Record]
) -> tuple[dict[str, float], Any]:
    """(scores on `judged`, the strength of regularisation that was chosen)."""
    learnt = {k: v for k, v in task.learnt.items() if k not in ("temperature", "thresholds", "mean", "sd")}
    model = Linear(learnt, train)  # its own temperature and thresholds, and numbers as they are
    if dev:
        model.goal.tune(model.logits(dev), dev)
    return model.goal.score(model.goal.decode(model.logits(judged)), judged), model.chosen


def add_baselines(recipe: Recipe, run: Run, ctx: Context) -> None:
    """The results of a run with what each baseline reaches on the test records, or on the dev records where there are none."""
    part = prepare(recipe, cache=ctx.cache)
    name, judged = ("test", part.sets.test) if part.sets.test else ("dev", part.sets.dev)
    found: list[dict[str, Any]] = []
    if judged:
        drawn = ensure(Finetune(), without_pretraining(recipe), run.path / FOLDER, ctx.titled(SCRATCH))
        if ctx.main:
            for baseline, scores in counted(part, judged, ctx.console).items():
                if part.task.metric in scores:
                    ctx.console.say(f"{baseline}: {part.task.metric} {scores[part.task.metric]:.4f}")
                found.append({"baseline": baseline, "on": name, "records": len(judged), **scores})
            found.append({"baseline": SCRATCH, "on": name, "lr": drawn.get("lr"), **drawn[name]})
    else:
        ctx.console.warn("--baseline: no records to judge by; give --test or --dev")
    if ctx.main:
        run.write_json("results.json", run.results() | {"baselines": found})


def without_pretraining(recipe: Recipe) -> Recipe:
    """The recipe of a finished run for the same model with drawn weights, at a learning rate of its own."""
    alone = {"seeds": 1, "baseline": False, "augment": "", "teacher": ""}
    task = recipe.task.model_copy(update={"init": "random", "freeze": "none", **alone})
    train = recipe.train.model_copy(update={"lr": recipe.task.baseline_lr, "layer_decay": 1.0})
    return recipe.model_copy(update={"task": task, "train": train})


def counted(part: Part, judged: Sequence[Record], console: Console) -> Found:
    """Baselines that are made of counted words."""
    task, train = part.task, part.sets.train
    try:
        if isinstance(task, Classify):
            return {LINEAR: linear(task, train, part.sets.dev, judged)[0]}
        return SIMPLE[task.name](task, train, judged)
    except ValueError as error:  # scikit-learn's, of texts without a single word
        console.warn(f"--baseline: none can be counted from these texts: {error}")
        return {}
