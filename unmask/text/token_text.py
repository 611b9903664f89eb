"""Convert tokens to readable text, and insert predicted tokens at the masks of a text.

Tokenizers write tokens differently (`##s`, `Ġstates`, `▁states`, one byte of three). A filled text should look as if a person
had typed it, and encode to the same ids.
"""

import re
from collections.abc import Sequence

from unmask.text.segmentation import has_chinese
from unmask.text.token_bytes import CHAR_TO_BYTE
from unmask.text.tokenizer import Tokenizer

CONTINUATION_PREFIX = "##"  # prefix of a WordPiece token inside a word
_SPACE = "▁"  # SentencePiece's space
_CLOSING = tuple(".,;:!?%)]}'’”，。；：！？、）》」")  # written without a space before them


def display_token(tokenizer: Tokenizer, id: int) -> str:
    """Return a token as readable text: ' states' for 'Ġstates' and '▁states'. WordPiece's '##s' is unchanged."""
    if tokenizer.type == "wordpiece" or tokenizer.special[id]:
        return tokenizer.token(id)
    return tokens_to_readable_text(tokenizer, [id])


def tokens_to_readable_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return `tokens_to_text`, with bytes of incomplete characters written as <0xE5>."""
    text = tokens_to_text(tokenizer, ids)
    if "\ufffd" not in text or tokenizer.type not in ("bpe", "byte"):
        return text
    raw = bytes(CHAR_TO_BYTE[c] for i in ids for c in tokenizer.token(i) if c in CHAR_TO_BYTE)
    escaped = raw.decode("utf-8", "surrogateescape")  # an undecodable byte becomes U+DC00 + byte
    return re.sub("[\udc80-\udcff]", lambda m: f"<0x{ord(m[0]) - 0xDC00:02X}>", escaped)


def tokens_to_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of consecutive tokens, with a leading space if they start a word."""
    tokens = [tokenizer.token(i) for i in ids]
    if tokenizer.type == "wordpiece":
        return "".join(_space_before(token) + token.removeprefix(CONTINUATION_PREFIX) for token in tokens)
    if tokenizer.type in ("bpe", "byte") and not any(_SPACE in token for token in tokens):
        return tokenizer.decode(ids)  # several tokens may share one character
    return "".join(tokens).replace(_SPACE, " ")


def _space_before(token: str) -> str:
    return "" if token.startswith((CONTINUATION_PREFIX, *_CLOSING)) or is_ideograph(token) else " "


def mask_spans(tokenizer: Tokenizer, text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans that fills replace: each mask, with the space before it if the tokenizer's mask token includes it."""
    added = None if tokenizer.mask is None else tokenizer.backend.get_added_tokens_decoder().get(tokenizer.mask)
    if added is None or not added.lstrip:
        return list(spans)
    return [(len(text[:start].rstrip()), end) for start, end in spans]


def display_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return one token as in `display_token`, or several tokens joined to a word."""
    if len(ids) == 1:
        return display_token(tokenizer, ids[0])
    if tokenizer.type == "wordpiece":
        return tokens_to_text(tokenizer, ids).strip()
    return tokens_to_readable_text(tokenizer, ids)


def fill_spans(
    tokenizer: Tokenizer, text: str, spans: Sequence[tuple[int, int]], ids: Sequence[int | Sequence[int]]
) -> tuple[str, list[tuple[int, int]]]:
    """Replace each of `spans` (sorted, [start, end)) by one or several tokens. Return the text and the new spans."""
    out, filled, done = "", [], 0
    words = [list(i) if isinstance(i, Sequence) else [int(i)] for i in ids]
    for start, end, run in _runs(tokenizer, spans, words):
        out += text[done:start]
        done = end
        token = tokens_to_text(tokenizer, run)
        if tokenizer.type == "wordpiece":
            token = token.removeprefix(" ")
            if tokenizer.token(run[0]).startswith(CONTINUATION_PREFIX):
                out = out.rstrip()
            elif _one_word(out[-1:], token[:1]):
                out += " "
        elif not out:
            token = token.lstrip() or token
        spaces = len(token) - len(token.lstrip()) if token.strip() else 0
        filled.append((len(out) + spaces, len(out) + len(token)))
        out += token
        if tokenizer.type == "wordpiece" and _one_word(token[-1:], text[done : done + 1]):
            out += " "  # "[MASK]ing" was tokenized as two words
    return out + text[done:], filled


def _runs(
    tokenizer: Tokenizer, spans: Sequence[tuple[int, int]], words: Sequence[list[int]]
) -> list[tuple[int, int, list[int]]]:
    """Group spans that are filled together, as (start, end, ids): adjacent byte-level tokens may form one character."""
    byte_level = tokenizer.type in ("bpe", "byte")
    runs: list[tuple[int, int, list[int]]] = []
    for (start, end), ids in zip(spans, words):
        if byte_level and runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end, runs[-1][2] + ids)
        else:
            runs.append((start, end, ids))
    return runs


def _one_word(a: str, b: str) -> bool:
    """Return whether BERT would treat two adjacent characters as parts of one word."""
    return a.isalnum() and b.isalnum() and not is_ideograph(a) and not is_ideograph(b)


def is_ideograph(text: str) -> bool:
    """Return whether `text` starts with a Chinese character, which is a word of its own for BERT.

    >>> is_ideograph("中国"), is_ideograph("China"), is_ideograph("")
    (True, False, False)
    """
    return has_chinese(text[:1])
