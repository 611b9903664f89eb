"""Reader: encodes texts into rows and checks that they fit into the model. Nothing is truncated silently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from tokenizers import Encoding

from unmask.batch import Example
from unmask.errors import UserError
from unmask.inference.answers import Token
from unmask.inference.inputs import describe_item
from unmask.model.config import ModelConfig
from unmask.text.token_text import display_token
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import centered_window

Overflow = Literal["error", "window"]  # for a text that is longer than a row


class Reader:
    def __init__(self, tokenizer: Tokenizer, config: ModelConfig):
        self.tokenizer, self.config = tokenizer, config
        self.first = [] if tokenizer.cls is None else [tokenizer.cls]  # special tokens before the text

    @property
    def max_text_tokens(self) -> int:
        """Return the maximum number of tokens of a row, without special tokens."""
        return self.config.max_positions - 2

    def encode(self, texts: list[str], overflow: Overflow = "error") -> list[Encoding]:
        """Encode without special tokens. Raise UserError if a text does not fit into a row with them, unless `overflow` is "window"."""
        encodings = self.tokenizer.encode_batch(texts)
        for number, encoding in enumerate(encodings):
            if check_overflow(overflow) == "error":
                self.check_fits(len(encoding), 2, describe_item(texts, number))
        return encodings

    def window(self, tokens: int, first: int, end: int, extra: int, name: str, overflow: Overflow) -> tuple[int, int]:
        """Return [start, end) of a window of a text with `tokens` tokens: [first, end) in the middle, room for `extra` tokens."""
        if check_overflow(overflow) == "error" or end - first + extra > self.max_text_tokens:
            self.check_fits(tokens + extra, 2, name)
        return centered_window(tokens, first, end, self.max_text_tokens - extra)

    def check_fits(self, tokens: int, special: int, name: str) -> None:
        """Raise UserError if a text has more tokens than a row."""
        limit = self.config.max_positions
        if tokens + special > limit:
            raise UserError(
                f"{name} has {tokens:,} tokens and {special} special tokens; the model reads {limit:,}",
                expected=f"at most {limit - special:,} tokens",
                hint='split the text, or use overflow="window" (--overflow window) if the method supports it',
            )

    def row(self, ids: Sequence[int], positions: Sequence[int] = ()) -> Example:
        """Return the row [CLS] ids [SEP]. `positions` are indices into `ids`."""
        row = np.array([*self.first, *ids, self.tokenizer.sep], np.int64)
        return Example(row, labels={"mlm.positions": np.array(positions, np.int64) + len(self.first)})

    def encode_row(self, texts: Sequence[str]) -> tuple[Example, list[Token]]:
        """Encode one or two texts as a row with the tokenizer's special tokens. Return the row and its tokens."""
        t, encodings = self.tokenizer, self.tokenizer.encode_batch(texts)
        row = self._build_row(encodings, "the text" if len(texts) == 1 else "the pair")
        assert row.token_type_ids is not None
        tokens = [
            Token(t.token(id), 0, 0, segment)
            for id, segment in zip(row.input_ids.tolist(), row.token_type_ids.tolist())
        ]
        before, between, _ = t.special_token_layout[len(texts) == 2]
        first = len(before)
        for segment, encoding in enumerate(encodings):
            for n, (id, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets), first):
                tokens[n] = Token(display_token(t, id), start, end, segment)
            first += len(encoding) + len(between)
        return row, tokens

    def pairs(self, firsts: list[str], seconds: list[str]) -> list[Example]:
        """Encode each pair of texts as a row."""
        encodings = zip(*map(self.tokenizer.encode_batch, (firsts, seconds)), strict=True)
        return [self._build_row(pair, describe_item(firsts, n, "pair")) for n, pair in enumerate(encodings)]

    def _build_row(self, encodings: Sequence[Encoding], name: str) -> Example:
        ids, segments = self.tokenizer.build_inputs_with_special_tokens(*(e.ids for e in encodings))
        count = sum(map(len, encodings))
        self.check_fits(count, len(ids) - count, name)
        return Example(np.array(ids, np.int64), token_type_ids=np.array(segments, np.int64))


def check_overflow(overflow: str) -> str:
    """Return `overflow`. Raise UserError if it is not a valid value."""
    if overflow not in get_args(Overflow):
        raise UserError(f"invalid overflow {overflow!r}", expected=", ".join(get_args(Overflow)))
    return overflow
