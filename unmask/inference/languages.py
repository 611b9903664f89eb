"""Detect the language of a model from its vocabulary, to choose example texts for the studio and the server's start message.

A text in another language would be a row of [UNK]. A model of neither English nor Chinese gets words of its own vocabulary.
"""

from functools import cache

from unmask.inference.unknown import WARN_FRACTION, unknown_fraction
from unmask.text.token_text import CONTINUATION_PREFIX, display_token, is_ideograph
from unmask.text.tokenizer import Tokenizer

ENGLISH = "The old man opened the door, and his dog ran into the garden."
CHINESE = "老人打开门，他的狗跑进了花园。中国的首都是北京。"
MIN_CHINESE_FRACTION = 0.3  # fraction of Chinese tokens from which a vocabulary counts as Chinese
MAX_TOKENS_PER_CHINESE_CHARACTER = 1.5  # above this, the vocabulary spells characters by bytes, which takes three
MAX_TOKENS_PER_ENGLISH_WORD = 3.5  # above this, the vocabulary has to spell English words
SAMPLED_TOKENS = 2000
NUM_EXAMPLE_WORDS = 8


@cache
def languages(tokenizer: Tokenizer) -> list[str]:
    """Return the known ones of "en" and "zh", best first, or [] for another vocabulary (proteins, Thai)."""
    english, chinese = (encoding.ids for encoding in tokenizer.encode_batch([ENGLISH, CHINESE]))
    is_short = len(chinese) <= MAX_TOKENS_PER_CHINESE_CHARACTER * len(CHINESE)
    knows_chinese = is_short and unknown_fraction(tokenizer, chinese) < WARN_FRACTION / 5
    if knows_chinese and _chinese_fraction(tokenizer) >= MIN_CHINESE_FRACTION:
        return ["zh"]
    # A byte-level vocabulary has no unknown tokens, so its language shows in the number of tokens.
    is_spelled = tokenizer.type == "bpe" and len(english) > MAX_TOKENS_PER_ENGLISH_WORD * len(ENGLISH.split())
    knows_english = unknown_fraction(tokenizer, english) < WARN_FRACTION and not is_spelled
    return ["en"] * knows_english + ["zh"] * knows_chinese


@cache
def vocabulary_words(tokenizer: Tokenizer) -> list[str]:
    """Return some words of the vocabulary, or letters if it has no words."""
    ids = _sample_ids(tokenizer, 10 * SAMPLED_TOKENS)
    if tokenizer.type == "bpe":  # without the single bytes, which every BPE vocabulary has
        ids = [id for id in ids if len(tokenizer.token(id)) > 1]
    tokens = [display_token(tokenizer, id) for id in ids]
    words = [text.strip() for text in tokens if text.strip().isalnum() and not text.startswith(CONTINUATION_PREFIX)]
    words = list(dict.fromkeys(words))
    long_words = [word for word in words if len(word) > 2]
    selected = long_words if len(long_words) >= NUM_EXAMPLE_WORDS else words
    return selected[:: max(1, len(selected) // NUM_EXAMPLE_WORDS)][:NUM_EXAMPLE_WORDS]


def join_words(tokenizer: Tokenizer, words: list[str]) -> str:
    """Join the words with spaces, or without if that has fewer unknown tokens."""
    texts = [" ".join(words), "".join(words)]
    spaced, joined = (unknown_fraction(tokenizer, encoding.ids) for encoding in tokenizer.encode_batch(texts))
    return texts[joined < spaced]


def _chinese_fraction(tokenizer: Tokenizer) -> float:
    ids = _sample_ids(tokenizer, SAMPLED_TOKENS)
    return sum(any(map(is_ideograph, display_token(tokenizer, id))) for id in ids) / max(1, len(ids))


def _sample_ids(tokenizer: Tokenizer, count: int) -> list[int]:
    """Return at most `count` ids of regular tokens, evenly spaced over the vocabulary."""
    ids = [id for id in range(tokenizer.size) if not tokenizer.special[id]]
    return ids[:: -(-len(ids) // count)] if ids else []
