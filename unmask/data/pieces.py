"""Pieces: WordPiece over text whose words repeat, several times as fast as tokenizing all of it.

BERT's pre-tokenizer cuts at white space, whatever stands on either side, so what lies between two blanks has
the same tokens wherever it occurs, and by Zipf's law most of a text was seen before. Each such piece is given
to the tokenizer once; a text is then a gather from the table of pieces. Exact, not an approximation; the
tests compare it with the tokenizer itself. Other tokenizers depend on the blanks and are used directly.
"""

import json
import re

import numpy as np

from unmask.data.tokenizer import Tokenizer

PIECES, CHARACTERS = 100_000, 2_000_000  # remembered at most; then the table starts anew
# White space for Python, but removed as control characters by BERT's normaliser, which joins what they separate.
_JOINING = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class Pieces:
    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self._forget()

    @staticmethod
    def fits(tokenizer: Tokenizer) -> bool:
        """Whether the tokenizer is BERT's: then its pieces are independent, if no added token spans a blank."""
        backend = json.loads(tokenizer.backend.to_str())
        kinds = [(backend[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
        return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and not any(
            re.search(r"\s", token["content"]) or token["lstrip"] or token["rstrip"] or token["single_word"]
            for token in backend["added_tokens"]
        )

    @staticmethod
    def splits(text: str) -> bool:
        """Whether white space separates words in `text`, for Python as for BERT."""
        return _JOINING.search(text) is None

    def encode(self, text: str, space: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ids (n,) and spans (n, 2), as the tokenizer gives them; `space`: which characters are white space."""
        pieces = text.split()
        if new := set(pieces).difference(self.number):
            if len(self.number) > PIECES or self.characters > CHARACTERS:
                self._forget()
                new = set(pieces)
            self._learn(list(new))
        known = np.fromiter(map(self.number.__getitem__, pieces), np.int64, len(pieces))
        starts = np.flatnonzero(~space & np.append(True, space[:-1]))  # first character of each piece
        counts = self.count[known]
        # Piece i's tokens are table[at : at + count]; they go to places [to, to + count).
        to = np.cumsum(counts) - counts
        table = np.repeat(self.at[known] - to, counts) + np.arange(int(counts.sum()))
        return self.ids[table], self.spans[table] + np.repeat(starts, counts)[:, None]

    def _learn(self, pieces: list[str]) -> None:
        encodings = self.tokenizer.encode_batch(pieces)
        self.number.update(zip(pieces, range(len(self.number), len(self.number) + len(pieces))))
        self.characters += sum(map(len, pieces))
        count = np.array([len(encoding) for encoding in encodings], np.int64)
        at = len(self.ids) + np.cumsum(count) - count
        self.count, self.at = np.append(self.count, count), np.append(self.at, at)
        ids = [i for encoding in encodings for i in encoding.ids]
        self.ids = np.append(self.ids, np.array(ids, np.int64))
        spans = [span for encoding in encodings for span in encoding.offsets]
        self.spans = np.append(self.spans, np.array(spans, np.int64).reshape(-1, 2), axis=0)

    def _forget(self) -> None:
        self.number: dict[str, int] = {}  # piece → its place in `at` and `count`
        self.characters = 0
        self.at = self.count = np.zeros(0, np.int64)  # its tokens in the table
        self.ids, self.spans = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)  # the table
