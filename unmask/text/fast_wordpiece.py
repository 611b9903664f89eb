"""Cached WordPiece: several times as fast as the tokenizer, because most words of a text occurred before.

BERT's pre-tokenizer splits at whitespace, punctuation and Chinese characters, independently of the context. The chunk between
two splits therefore has the same tokens wherever it occurs. Each distinct chunk is tokenized once, and a text is a gather from
the table of chunks. The result is exact: the tests compare it with the tokenizer. Text is split only where all versions of
Unicode agree: whitespace, ASCII punctuation and the basic Chinese block. Other types of tokenizers depend on the context of a
word and are not supported.
"""

import json
import re

import numpy as np

from unmask.text.tokenizer import Tokenizer

MAX_CHUNKS, MAX_CHARS = 50_000, 1_000_000  # a table larger than this is cleared
# Characters that are a chunk each, ASCII punctuation and Chinese: first and last of each range.
_SINGLE = (("!", "/"), (":", "@"), ("[", "`"), ("{", "~"), ("\u4e00", "\u9fff"))
_CLASS = "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in _SINGLE)
_CHUNK = re.compile(rf"[{_CLASS}]|[^\s{_CLASS}]+")
_IS_SINGLE = np.zeros(0xA001, bool)  # by code point; the last value is for all above
for _first, _last in _SINGLE:
    _IS_SINGLE[ord(_first) : ord(_last) + 1] = True
# Whitespace in Python, but control characters for BERT's normalizer, which removes them and so joins their neighbors.
_JOINING = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"


class FastWordPiece:
    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        added = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
        self._unsupported = re.compile("|".join(map(re.escape, [*added, *_JOINING])))
        self._clear()

    def _clear(self) -> None:
        self.index: dict[str, int] = {}  # chunk → its index in `first` and `count`
        self.characters = 0
        self.first: np.ndarray = np.zeros(0, np.int64)  # (chunks,) index of the first token in `ids` and `spans`
        self.count: np.ndarray = np.zeros(0, np.int64)  # (chunks,) number of tokens
        self.ids: np.ndarray = np.zeros(0, np.int64)
        self.spans: np.ndarray = np.zeros((0, 2), np.int64)

    @staticmethod
    def supports_tokenizer(tokenizer: Tokenizer) -> bool:
        """Return whether the tokenizer splits like BERT's and matches its added tokens literally."""
        backend = json.loads(tokenizer.backend.to_str())
        normalizer, pre_tokenizer, model = (backend[part] or {} for part in ("normalizer", "pre_tokenizer", "model"))
        return (
            normalizer.get("type") == "BertNormalizer"
            and normalizer["handle_chinese_chars"]
            and pre_tokenizer.get("type") == "BertPreTokenizer"
            and model.get("type") == "WordPiece"
            and not any(
                token["normalized"] or token["lstrip"] or token["rstrip"] or token["single_word"]
                for token in backend["added_tokens"]
            )
        )

    def supports(self, text: str) -> bool:
        """Return whether the text has neither added tokens, such as [MASK], nor characters that the normalizer removes."""
        return self._unsupported.search(text) is None

    def encode(self, text: str, space: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ids (n,) and spans (n, 2) as the tokenizer does, for a text that `supports` accepts.

        `space` (len(text),) bool: which characters are whitespace.
        """
        chunks = _CHUNK.findall(text)
        if new := set(chunks).difference(self.index):
            if len(self.index) > MAX_CHUNKS or self.characters > MAX_CHARS:
                self._clear()
                new = set(chunks)
            self._add(list(new))
        indices = np.fromiter(map(self.index.__getitem__, chunks), np.int64, len(chunks))
        counts = self.count[indices]
        # Tokens [first, first + count) of the table become tokens [start, start + count) of the text.
        start = np.cumsum(counts) - counts
        gather = np.repeat(self.first[indices] - start, counts) + np.arange(int(counts.sum()))
        return self.ids[gather], self.spans[gather] + np.repeat(_starts(text, space), counts)[:, None]

    def _add(self, chunks: list[str]) -> None:
        encodings = self.tokenizer.encode_batch(chunks)
        self.index.update(zip(chunks, range(len(self.index), len(self.index) + len(chunks))))
        self.characters += sum(map(len, chunks))
        count = np.array([len(encoding) for encoding in encodings], np.int64)
        first = len(self.ids) + np.cumsum(count) - count
        self.count, self.first = np.append(self.count, count), np.append(self.first, first)
        ids = [i for encoding in encodings for i in encoding.ids]
        self.ids = np.append(self.ids, np.array(ids, np.int64))
        spans = [span for encoding in encodings for span in encoding.offsets]
        self.spans = np.append(self.spans, np.array(spans, np.int64).reshape(-1, 2), axis=0)


def _starts(text: str, space: np.ndarray) -> np.ndarray:
    """Return the first character of each chunk. Equivalent to the match positions of `_CHUNK`, but faster."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    single = _IS_SINGLE[np.minimum(points, len(_IS_SINGLE) - 1)]
    after_split = np.append(True, (space | single)[:-1])
    return np.flatnonzero((~space & after_split) | single)
