"""Words instead of labels: which texts they label, and that the words themselves are not what is learned."""

import numpy as np
import pytest
from runs import learning
from runs.learning import TOPICS, chinese_rows, texts_of, topic_rows

from unmask.errors import UserError
from unmask.tasks.classify.self_training import self_train
from unmask.tasks.classify.words import count_words, label_by_words, parse_words, word_pattern

WORDS = {"pos": ["good", "great"], "neg": ["bad", "not good"]}
TEXTS = ["a good and great film", "Good, but bad", "not good", "nothing", "goodness", "BAD bad bad", "good good bad"]


def test_a_text_gets_the_label_with_more_different_words() -> None:
    counts = [[2, 0], [1, 1], [0, 1], [0, 0], [0, 0], [0, 1], [1, 1]]
    assert count_words(WORDS, TEXTS).tolist() == counts  # "not good" is not a word of pos
    found = label_by_words(WORDS, TEXTS * 10)
    assert found.rows.tolist() == [n for n in range(70) if n % 7 in (0, 2, 5)]
    assert found.y.tolist() == [0, 1, 1] * 10
    assert found.note == "words label 30 of 70 texts: pos 10, neg 20"


def test_words_are_removed_from_the_texts() -> None:
    found = label_by_words(WORDS, TEXTS * 10)
    assert found.texts[0].split() == ["a", "and", "film"] and not found.texts[1].split()
    pattern = word_pattern([word for each in WORDS.values() for word in each])
    assert not any(pattern.search(text) for text in found.texts)


def test_words_of_any_script_and_with_punctuation() -> None:
    words = parse_words(["cpp：C++、好用", "other: 不好用, f#"])
    assert words == {"cpp": ["C++", "好用"], "other": ["不好用", "f#"]}
    texts = ["I like c++.", "这个很好用", "这个不好用", "f# is fine", "C+", "abc++"]
    assert count_words(words, texts).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1], [0, 0], [0, 0]]


def test_rare_words_are_reported_with_their_counts() -> None:
    with pytest.raises(UserError) as caught:
        label_by_words({"pos": ["good"], "neg": ["bad", "worst"]}, ["good"] * 20 + ["bad"] * 9)
    assert "only 9 of 29 texts have more words of 'neg'" in caught.value.message
    assert "bad 9, worst 0" in str(caught.value.expected)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_self_training_from_words_knows_texts_without_the_words(language: str) -> None:
    make = chinese_rows if language == "zh" else topic_rows
    known = {t: list(learning.HANZI[t][:4]) if language == "zh" else learning.words_of(t, 8) for t in TOPICS}
    trained = self_train({"labels": list(TOPICS)}, [], texts_of(make(600, 2)), words=known)
    assert trained.model is not None
    pattern = word_pattern([word for each in known.values() for word in each])
    without = [row for row in make(800, 9) if not pattern.search(row["text"])]
    predicted = trained.model.logits(without).argmax(-1)
    accuracy = np.mean([TOPICS[k] == row["label"] for k, row in zip(predicted, without)])
    assert len(without) > 100 and accuracy > 0.85
    assert trained.note.startswith("self-training on 600 unlabeled texts; words label ")


def test_words_and_labels_are_used_together() -> None:
    """Few labels and few words are each worse than both."""
    state, test = {"labels": list(TOPICS)}, topic_rows(500, 9)
    train, unlabeled = topic_rows(8, 3), texts_of(topic_rows(800, 2))
    words = {topic: learning.words_of(topic, 3) for topic in TOPICS}

    def accuracy(*given: object) -> float:
        model = self_train(state, given[0], unlabeled, words=given[1]).model  # type: ignore[arg-type]
        assert model is not None
        return float(np.mean([TOPICS[k] == r["label"] for k, r in zip(model.logits(test).argmax(-1), test)]))

    both = accuracy(train, words)
    assert both > 0.9 and both >= max(accuracy(train, None), accuracy([], words)) - 0.02
