"""Which language a model reads, as far as its tokenizer tells, and a text of its own words where it is none that we write.

The studio and the server's first lines show example texts; one in a language that the model does not know would be a row of [UNK].
"""

from functools import cache

from unmask.inference.unknown import WARN_FRACTION, unknown_fraction
from unmask.text.token_text import CONTINUATION_PREFIX, display_token, is_ideograph
from unmask.text.tokenizer import Tokenizer

ENGLISH = "The old man opened the door, and his dog ran into the garden."
CHINESE = "老人打开门，他的狗跑进了花园。中国的首都是北京。"
MIN_CHINESE_FRACTION = 0.3  # share of Chinese pieces from which on a vocabulary is a Chinese one
MAX_TOKENS_PER_CHINESE_CHARACTER = (
    1.5  # tokens of a Chinese character in a vocabulary that knows Chinese; English bytes take three
)
MAX_TOKENS_PER_ENGLISH_WORD = 3.5  # tokens of an English word in a vocabulary that has to spell it
SAMPLED_TOKENS = 2000  # pieces of a vocabulary that are looked at
NUM_EXAMPLE_WORDS = 8  # of an example


@cache
def languages(tokenizer: Tokenizer) -> list[str]:
    """Those of "en" and "zh" that it knows, the first one best; [] for a vocabulary of something else (proteins, Thai)."""
    english, chinese = (encoding.ids for encoding in tokenizer.encode_batch([ENGLISH, CHINESE]))
    knows_chinese = unknown_fraction(tokenizer, chinese) < WARN_FRACTION / 5 and len(
        chinese
    ) <= MAX_TOKENS_PER_CHINESE_CHARACTER * len(CHINESE)
    if knows_chinese and _chinese_fraction(tokenizer) >= MIN_CHINESE_FRACTION:
        return ["zh"]
    # Byte-level: nothing is unknown.
    spelled = tokenizer.type == "bpe" and len(english) > MAX_TOKENS_PER_ENGLISH_WORD * len(ENGLISH.split())
    found = ["en"] if unknown_fraction(tokenizer, english) < WARN_FRACTION and not spelled else []
    return found + (["zh"] if knows_chinese else [])


@cache
def vocabulary_words(tokenizer: Tokenizer) -> list[str]:
    """Some pieces of the vocabulary that are words, or letters where it has no words."""
    ids = _sample_ids(tokenizer, 10 * SAMPLED_TOKENS)
    if tokenizer.type == "bpe":  # without the bytes that every such vocabulary has
        ids = [id for id in ids if len(tokenizer.token(id)) > 1]
    pieces = [display_token(tokenizer, id) for id in ids]
    words = [text.strip() for text in pieces if text.strip().isalnum() and not text.startswith(CONTINUATION_PREFIX)]
    words = list(dict.fromkeys(words))
    long = [word for word in words if len(word) > 2]
    chosen = long if len(long) >= NUM_EXAMPLE_WORDS else words
    return chosen[:: max(1, len(chosen) // NUM_EXAMPLE_WORDS)][:NUM_EXAMPLE_WORDS]


def join_words(tokenizer: Tokenizer, words: list[str]) -> str:
    """The words as one text: with blanks between them, unless it knows them better without."""
    texts = [" ".join(words), "".join(words)]
    shares = [unknown_fraction(tokenizer, encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    return texts[shares[1] < shares[0]]


def _chinese_fraction(tokenizer: Tokenizer) -> float:
    ids = _sample_ids(tokenizer, SAMPLED_TOKENS)
    return sum(any(map(is_ideograph, display_token(tokenizer, id))) for id in ids) / max(1, len(ids))


def _sample_ids(tokenizer: Tokenizer, count: int) -> list[int]:
    """At most `count` ids that are no special tokens, from all over the vocabulary."""
    ids = [id for id in range(tokenizer.size) if not tokenizer.special[id]]
    return ids[:: -(-len(ids) // count)] if ids else []
