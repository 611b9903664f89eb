"""RowDataset: the tokens of a store as training rows; row i of epoch e is computed in O(1).

| kind | row |
|---|---|
| `stream` (RoBERTa's full sentences) | window i of the whole text, in which documents end with `[SEP]`; never padded |
| `pairs` (BERT's NSP) | a chunk of sentences split in two; with probability 0.5 the second part is text of another document |
| `order` (ALBERT's SOP) | a chunk of sentences split in two; with probability 0.5 the parts are swapped |

Windows are shifted by an offset that changes with each epoch, and start at a word. With `same_document`, a token attends only to
tokens of its own document; the row's [CLS] belongs to the first one.

Labels, as in Google's code and transformers: `nsp` 0 = B follows A, 1 = B is from another document; `sop` 0 = in order, 1 =
swapped. If the tokenizer has no cls token (T5), rows start with the text. The special tokens of a pair are placed by the
tokenizer's post-processor: RoBERTa's inserts two tokens between the parts and has no segments.
"""

from bisect import bisect_right  # np.searchsorted would read and verify the whole LazyArray
from collections.abc import Sequence
from typing import Literal

import numpy as np

from unmask.batch import Example, StepConfig
from unmask.errors import UserError
from unmask.seeds import generator
from unmask.text.chunks import bert_equivalent_length, pair_special_tokens
from unmask.text.flags import DOCUMENT, WORD
from unmask.text.store import Split
from unmask.text.tokenizer import Tokenizer

Kind = Literal["stream", "pairs", "order"]
MAX_SHIFT_TO_WORD = 32  # tokens that are searched for the start of a word


class RowDataset:
    def __init__(
        self, split: Split, tokenizer: Tokenizer, seed: int, kind: Kind = "stream", same_document: bool = False
    ):
        self.split, self.seed, self.kind, self.same_document = split, seed, kind, same_document
        self.first = [] if tokenizer.cls is None else [tokenizer.cls]  # first tokens of a row of the stream
        # special tokens before, between and after the texts of a row
        self.special_tokens = [np.array(self.first, np.int64), np.array([tokenizer.sep])]
        self.tokenizer, self.pad = tokenizer, tokenizer.pad
        if kind != "stream":
            layout = pair_special_tokens(tokenizer)
            self.special_tokens = [np.array([id for id, _ in part], np.int64) for part in layout]
            self.segments = [np.array([segment for _, segment in part], np.int64) for part in layout]
        if kind == "pairs":
            self._check_pairs()

    def _check_pairs(self) -> None:
        documents = len(self.split.documents) - 1
        if documents < 2:
            raise UserError(
                f"next-sentence pairs need at least two documents, this corpus has {documents}: "
                "negative pairs are sampled from other documents",
                hint="use --objective mlm, or split the text into documents: --document-boundary paragraph or --document-boundary line",
            )

    def count(self, length: int) -> int:
        """Return the number of rows in an epoch."""
        if self.kind == "stream":
            return max(1, len(self.split.tokens) // (length - len(self.first) - 1))
        chunks = len(self.split.chunks(bert_equivalent_length(length, self.tokenizer)))
        if not chunks:
            raise UserError(
                "no document has two sentences, so there are no positive next-sentence pairs",
                hint="use --objective mlm, or larger documents: --document-boundary paragraph or --document-boundary file",
            )
        return chunks

    def example(self, epoch: int, i: int, step_config: StepConfig) -> Example:
        return (self._stream if self.kind == "stream" else self._pair)(epoch, i, step_config)

    def _stream(self, epoch: int, i: int, step_config: StepConfig) -> Example:
        tokens, flags = self.split.tokens, self.split.flags
        total, width = len(tokens), step_config.length - len(self.first) - 1
        if total <= width:
            start, row, row_flags = 0, tokens[:], flags[:]
        else:
            shift = int(generator(self.seed, "shift", epoch, step_config.index).integers(width))
            start = (shift + i * width) % total
            words = np.flatnonzero(flags[start : start + MAX_SHIFT_TO_WORD] & WORD)
            start += int(words[0]) if len(words) else 0
            window = np.arange(start, start + width) % total if start + width > total else slice(start, start + width)
            row, row_flags = tokens[window], flags[window]
        example = self._row(row, flags=[row_flags])
        if self.same_document:
            assert example.flags is not None
            starts = (example.flags & DOCUMENT) > 0
            starts[: len(self.first) + 1] = False  # [CLS] belongs to the first document
            example.document_ids = np.cumsum(starts)
        return example

    def _pair(self, epoch: int, i: int, step_config: StepConfig) -> Example:
        rng = generator(self.seed, "pair", epoch, i, step_config.index)
        first, last = (int(x) for x in self.split.chunks(bert_equivalent_length(step_config.length, self.tokenizer))[i])
        cut = first + int(rng.integers(1, last - first))  # first sentence of B in a positive pair
        positive = rng.random() < 0.5
        a = self._span(first, cut)
        b = self._span(cut, last)
        if self.kind == "pairs" and not positive:
            b = self._sample_other_document(first, b[1] - b[0], rng)
        budget = step_config.length - sum(map(len, self.special_tokens))
        while (a[1] - a[0]) + (b[1] - b[0]) > budget:
            over = (a[1] - a[0]) + (b[1] - b[0]) - budget
            if a[1] - a[0] > b[1] - b[0]:
                a = _shorten(a, min(over, max(1, (a[1] - a[0]) - (b[1] - b[0]))), rng)
            else:
                b = _shorten(b, min(over, max(1, (b[1] - b[0]) - (a[1] - a[0]))), rng)
        if self.kind == "order" and not positive:
            a, b = b, a
        tokens, flags = self.split.tokens, self.split.flags
        example = self._row(*(tokens[slice(*x)] for x in (a, b)), flags=[flags[slice(*x)] for x in (a, b)])
        before, between, after = self.segments
        second = after[-1] if len(after) else 0  # RoBERTa has no segments
        halves = np.zeros(a[1] - a[0], np.int64), np.full(b[1] - b[0], second)
        example.token_type_ids = np.concatenate([before, halves[0], between, halves[1], after])
        example.labels["nsp" if self.kind == "pairs" else "sop"] = np.array([0 if positive else 1])
        return example

    def _row(self, *parts: np.ndarray, flags: Sequence[np.ndarray]) -> Example:
        """Return [CLS] A [SEP], or [CLS] A [SEP] B [SEP]. Special tokens have no flag."""
        ids, out = [self.special_tokens[0]], [np.zeros(len(self.special_tokens[0]), np.uint8)]
        for part, part_flags, after in zip(parts, flags, self.special_tokens[1:], strict=True):
            ids += [part, after]
            out += [part_flags, np.zeros(len(after), np.uint8)]
        return Example(np.concatenate(ids, dtype=np.int64), flags=np.concatenate(out, dtype=np.uint8))

    def _span(self, first: int, last: int) -> tuple[int, int]:
        """Return the token range of sentences [first, last) of one document."""
        return int(self.split.sentences[first]), self.split.sentence_end(last - 1)

    def _sample_other_document(self, sentence: int, tokens: int, rng: np.random.Generator) -> tuple[int, int]:
        """Sample about `tokens` tokens of whole sentences from a document other than that of `sentence`."""
        bounds = self.split.document_sentences
        document = bisect_right(bounds, sentence) - 1
        low, high = int(bounds[document]), int(bounds[document + 1])
        pick = int(rng.integers(int(bounds[-1]) - (high - low)))
        pick += high - low if pick >= low else 0
        document_end = int(bounds[bisect_right(bounds, pick)])
        start = int(self.split.sentences[pick])
        end = pick + 1 + int(np.searchsorted(self.split.sentences[pick + 1 : document_end], start + tokens))
        return self._span(pick, min(end, document_end))


def _shorten(span: tuple[int, int], by: int, rng: np.random.Generator) -> tuple[int, int]:
    """Remove `by` tokens, split randomly between front and back, as BERT does."""
    front = int(rng.integers(by + 1))
    return span[0] + front, span[1] - (by - front)
