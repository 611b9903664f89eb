"""Which language a model reads, as far as its tokenizer tells, and a text of its own words where it is none that we write.

The studio and the server's first lines show example texts; one in a language that the model does not know would be a row of [UNK].
"""

from functools import cache

from unmask.inference.unknown import UNKNOWN, unknown_share
from unmask.text.token_text import CONTINUATION_PREFIX, display_token, is_ideograph
from unmask.text.tokenizer import Tokenizer

ENGLISH = "The old man opened the door, and his dog ran into the garden."
CHINESE = "老人打开门，他的狗跑进了花园。中国的首都是北京。"
HAN = 0.3  # share of Chinese pieces from which on a vocabulary is a Chinese one
PIECES = 1.5  # tokens of a Chinese character in a vocabulary that knows Chinese; English bytes take three
LETTERS = 3.5  # tokens of an English word in a vocabulary that has to spell it
LOOKED = 2000  # pieces of a vocabulary that are looked at
WORDS = 8  # of an example


@cache
def languages(tokenizer: Tokenizer) -> list[str]:
    """Those of "en" and "zh" that it knows, the first one best; [] for a vocabulary of something else (proteins, Thai)."""
    english, chinese = (encoding.ids for encoding in tokenizer.encode_batch([ENGLISH, CHINESE]))
    knows_chinese = unknown_share(tokenizer, chinese) < UNKNOWN / 5 and len(chinese) <= PIECES * len(CHINESE)
    if knows_chinese and _share_of_han(tokenizer) >= HAN:
        return ["zh"]
    # Byte-level: nothing is unknown.
    spelled = tokenizer.kind == "bpe" and len(english) > LETTERS * len(ENGLISH.split())
    found = ["en"] if unknown_share(tokenizer, english) < UNKNOWN and not spelled else []
    return found + (["zh"] if knows_chinese else [])


@cache
def own_words(tokenizer: Tokenizer) -> list[str]:
    """Some pieces of the vocabulary that are words, or letters where it has no words."""
    ids = _ordinary(tokenizer, 10 * LOOKED)
    if tokenizer.kind == "bpe":  # without the bytes that every such vocabulary has
        ids = [id for id in ids if len(tokenizer.token(id)) > 1]
    pieces = [display_token(tokenizer, id) for id in ids]
    words = [text.strip() for text in pieces if text.strip().isalnum() and not text.startswith(CONTINUATION_PREFIX)]
    words = list(dict.fromkeys(words))
    long = [word for word in words if len(word) > 2]
    chosen = long if len(long) >= WORDS else words
    return chosen[:: max(1, len(chosen) // WORDS)][:WORDS]


def own_text(tokenizer: Tokenizer, words: list[str]) -> str:
    """The words as one text: with blanks between them, unless it knows them better without."""
    texts = [" ".join(words), "".join(words)]
    shares = [unknown_share(tokenizer, encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    return texts[shares[1] < shares[0]]


def _share_of_han(tokenizer: Tokenizer) -> float:
    ids = _ordinary(tokenizer, LOOKED)
    return sum(any(map(is_ideograph, display_token(tokenizer, id))) for id in ids) / max(1, len(ids))


def _ordinary(tokenizer: Tokenizer, count: int) -> list[int]:
    """At most `count` ids that are no special tokens, from all over the vocabulary."""
    ids = [id for id in range(tokenizer.size) if not tokenizer.special[id]]
    return ids[:: -(-len(ids) // count)] if ids else []
