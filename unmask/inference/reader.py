"""Reader: texts → rows of a model, every one known to fit. Nothing is cut off silently."""

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

Overflow = Literal["error", "window"]  # what becomes of a text that the model cannot read at once


class Reader:
    def __init__(self, tokenizer: Tokenizer, config: ModelConfig):
        self.tokenizer, self.config = tokenizer, config
        self.first = [] if tokenizer.cls is None else [tokenizer.cls]  # what a row begins with

    @property
    def max_text_tokens(self) -> int:
        """Tokens of text in a row."""
        return self.config.max_positions - 2

    def encode(self, texts: list[str], overflow: Overflow = "error") -> list[Encoding]:
        """Without special tokens; where it is not to be read in windows, every one known to fit with them."""
        encodings = self.tokenizer.encode_batch(texts)
        for number, encoding in enumerate(encodings):
            if chosen(overflow) == "error":
                self.check_fits(len(encoding), 2, describe_item(texts, number))
        return encodings

    def window(self, tokens: int, first: int, end: int, more: int, what: str, overflow: Overflow) -> tuple[int, int]:
        """[start, end) of the part of a text of so many tokens that is read for its tokens [first, end), which stand in
        its middle; `more` tokens may come to it."""
        if chosen(overflow) == "error" or end - first + more > self.max_text_tokens:
            self.check_fits(tokens + more, 2, what)
        return centered_window(tokens, first, end, self.max_text_tokens - more)

    def check_fits(self, tokens: int, special: int, what: str) -> None:
        most = self.config.max_positions
        if tokens + special > most:
            raise UserError(
                f"{what} has {tokens:,} tokens and {special} special ones; the model reads {most:,}",
                expected=f"at most {most - special:,} tokens; nothing is cut off silently",
                hint='give it in parts, or overflow="window" (--overflow window) where the method has it',
            )

    def row(self, ids: Sequence[int], positions: Sequence[int] = ()) -> Example:
        """[CLS] ids [SEP]; `positions` are those in `ids`."""
        row = np.array([*self.first, *ids, self.tokenizer.sep], np.int64)
        return Example(row, labels={"mlm.positions": np.array(positions, np.int64) + len(self.first)})

    def encode_row(self, texts: Sequence[str]) -> tuple[Example, list[Token]]:
        """One text or two in a row, with the special tokens where the tokenizer's own rule puts them; and what each token is."""
        t, encodings = self.tokenizer, self.tokenizer.encode_batch(texts)
        row = self._surround(encodings, "the text" if len(texts) == 1 else "the pair")
        assert row.token_type_ids is not None
        tokens = [
            Token(t.token(id), 0, 0, segment)
            for id, segment in zip(row.input_ids.tolist(), row.token_type_ids.tolist())
        ]
        before, between, _ = t.special_token_layout[len(texts) == 2]
        first = len(before)
        for number, encoding in enumerate(encodings):
            for n, (id, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets), first):
                tokens[n] = Token(display_token(t, id), start, end, number)
            first += len(encoding) + len(between)
        return row, tokens

    def pairs(self, firsts: list[str], seconds: list[str]) -> list[Example]:
        """Two texts in a row, of each pair."""
        encodings = zip(*map(self.tokenizer.encode_batch, (firsts, seconds)), strict=True)
        return [self._surround(both, describe_item(firsts, number, "pair")) for number, both in enumerate(encodings)]

    def _surround(self, encodings: Sequence[Encoding], what: str) -> Example:
        ids, segments = self.tokenizer.build_inputs_with_special_tokens(*(e.ids for e in encodings))
        count = sum(map(len, encodings))
        self.check_fits(count, len(ids) - count, what)
        return Example(np.array(ids, np.int64), token_type_ids=np.array(segments, np.int64))


def chosen(overflow: str) -> str:
    if overflow not in get_args(Overflow):
        raise UserError(f"overflow {overflow!r}", expected=", ".join(get_args(Overflow)))
    return overflow
