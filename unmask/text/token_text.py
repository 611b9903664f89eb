"""Pieces of a vocabulary as text that people read, and text with pieces put in where masks stood.

Each kind of tokenizer writes its pieces differently (`##s`, `Ġstates`, `▁states`, one byte of three). A
filled sentence should read as a person would have typed it, and give the same ids when it is encoded again.
"""

import re
from collections.abc import Sequence
from itertools import groupby

from unmask.text.segmentation import has_chinese
from unmask.text.token_bytes import CHAR_TO_BYTE
from unmask.text.tokenizer import Tokenizer

CONTINUATION_PREFIX = "##"  # WordPiece's mark of a piece that continues a word
_BLANK = "▁"  # SentencePiece's blank
_CLOSING = tuple(".,;:!?%)]}'’”，。；：！？、）》」")  # written without a blank before them


def display_token(tokenizer: Tokenizer, id: int) -> str:
    """One piece, readable: ' states' for the vocabulary's 'Ġstates' and '▁states'; WordPiece's '##s' stays."""
    if tokenizer.type == "wordpiece" or tokenizer.special[id]:
        return tokenizer.token(id)
    return tokens_to_readable_text(tokenizer, [id])


def tokens_to_readable_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """`tokens_to_text`, but bytes that are no whole character are written out, as <0xE5>."""
    text = tokens_to_text(tokenizer, ids)
    if "\ufffd" not in text or tokenizer.type not in ("bpe", "byte"):
        return text
    raw = bytes(CHAR_TO_BYTE[c] for i in ids for c in tokenizer.token(i) if c in CHAR_TO_BYTE)
    escaped = raw.decode("utf-8", "surrogateescape")  # such a byte becomes U+DC00 + byte
    return re.sub("[\udc80-\udcff]", lambda m: f"<0x{ord(m[0]) - 0xDC00:02X}>", escaped)


def tokens_to_text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """A run of pieces as text, with the blank that stands before it when it begins with a word."""
    tokens = [tokenizer.token(i) for i in ids]
    if tokenizer.type == "wordpiece":
        return "".join(_blank_before(token) + token.removeprefix(CONTINUATION_PREFIX) for token in tokens)
    if tokenizer.type in ("bpe", "byte") and not any(_BLANK in token for token in tokens):
        return tokenizer.decode(ids)  # several pieces may share one character, so all of them at once
    return "".join(tokens).replace(_BLANK, " ")


def _blank_before(token: str) -> str:
    whole = token.startswith(CONTINUATION_PREFIX) or token.startswith(_CLOSING) or is_ideograph(token)
    return "" if whole else " "


def mask_spans(tokenizer: Tokenizer, text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The masks' characters; the blank before them too, where a mask stands for a piece with its blank."""
    added = None if tokenizer.mask is None else tokenizer.backend.get_added_tokens_decoder().get(tokenizer.mask)
    if added is None or not added.lstrip:
        return list(spans)
    return [(len(text[:start].rstrip()), end) for start, end in spans]


def display_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """One piece as `display_token` shows it, several as the word that they make."""
    if len(ids) == 1:
        return display_token(tokenizer, ids[0])
    return (
        tokens_to_text(tokenizer, ids).strip()
        if tokenizer.type == "wordpiece"
        else tokens_to_readable_text(tokenizer, ids)
    )


def fill_spans(
    tokenizer: Tokenizer, text: str, spans: Sequence[tuple[int, int]], ids: Sequence[int | Sequence[int]]
) -> tuple[str, list[tuple[int, int]]]:
    """`text` with each of `spans` (sorted, [start, end)) replaced by a piece, or by several; and the spans put in."""
    out, where, done = "", [], 0
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
        blanks = len(token) - len(token.lstrip()) if token.strip() else 0
        where.append((len(out) + blanks, len(out) + len(token)))
        out += token
        if tokenizer.type == "wordpiece" and _one_word(token[-1:], text[done : done + 1]):
            out += " "  # "[MASK]ing" was read as two words
    return out + text[done:], where


def _runs(
    tokenizer: Tokenizer, spans: Sequence[tuple[int, int]], words: Sequence[list[int]]
) -> list[tuple[int, int, list[int]]]:
    """(start, end, ids) of what is put in at once: neighbouring byte pieces may make one character."""
    together = tokenizer.type in ("bpe", "byte")
    number, numbers = 0, []
    for i, (start, _) in enumerate(spans):
        number += i > 0 and not (together and spans[i - 1][1] == start)
        numbers.append(number)
    runs = []
    for _, group in groupby(range(len(spans)), key=numbers.__getitem__):
        members = list(group)
        runs.append((spans[members[0]][0], spans[members[-1]][1], [id for i in members for id in words[i]]))
    return runs


def _one_word(a: str, b: str) -> bool:
    """Whether BERT would read the two characters, side by side, as parts of one word."""
    return a.isalnum() and b.isalnum() and not is_ideograph(a) and not is_ideograph(b)


def is_ideograph(text: str) -> bool:
    """Whether `text` begins with a Chinese character, which BERT sets apart.

    >>> is_ideograph("中国"), is_ideograph("China"), is_ideograph("")
    (True, False, False)
    """
    return has_chinese(text[:1])
