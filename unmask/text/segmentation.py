"""Sentence and word segmentation of English and Chinese text, as character offsets.

The character offsets of a tokenizer are looked up in these arrays, so word boundaries are the same for every tokenizer and do not
depend on `##`. Words follow BERT's BasicTokenizer (1810.04805): white space separates, and every punctuation character is a word
(`don't` is three words). Chinese words come from a segmenter (rjieba, equivalent to jieba), as in whole-word masking for Chinese
(1906.08101).

Cost: one regular-expression match per candidate sentence end, and one table look-up per character.
"""

import re
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Literal
from unicodedata import category

import numpy as np

Language = Literal["en", "zh"]

# Character classes.
SPACE, LETTER, PUNCTUATION, CJK = 0, 1, 2, 3
# Chinese characters as defined by BERT. Kana and Hangul are not included: they are letters.
CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
MIN_ZH_FRACTION = (
    0.2  # minimum fraction of Chinese letters; low, because Latin names and links in Chinese text have more characters
)


def detect_language(text: str) -> Language:
    """Detect the language from the fraction of Chinese characters among the letters of the first 100,000 characters.

    >>> detect_language("what a film"), detect_language("这部电影 GOOD"), detect_language("")
    ('en', 'zh', 'en')
    """
    return "en" if text.isascii() else detect_common_language([text[:100_000]])


def detect_common_language(texts: Iterable[str]) -> Language:
    """Detect the language of many texts together.

    >>> detect_common_language(["诺曼底在哪个国家？", "BERT"]), detect_common_language(["the 中 of China", "好"])
    ('zh', 'en')
    """
    counts = np.bincount(_classes("\n".join(texts) + "\n"), minlength=4)
    return "zh" if counts[CJK] > MIN_ZH_FRACTION * (counts[CJK] + counts[LETTER]) else "en"


def has_chinese(text: str) -> bool:
    """
    >>> has_chinese("T恤"), has_chinese("カナ"), has_chinese("a")
    (True, False, False)
    """
    return not text.isascii() and any(first <= ord(c) <= last for c in text for first, last in CJK_RANGES)


# -------------------------------------------------------------------------------------------------- sentences

_CLOSERS = "\"'”’»›)\\]}」』）】》〉"
_OPENERS = "\"'“‘«‹(\\[{「『（【《¿¡*_–—-"
# A stop, closing quotes and brackets, and the white space up to the next sentence; or a blank line. The leading character set makes
# the search 4x faster. Without the look-behind for two stops, a line of n dots would take time O(n²).
_STOP = re.compile(rf"[.!?…\n](?:(?<=\n)\s*\n\s*|(?<!\n)(?<![.!?…]{{2}})(?P<more>[.!?…]*)[{_CLOSERS}]*(?P<gap>\s+))")
_ZH_STOP = re.compile(rf"(?:[。！？；｡]|[!?]|……|…)+[{_CLOSERS}]*\s*|\n\s*\n\s*")
_NEXT = re.compile(rf"[{_OPENERS}]*(\w+)?")
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")

# Abbreviations in lower case, without the last dot. Never the end of a sentence:
_TITLES = """mr mrs ms messrs mme mlle dr prof rev hon gen col capt maj lt cmdr sgt sen rep gov pres st mt ft
e.g i.e cf vs viz ca approx"""
# … not the end before a number ("No. 5", but "He said no. The"):
_NUMBERED = """no nos fig figs vol vols p pp art sec ch chap eq ed jan feb mar apr jun jul aug sep sept oct
nov dec"""
# … the end only before a word that often starts sentences ("the U.S. The", but "the U.S. Congress"):
_AMBIGUOUS = """etc inc ltd co corp jr sr bros dept univ assn ave blvd a.m p.m ph.d m.d b.a m.a al"""
_STARTERS = """a an the this that these those it its he she we they i you his her our their my your there here
in on at by for from with to of as if when while after before since but and or so yet however although though
because what who why how where which not no yes now then once one some many most all both each every another
such even only just let do did does is are was were has have had will would can could should may might must"""
_TITLE, _NUMBER, _MAYBE, _STARTER = (frozenset(w.split()) for w in (_TITLES, _NUMBERED, _AMBIGUOUS, _STARTERS))
_SHORTENED = _TITLE | _NUMBER | _MAYBE


def sentence_starts(text: str, language: Language) -> np.ndarray:
    """Return the offsets at which sentences start, int64; the first is 0.

    A sentence includes the white space after it, so the sentences add up to the text. None is empty.

    >>> text = "Mr. Lee paid $3.50. (He left!) Why?"
    >>> [text[start:][:9] for start in sentence_starts(text, "en")]
    ['Mr. Lee p', '(He left!', 'Why?']
    """
    if not text:
        return np.zeros(0, np.int64)
    starts = _english_starts(text)
    if language == "zh":  # in addition to the English rules, for quotations in Latin script
        starts = sorted({*starts, *(m.end() for m in _ZH_STOP.finditer(text))})
    first = len(text) - len(text.lstrip())  # leading white space belongs to the first sentence
    return np.array([0, *(s for s in starts if first < s < len(text))], np.int64)


def sentences(text: str) -> list[str]:
    """
    >>> sentences("It rained. We left.")
    ['It rained.', 'We left.']
    """
    starts = [*sentence_starts(text, detect_language(text)).tolist(), len(text)]
    return [part for a, b in pairwise(starts) if (part := text[a:b].strip())] or [""]


def _english_starts(text: str) -> list[int]:
    lower = text.islower()  # capitals carry no information
    starts = []
    for match in _STOP.finditer(text):
        more, gap = match.groups()
        stop, end = match.span()
        if (
            gap is None
            or gap.count("\n") > 1
            or _is_sentence_end(text, stop, end, not more and text[stop] == ".", lower)
        ):
            starts.append(end)
    return starts


def _is_sentence_end(text: str, stop: int, end: int, dot: bool, lower: bool) -> bool:
    """Return whether the stop at offset `stop` ends a sentence. `end`: of the white space after it; `dot`: it is a single dot."""
    following = _NEXT.match(text, end)
    word = following[1] if following and following[1] else ""
    before = text[max(0, stop - 24) : stop]
    # A space before the stop: tokenized text, often in lower case, in which every stop ends a sentence.
    detached = before[-1:].isspace()
    if not lower and not detached and word[:1].islower():
        return False
    if not dot:
        return True
    last = (before.rsplit(None, 1) or [""])[-1].lstrip("\"'“‘«([{").lower()
    if detached:  # "j . r . r . tolkien"
        return not (len(last) == 1 and last.isalpha() and last not in "ia")
    if not last or not word or (len(last) > 1 and last.isalpha() and last not in _SHORTENED):
        return True
    if last in _TITLE:
        return False
    if last in _NUMBER:
        return not word[0].isdigit()
    if len(last) == 1 and last.isalpha() and last != "i":  # an initial: "J. Smith"
        return False
    if last in _MAYBE or _ACRONYM.fullmatch(last):  # "U.S"
        return word.lower() in _STARTER
    if last.isdigit() and len(last) < 4:  # "1. Introduction" at the start of a line
        start = stop - len(last)
        return start > 0 and text[start - 1] != "\n"
    return True


# ------------------------------------------------------------------------------------------------------ words


def word_ids(text: str, language: Language) -> np.ndarray:
    """Return (len(text),) int32: the index of the word of each character, -1 for white space.

    With "zh", the segmenter defines the Chinese words; with "en", each Chinese character is a word.

    >>> word_ids("It's 5 o'clock", "en").tolist()
    [0, 0, 1, 2, -1, 3, -1, 4, 5, 6, 6, 6, 6, 6]
    >>> word_ids("我们喜欢T恤。", "zh").tolist()
    [0, 0, 1, 1, 2, 2, 3]
    """
    if not text:
        return np.zeros(0, np.int32)
    kinds = _classes(text)
    starts = np.empty(len(kinds), bool)
    starts[0] = True
    np.not_equal(kinds[1:], kinds[:-1], out=starts[1:])
    starts |= kinds >= PUNCTUATION
    if language == "zh" and (kinds == CJK).any():
        _join_segments(text, kinds, starts)
    space = kinds == SPACE
    starts[space] = False
    ids = np.cumsum(starts, dtype=np.int32)
    ids -= 1
    ids[space] = -1
    return ids


def _join_segments(text: str, kinds: np.ndarray, starts: np.ndarray) -> None:
    """Clear the word starts inside segments with a Chinese character, except next to punctuation or white space."""
    import rjieba  # imported here because its dictionary is slow to load

    segments = rjieba.cut(text)
    ends = np.cumsum(np.fromiter(map(len, segments), np.int64, len(segments)))
    assert ends[-1] == len(text), "the segmenter dropped characters"
    offsets = np.concatenate(([0], ends[:-1]))
    chinese = np.repeat(np.maximum.reduceat(kinds, offsets) == CJK, np.diff(offsets, append=len(text)))
    word = (kinds == CJK) | (kinds == LETTER)
    inside = chinese & word
    inside[1:] &= word[:-1]
    inside[offsets] = False
    starts[inside] = False


def _classes(text: str) -> np.ndarray:
    """Return (len(text),) uint8: SPACE, LETTER, PUNCTUATION or CJK of each character."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    table = _class_table()
    return table[np.minimum(points, len(table) - 1)]


@cache
def _class_table() -> np.ndarray:
    """Return the class of each code point below U+30000. Punctuation as in BERT: P*, and ASCII except letters and digits."""
    table = np.full(0x30000, LETTER, np.uint8)
    for point in range(0x20000):  # above are only Chinese characters
        char = chr(point)
        if char.isspace():
            table[point] = SPACE
        elif category(char)[0] == "P" or (0x20 < point < 0x7F and not char.isalnum()):
            table[point] = PUNCTUATION
    for first, last in CJK_RANGES:
        table[first : last + 1] = CJK
    return table


def split_words(text: str, borders: Iterable[int] = (), language: Language = "en") -> list[list[int]]:
    """Return the spans of words. Punctuation, symbols and Chinese characters are separate words; `borders` are also split points.

    With `language` "zh", the segmenter joins Chinese characters into words.

    >>> text = "Paris🇫🇷, 北京"
    >>> [text[a:b] for a, b in split_words(text)]
    ['Paris', '🇫🇷', ',', '北', '京']
    >>> split_words("newyork", [3])
    [[0, 3], [3, 7]]
    """
    if not text:
        return []
    ids = word_ids(text, language).astype(np.int64)
    is_start = np.empty(len(ids), bool)
    is_start[0], is_start[1:] = True, ids[1:] != ids[:-1]
    if not text.isascii():
        is_start[_symbol_borders(text)] = True
    is_start[[border for border in borders if 0 <= border < len(text)]] = True
    starts = np.flatnonzero(is_start).tolist()
    return [[a, b] for a, b in zip(starts, [*starts[1:], len(text)]) if ids[a] >= 0]


def _symbol_borders(text: str) -> list[int]:
    """Return the offsets of changes between letters and symbols (emoji, flags). Marks and joiners belong to the previous character."""
    borders, previous = [], ""
    for n, character in enumerate(text):
        kind = category(character)[0]
        kind = "letter" if kind in "LN" else "symbol" if kind == "S" else "" if kind in "MC" else "other"
        if kind and previous and kind != previous:
            borders.append(n)
        previous = kind or previous
    return borders


_CHINESE = "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK_RANGES)
_LATIN, _ANY = re.compile("[a-z0-9]+"), re.compile(f"[{_CHINESE}]|[^\\W_{_CHINESE}]+")


def scoring_words(text: str, language: str = "en") -> list[str]:
    """Return the words that text metrics such as ROUGE compare, in lower case.

    In English: runs of a–z and 0–9. In other languages: single Chinese characters, and runs of other letters and digits.

    >>> scoring_words("It's 3 o'clock"), scoring_words("猫在 Mat 上", "zh")
    (['it', 's', '3', 'o', 'clock'], ['猫', '在', 'mat', '上'])
    """
    return (_LATIN if language == "en" else _ANY).findall(text.lower())
