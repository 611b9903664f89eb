"""Pieces: WordPiece over text whose words repeat, several times as fast as tokenizing all of it.

BERT's pre-tokenizer cuts at white space, punctuation and Chinese characters, whatever stands on either side,
so what lies between two cuts has the same tokens wherever it occurs, and by Zipf's law most of a text was
seen before. Each such piece is given to the tokenizer once; a text is then a gather from the table of pieces.
Exact, not an approximation: the tests compare it with the tokenizer itself. Cuts are made only where no
version of Unicode disagrees: white space, ASCII punctuation, the basic Chinese block. Tokenizers of another
kind depend on what is around a word and are used directly.
"""

import json
import re

import numpy as np

from unmask.text.tokenizer import Tokenizer

PIECES, CHARACTERS = 50_000, 1_000_000  # at most these are cached; then the table is cleared
# Characters that are a piece each: ASCII punctuation and Chinese, first and last of each range.
_ALONE = (("!", "/"), (":", "@"), ("[", "`"), ("{", "~"), ("\u4e00", "\u9fff"))
_CLASS = "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in _ALONE)
_PIECE = re.compile(rf"[{_CLASS}]|[^\s{_CLASS}]+")
_IS_ALONE = np.zeros(0xA001, bool)  # by code point, the last for all above
for _first, _last in _ALONE:
    _IS_ALONE[ord(_first) : ord(_last) + 1] = True
# White space for Python, but control characters for BERT's normaliser, which removes them and joins what
# they part.
_JOINING = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"


class FastWordPiece:
    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        added = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
        self._not_here = re.compile("|".join(map(re.escape, [*added, *_JOINING])))
        self._forget()

    def _forget(self) -> None:
        self.number: dict[str, int] = {}  # piece → its place in `at` and `count`
        self.characters = 0
        self.at: np.ndarray = np.zeros(0, np.int64)  # its first token in the table …
        self.count: np.ndarray = np.zeros(0, np.int64)  # … and how many they are
        self.ids: np.ndarray = np.zeros(0, np.int64)  # the table
        self.spans: np.ndarray = np.zeros((0, 2), np.int64)

    @staticmethod
    def supports_tokenizer(tokenizer: Tokenizer) -> bool:
        """Whether the tokenizer cuts as BERT does, and recognises its added tokens just as they are written."""
        backend = json.loads(tokenizer.backend.to_str())
        normalizer, cutter, model = (backend[part] or {} for part in ("normalizer", "pre_tokenizer", "model"))
        return (
            normalizer.get("type") == "BertNormalizer"
            and normalizer["handle_chinese_chars"]
            and cutter.get("type") == "BertPreTokenizer"
            and model.get("type") == "WordPiece"
            and not any(
                token["normalized"] or token["lstrip"] or token["rstrip"] or token["single_word"]
                for token in backend["added_tokens"]
            )
        )

    def supports(self, text: str) -> bool:
        """Whether `text` is free of what does not obey the cuts, such as a [MASK] written in it."""
        return self._not_here.search(text) is None

    def encode(self, text: str, space: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """ids (n,) and spans (n, 2), as the tokenizer gives them, for a text that `can` be cut.

        `space` (len(text),) bool: which characters are white space.
        """
        pieces = _PIECE.findall(text)
        if new := set(pieces).difference(self.number):
            if len(self.number) > PIECES or self.characters > CHARACTERS:
                self._forget()
                new = set(pieces)
            self._learn(list(new))
        known = np.fromiter(map(self.number.__getitem__, pieces), np.int64, len(pieces))
        counts = self.count[known]
        # Piece i's tokens are table[at : at + count]; they go to places [to, to + count).
        to = np.cumsum(counts) - counts
        table = np.repeat(self.at[known] - to, counts) + np.arange(int(counts.sum()))
        return self.ids[table], self.spans[table] + np.repeat(_starts(text, space), counts)[:, None]

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


def _starts(text: str, space: np.ndarray) -> np.ndarray:
    """First character of each piece. Follows `_PIECE`, whose matches know their place but tell it slowly."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    alone = _IS_ALONE[np.minimum(points, len(_IS_ALONE) - 1)]
    cut = space | alone
    begins = ~space & np.append(True, cut[:-1])
    return np.flatnonzero(begins | alone)
