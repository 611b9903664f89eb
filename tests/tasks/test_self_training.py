"""Self-training of the linear model: its views, hidden states of a part of the texts, and texts or labels that could mislead it."""

import random
import warnings
from typing import Any

import numpy as np
import pytest
from near import gap
from runs.learning import TOPICS, texts_of, topic_rows

from unmask.tasks.classify.linear import LinearModel
from unmask.tasks.classify.self_training import SelfTraining, self_train
from unmask.tasks.classify.views import MIN_HIDDEN, Views, match_prior

STATE: dict[str, Any] = {"labels": list(TOPICS)}


def hidden_states(rows: list[dict[str, Any]], signal: float, seed: int = 0) -> np.ndarray:
    """Return vectors of which one dimension knows the label."""
    hidden = np.random.default_rng(seed).normal(size=(len(rows), 16))
    hidden[:, 0] += [signal if row["label"] == TOPICS[1] else -signal for row in rows]
    return hidden


def accuracy(model: LinearModel, rows: list[dict[str, Any]]) -> float:
    return float(np.mean([TOPICS[k] == row["label"] for k, row in zip(model.logits(rows).argmax(-1), rows)]))


@pytest.mark.parametrize("prior", [[0.5, 0.5], [0.9, 0.1], [0.02, 0.98], [0.2, 0.3, 0.5]])
def test_soft_labels_have_the_prior(prior: list[float]) -> None:
    logits = np.random.default_rng(0).normal(size=(500, len(prior)))
    probabilities = match_prior(logits, np.array(prior))
    assert gap(probabilities.mean(0), prior) < 1e-3
    assert gap(probabilities.sum(1), np.ones(500)) < 1e-9
    order = np.argsort(logits[:, 0] - logits[:, 1])
    assert (np.diff((probabilities[:, 0] / probabilities[:, 1])[order]) >= 0).all()  # texts keep their order


def test_soft_labels_have_the_label_distribution_of_the_records() -> None:
    train = topic_rows(60, 1, TOPICS, (0.8, 0.2))
    share = (sum(row["label"] == "sky" for row in train) + 1) / 62  # too far from equal shares to assume these
    trained = self_train(STATE, train, texts_of(topic_rows(400, 2)))
    assert gap(trained.soft_labels.mean(0)[1], share) < 1e-3


def test_hidden_states_help_and_may_cover_only_the_first_texts() -> None:
    train, unlabeled, test = topic_rows(8, 1), topic_rows(300, 2), topic_rows(400, 9)
    hidden = hidden_states([*train, *unlabeled], signal=3)
    without, part, whole = (
        self_train(STATE, train, texts_of(unlabeled), states) for states in (None, hidden[: 8 + 150], hidden)
    )

    def soft_accuracy(trained: SelfTraining) -> float:
        rows = [unlabeled[n] for n in trained.used.tolist()]
        return float(np.mean([TOPICS[k] == r["label"] for k, r in zip(trained.soft_labels.argmax(-1), rows)]))

    for trained in (without, part, whole):
        assert trained.model is not None and len(trained.soft_labels) == len(trained.used)
    assert soft_accuracy(whole) > 0.95 and soft_accuracy(part) > 0.9
    assert soft_accuracy(whole) >= soft_accuracy(without)
    assert part.model is not None and accuracy(part.model, test) > 0.9


@pytest.mark.parametrize("known", [0, 1, MIN_HIDDEN - 1])
@pytest.mark.parametrize("words", [False, True])
def test_too_few_hidden_states_are_not_used(known: int, words: bool) -> None:
    train, unlabeled = topic_rows(0 if words else 12, 1), topic_rows(200, 2)
    hidden = hidden_states([*train, *unlabeled], signal=3)[: len(train) + known]
    given = {topic: [f"{topic}ba{end}" for end in ("ba", "ce", "di", "fo", "gu", "ha")] for topic in TOPICS}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected, found = (
            self_train(STATE, train, texts_of(unlabeled), states, given if words else None) for states in (None, hidden)
        )
    assert gap(found.soft_labels, expected.soft_labels) < 1e-9


def test_views_have_the_rows_of_the_similar_texts() -> None:
    train, unlabeled = topic_rows(20, 1), texts_of(topic_rows(100, 2))
    foreign = [f"other{n} thing{n} matter{n}" for n in range(30)]
    texts = [*foreign[:15], *unlabeled, *foreign[15:]]
    views = Views(train, texts, hidden_states([*train, *({"label": ""} for _ in texts)], 0.0))
    assert not set(views.used.tolist()) & {n for n, text in enumerate(texts) if text in foreign}
    assert views.num_dropped == 130 - len(views.used)
    assert all(len(view) == 20 + len(views.used) for view in views.dense.values())
    assert views.tfidf.shape[0] == views.num_known == 20 + len(views.used)


# --------------------------------------------------------------------------------- what could mislead self-training


def other_domain(count: int, seed: int) -> list[str]:
    """Return texts that share the filler words with the labeled texts, but have other topics."""
    return texts_of(topic_rows(count, seed, ("law", "food")))


def only_one_label(count: int, seed: int) -> list[str]:
    return texts_of([row for row in topic_rows(2 * count, seed) if row["label"] == "sea"])


def with_wrong_labels(rows: list[dict[str, Any]], share: float, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [r | {"label": TOPICS[r["label"] == TOPICS[0]]} if rng.random() < share else r for r in rows]


@pytest.mark.parametrize("num_labels", [24, 150])
@pytest.mark.parametrize("case", ["other domain", "one label", "wrong labels"])
def test_self_training_is_not_worse_than_the_labels_alone_or_refused(case: str, num_labels: int) -> None:
    """The mean over seeds; the tolerance is the error of the mean difference.

    With 150 labels, cross-validation and similarity refuse texts that mislead. With 24 they cannot: single seeds lose 26 points.
    """
    test, differences, notes = topic_rows(400, 99), [], []
    for seed in range(5):
        train = topic_rows(num_labels, seed)
        texts = texts_of(topic_rows(500, 50 + seed))
        if case == "other domain":
            texts = other_domain(500, 50 + seed)
        elif case == "one label":
            texts = only_one_label(500, 50 + seed)
        else:
            train = with_wrong_labels(train, 0.3, 1000 + seed)
        trained = self_train(STATE, train, texts)
        notes.append(trained.note)
        if trained.model is None:
            assert trained.note.startswith("no self-training: ")
        else:
            differences.append(accuracy(trained.model, test) - accuracy(LinearModel.fit(STATE, train), test))
    if num_labels == 150 and case != "wrong labels":
        assert not differences, notes
    if differences:
        error = np.std(differences) / len(differences) ** 0.5
        assert np.mean(differences) > -2 * error - 0.02, (differences, notes)


def test_equal_scores_in_cross_validation_keep_self_training() -> None:
    train = with_wrong_labels(topic_rows(120, 1), 0.05, 1000)
    trained = self_train(STATE, train, texts_of(topic_rows(300, 2)))
    assert trained.model is not None and trained.out_of_fold is not None and trained.out_of_fold_alone is not None


# ------------------------------------------------------------------------------------------------- words and labels


def words_for(topics: tuple[str, str]) -> dict[str, list[str]]:
    """Return words of both topics for the labels TOPICS: swapped topics are wrong words."""
    return {
        label: [f"{topic}{a}{b}" for a in ("ba", "ce") for b in ("ba", "ce", "di")]
        for label, topic in zip(TOPICS, topics)
    }


@pytest.mark.parametrize("num_labels", [24, 150])
def test_wrong_words_are_not_used_if_labels_contradict_them(num_labels: int) -> None:
    train, unlabeled, test = topic_rows(num_labels, 1), texts_of(topic_rows(400, 2)), topic_rows(400, 9)
    without = self_train(STATE, train, unlabeled)
    wrong, right = (
        self_train(STATE, train, unlabeled, words=words_for(topics)) for topics in ((TOPICS[1], TOPICS[0]), TOPICS)
    )
    assert "the words are not used" in wrong.note and "the words are not used" not in right.note
    assert wrong.model and right.model and without.model
    assert accuracy(wrong.model, test) == accuracy(without.model, test)
    assert accuracy(right.model, test) >= accuracy(without.model, test) - 0.02
