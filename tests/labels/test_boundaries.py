"""Word boundaries: raw text is split as the training file has its words."""

import json
from itertools import pairwise

import pytest

from unmask.labels.formats.conll import join_words
from unmask.tasks.tag.boundaries import Boundaries
from unmask.text.segmentation import split_words


def spaced(*sentences: str) -> list[tuple[str, list[list[int]]]]:
    """Sentences of a column file: a word between blanks."""
    return [join_words(s.split(), [True] * len(s.split())) for s in sentences]


def glued(*sentences: str) -> list[tuple[str, list[list[int]]]]:
    """Sentences with their true spacing, as CoNLL-U has them: `|` where words touch."""
    out = []
    for s in sentences:
        words = s.replace("|", " | ").split()
        kept = [w for w in words if w != "|"]
        touches = [n + 1 < len(words) and words[n + 1] == "|" for n, w in enumerate(words) if w != "|"]
        out.append(join_words(kept, [not t for t in touches]))
    return out


def cut(learnt: dict | None, text: str) -> list[str]:
    stored = json.loads(json.dumps(learnt))  # as it comes out of unmask.json
    return [text[a:b] for a, b in Boundaries(stored)(text)]


KEEPS = spaced(
    "Bre-X fell in the U.S. , said Mr. Lee of Acme Inc. .",
    "The U.S. and the U.N. met Mr. Lee .",
    "A well-known man - the boss of Acme Inc. - left .",
    "He said ( again ) that 1,000 men came .",
    "An up-to-date list of Wal-Mart .",
)


def test_a_file_that_keeps_hyphens_and_stops() -> None:
    learnt = Boundaries.fit(KEEPS)
    text = "Bre-Y, of the U.K., paid Mr. Lee (of Acme Inc.) 2,000."
    assert cut(learnt, text) == [
        "Bre-Y", ",", "of", "the", "U.K.", ",", "paid", "Mr.", "Lee", "(", "of", "Acme", "Inc.", ")", "2,000", ".",
    ]  # fmt: skip
    for own, words in KEEPS:  # its own sentences have its own words
        assert Boundaries(learnt)(own) == words


def test_a_file_that_splits_them() -> None:
    apart = spaced("Bre - X fell in the U . S .", "A well - known man is n't here , it 's said .", "Ann 's it 's")
    assert cut(Boundaries.fit(apart), "Well-to-do U.K. men wasn't, he's") == [
        "Well", "-", "to", "-", "do", "U", ".", "K", ".", "men", "was", "n't", ",", "he", "'s",
    ]  # fmt: skip


def test_true_spacing_is_taken_where_the_file_has_it() -> None:
    known = glued("I do|n't like e-mail|, he said|.", "It|'s Ann|'s|!", "You can|not|.", "He is|n't|.", "A x-ray|.")
    assert cut(Boundaries.fit(known), "She doesn't, Bob's cannot e-mail.") == [
        "She", "does", "n't", ",", "Bob", "'s", "can", "not", "e-mail", ".",
    ]  # fmt: skip


def test_chinese_characters_and_words() -> None:
    by_character = Boundaries.fit([join_words(list("我在NBA看2012年"), [False] * 11)])
    assert cut(by_character, "北京CBA, 3月") == ["北", "京", "C", "B", "A", ",", "3", "月"]
    by_word = Boundaries.fit(glued("我们|喜欢|北京|。", "他们|喜欢|上海|。"))
    assert cut(by_word, "我们喜欢上海。") == ["我们", "喜欢", "上海", "。"]


def test_without_anything_learnt() -> None:
    assert Boundaries.fit([]) is None
    text = "Bre-X, U.S. 👨‍👩‍👧 北京 cafe\u0301"
    assert Boundaries(None)(text) == split_words(text)  # a folder of an older version
    assert cut({}, text) == ["Bre-X", ",", "U.S", ".", "👨‍👩‍👧", "北", "京", "cafe\u0301"]  # another program's folder


@pytest.mark.parametrize(
    "text", ["", "  ", "a" * 5000, "!" * 5000, "a-" * 2500, "\u200d\ufe0f", "a\u0301-b", "\x00a.b"]
)
def test_no_character_is_lost(text: str) -> None:
    for learnt in (None, {}, Boundaries.fit(KEEPS)):
        words = Boundaries(learnt)(text)
        assert "".join(text[a:b] for a, b in words) == "".join(text.split())
        assert all(a < b for a, b in words) and all(x[1] <= y[0] for x, y in pairwise(words))


def test_borders_cut_words_too() -> None:
    assert Boundaries({})("NewYork-based", [3, 7]) == [[0, 3], [3, 7], [7, 13]]
