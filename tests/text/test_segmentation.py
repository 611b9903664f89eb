"""Sentence and word segmentation against hand-annotated text, BERT's pre-tokenizer, and arbitrary text."""

import time
from itertools import pairwise

import numpy as np
import pytest
import rjieba
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import BertPreTokenizer

from unmask.text.segmentation import detect_language, sentence_starts, word_ids


def sentences(text: str, language="en") -> list[str]:
    starts = [*sentence_starts(text, language).tolist(), len(text)]
    return [text[a:b] for a, b in pairwise(starts)]


def words(text: str, language="en") -> list[str]:
    ids = word_ids(text, language)
    return ["".join(c for c, i in zip(text, ids) if i == n) for n in range(ids.max() + 1)]


# "|" marks the start of a sentence.
ENGLISH = [
    "It ended. |Then it began again! |Did it? |Yes.",
    "Mr. Smith met Dr. Jones and Mrs. Lee. |They talked.",
    "The U.S. Congress met. |He lives in the U.S. |The end.",
    "Use a tool, e.g. Git or i.e. Mercurial. |Done.",
    "J. R. R. Tolkien wrote it. |Tolkien was pleased.",
    "It costs 3.50 dollars, or 4.25 at noon. |Pay at 5 p.m. |The shop closes then.",
    "Wait... what? |Well... |No.",
    'He said "Stop." |She did not. |"Why?" he asked. |(It was late.) |Then he left.',
    "No. 5 is alive. |He said no. |The end.",
    "See Fig. 3 for more. |It was Jan. 5 then.",
    "A heading\n\n|A paragraph that has no stop\n\n|another one",
    "One line\nand the next line. |The end",
    "1. Introduction\n2. Methods and more\n",
    "it was bad. |the end came quickly. |really!",
    "the plot is thin . |the acting , by j . r . smith , is fine .",
    "It was 1990. |We moved.",
    "Acme Inc. Chairman Bob spoke. |Acme Inc. |It was sold.",
]
CHINESE = [
    "我很喜欢。|你呢？|当然！|好；|就这样……|走吧。",
    "他说：“你好。”|然后走了。",
    "（真的吗？）|是的。",
    "标题\n\n|正文没有句号",
    "请看 www.example.com 和 3.5 元。|好的。",
    "他说 Hello World. |Then he left. |再见。",
]


@pytest.mark.parametrize("marked", ENGLISH)
def test_english_sentences(marked):
    assert sentences(marked.replace("|", "")) == marked.split("|")


@pytest.mark.parametrize("marked", CHINESE)
def test_chinese_sentences(marked):
    assert sentences(marked.replace("|", ""), "zh") == marked.split("|")


@given(
    st.text(alphabet=st.sampled_from("aB1 .!?\n\"'(。！？；…”我 \u3000U.S"), max_size=60), st.sampled_from(["en", "zh"])
)
def test_sentences_cover_the_text_and_none_is_empty(text, language):
    parts = sentences(text, language)
    assert "".join(parts) == text
    assert all(parts)
    if text.strip():
        assert all(part.strip() for part in parts)


@pytest.mark.parametrize(
    "text", ["." * 300_000, "?!" * 150_000 + "a", "\n " * 150_000, '."' * 100_000, "a. " * 100_000]
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_segmentation_time_is_linear(text, language):
    start_time = time.process_time()
    sentence_starts(text, language)
    word_ids(text, language)
    assert time.process_time() - start_time < 3


def test_empty_text():
    assert len(sentence_starts("", "en")) == 0
    assert len(word_ids("", "zh")) == 0
    assert sentence_starts(" \n\n ", "en").tolist() == [0]


# Blocks whose punctuation is the same in every Unicode version: Python and the Rust library use different versions.
LETTERS = st.one_of(
    st.sampled_from("ab Z9'.,-$_\n\t\u3000我们电影。，“”…"),
    *(
        st.characters(min_codepoint=first, max_codepoint=last, exclude_categories=("Cc", "Cs", "Cn"))
        for first, last in ((0x20, 0x52F), (0x2000, 0x206F), (0x20A0, 0x22FF), (0x3000, 0x30FF))
    ),
)


@given(st.text(LETTERS, max_size=60))
def test_words_match_bert(text):
    """One word per token of BERT's pre-tokenizer, with Chinese characters separated as in its normalizer."""
    spaced = "".join(f" {c} " if "\u4e00" <= c <= "\u9fff" else c for c in text)
    ids = word_ids(text, "en")
    assert ids.dtype == np.int32
    assert ids.shape == (len(text),)
    assert (words(text) if text else []) == [token for token, _ in BertPreTokenizer().pre_tokenize_str(spaced)]


def test_words_are_ordered_and_contain_no_spaces():
    assert words("Don't stop, it's $5!") == ["Don", "'", "t", "stop", ",", "it", "'", "s", "$", "5", "!"]
    assert word_ids(" a  b", "en").tolist() == [-1, 0, -1, -1, 1]
    assert words("naïve Ångström привет") == ["naïve", "Ångström", "привет"]


def test_chinese_words_match_the_segmenter():
    text = "我们喜欢看电影，因为剧情很精彩。"
    assert words(text, "zh") == list(rjieba.cut(text))
    assert words("这件T恤 very good，3.5元", "zh") == ["这件", "T恤", "very", "good", "，", "3", ".", "5", "元"]


def test_chinese_in_english_text_is_one_word_per_character():
    assert words("see 我们 there") == ["see", "我", "们", "there"]


def test_language():
    assert detect_language("The film was shot in 北京 and shown in London, Paris and New York.") == "en"
    assert detect_language("这台 ThinkPad X1 的键盘很好 (very good)，电池也不错。") == "zh"
    assert detect_language("12345 !!") == "en"
