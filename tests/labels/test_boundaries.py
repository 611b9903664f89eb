"""Word boundaries: raw text is split into words as in the training file."""

import json
from itertools import pairwise

import pytest

from unmask.labels.formats.conll import join_words
from unmask.tasks.tag.boundaries import Boundaries
from unmask.text.segmentation import split_words


def with_spaces(*sentences: str) -> list[tuple[str, list[list[int]]]]:
    """Return sentences of a column file, in which words are separated by spaces."""
    return [join_words(s.split(), [True] * len(s.split())) for s in sentences]


def with_original_spacing(*sentences: str) -> list[tuple[str, list[list[int]]]]:
    """Return sentences with their original spacing, as in CoNLL-U; `|` joins words without a space."""
    out = []
    for s in sentences:
        words = s.replace("|", " | ").split()
        without_marks = [w for w in words if w != "|"]
        touches = [n + 1 < len(words) and words[n + 1] == "|" for n, w in enumerate(words) if w != "|"]
        out.append(join_words(without_marks, [not t for t in touches]))
    return out


def split(fitted: dict | None, text: str) -> list[str]:
    stored = json.loads(json.dumps(fitted))  # as stored in unmask.json
    return [text[a:b] for a, b in Boundaries(stored)(text)]


KEEPS = with_spaces(
    "Bre-X fell in the U.S. , said Mr. Lee of Acme Inc. .",
    "The U.S. and the U.N. met Mr. Lee .",
    "A well-known man - the boss of Acme Inc. - left .",
    "He said ( again ) that 1,000 men came .",
    "An up-to-date list of Wal-Mart .",
)


def test_hyphens_and_periods_are_kept_as_in_the_training_file() -> None:
    fitted = Boundaries.fit(KEEPS)
    text = "Bre-Y, of the U.K., paid Mr. Lee (of Acme Inc.) 2,000."
    assert split(fitted, text) == [
        "Bre-Y", ",", "of", "the", "U.K.", ",", "paid", "Mr.", "Lee", "(", "of", "Acme", "Inc.", ")", "2,000", ".",
    ]  # fmt: skip
    for sentence, words in KEEPS:  # the training sentences are split as in the file
        assert Boundaries(fitted)(sentence) == words


def test_hyphens_and_periods_are_split_as_in_the_training_file() -> None:
    training = with_spaces(
        "Bre - X fell in the U . S .", "A well - known man is n't here , it 's said .", "Ann 's it 's"
    )
    assert split(Boundaries.fit(training), "Well-to-do U.K. men wasn't, he's") == [
        "Well", "-", "to", "-", "do", "U", ".", "K", ".", "men", "was", "n't", ",", "he", "'s",
    ]  # fmt: skip


def test_original_spacing_is_used_if_available() -> None:
    training = with_original_spacing(
        "I do|n't like e-mail|, he said|.", "It|'s Ann|'s|!", "You can|not|.", "He is|n't|.", "A x-ray|."
    )
    assert split(Boundaries.fit(training), "She doesn't, Bob's cannot e-mail.") == [
        "She", "does", "n't", ",", "Bob", "'s", "can", "not", "e-mail", ".",
    ]  # fmt: skip


def test_chinese_is_split_into_characters_or_words() -> None:
    by_character = Boundaries.fit([join_words(list("我在NBA看2012年"), [False] * 11)])
    assert split(by_character, "北京CBA, 3月") == ["北", "京", "C", "B", "A", ",", "3", "月"]
    by_word = Boundaries.fit(with_original_spacing("我们|喜欢|北京|。", "他们|喜欢|上海|。"))
    assert split(by_word, "我们喜欢上海。") == ["我们", "喜欢", "上海", "。"]


def test_default_boundaries_without_fitted_state() -> None:
    assert Boundaries.fit([]) is None
    text = "Bre-X, U.S. 👨‍👩‍👧 北京 cafe\u0301"
    assert Boundaries(None)(text) == split_words(text)  # a model directory of an older version
    assert split({}, text) == [
        "Bre-X",
        ",",
        "U.S",
        ".",
        "👨‍👩‍👧",
        "北",
        "京",
        "cafe\u0301",
    ]  # a model directory of another program


@pytest.mark.parametrize(
    "text", ["", "  ", "a" * 5000, "!" * 5000, "a-" * 2500, "\u200d\ufe0f", "a\u0301-b", "\x00a.b"]
)
def test_no_character_is_lost(text: str) -> None:
    for fitted in (None, {}, Boundaries.fit(KEEPS)):
        words = Boundaries(fitted)(text)
        assert "".join(text[a:b] for a, b in words) == "".join(text.split())
        assert all(a < b for a, b in words) and all(x[1] <= y[0] for x, y in pairwise(words))


def test_given_offsets_split_words() -> None:
    assert Boundaries({})("NewYork-based", [3, 7]) == [[0, 3], [3, 7], [7, 13]]
