"""Rows: the store's tokens as training rows, each found in O(1) from its address.

Three kinds. `stream` (RoBERTa's full sentences): the text is one long run of tokens in which documents end with
`[SEP]`; row i is the i-th window of it, moved by an offset that changes each epoch, and started at a word. No row is
padded. With `apart`, its documents are numbered, and tokens see their own document only; the row's [CLS] belongs to the
first. `pairs` (BERT's NSP): a chunk of whole sentences is cut in two, and half the time its second part is replaced
by text of another document. `order` (ALBERT's SOP): the same two parts, half the time the second one first.

Labels: `nsp` 0 = B follows A, 1 = B is from elsewhere; `sop` 0 = in order, 1 = swapped, as Google's code and transformers
have it. A tokenizer without a cls token (T5) has rows that begin with the text. The special tokens of a pair stand where the
tokenizer's own rule puts them: RoBERTa's has two between the halves, and no segments.
"""

from bisect import bisect_right  # it reads a few values of a large array, and only those are verified
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
SNAP = 32  # tokens looked at for the start of a word


class Rows:
    def __init__(self, split: Split, tokenizer: Tokenizer, seed: int, kind: Kind = "stream", apart: bool = False):
        self.split, self.seed, self.kind, self.apart = split, seed, kind, apart
        self.first = [] if tokenizer.cls is None else [tokenizer.cls]  # what a row of the stream begins with
        self.frame = [np.array(self.first, np.int64), np.array([tokenizer.sep])]  # special tokens around its text
        self.tokenizer, self.pad = tokenizer, tokenizer.pad
        if kind != "stream":
            around = pair_special_tokens(tokenizer)
            self.frame = [np.array([id for id, _ in part], np.int64) for part in around]
            self.segments = [np.array([segment for _, segment in part], np.int64) for part in around]
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
        make = self._stream if self.kind == "stream" else self._pair
        return make(epoch, i, step_config)

    def _stream(self, epoch: int, i: int, step_config: StepConfig) -> Example:
        tokens, flags = self.split.tokens, self.split.flags
        total, width = len(tokens), step_config.length - len(self.first) - 1
        if total <= width:
            start, body, marks = 0, tokens[:], flags[:]
        else:
            shift = int(generator(self.seed, "shift", epoch, step_config.index).integers(width))
            start = (shift + i * width) % total
            words = np.flatnonzero(flags[start : start + SNAP] & WORD)
            start += int(words[0]) if len(words) else 0
            take = np.arange(start, start + width) % total if start + width > total else slice(start, start + width)
            body, marks = tokens[take], flags[take]
        example = self._row(body, flags=[marks])
        if self.apart:
            assert example.flags is not None
            starts = (example.flags & DOCUMENT) > 0
            starts[: len(self.first) + 1] = False  # [CLS] is of the document that follows it
            example.document_ids = np.cumsum(starts)
        return example

    def _pair(self, epoch: int, i: int, step_config: StepConfig) -> Example:
        rng = generator(self.seed, "pair", epoch, i, step_config.index)
        first, last = (int(x) for x in self.split.chunks(bert_equivalent_length(step_config.length, self.tokenizer))[i])
        cut = first + int(rng.integers(1, last - first))  # B's first sentence, were it the true one
        true = rng.random() < 0.5
        a = self._span(first, cut)
        b = self._span(cut, last)
        if self.kind == "pairs" and not true:
            b = self._sample_other_document(first, b[1] - b[0], rng)
        budget = step_config.length - sum(map(len, self.frame))
        while (a[1] - a[0]) + (b[1] - b[0]) > budget:
            over = (a[1] - a[0]) + (b[1] - b[0]) - budget
            if a[1] - a[0] > b[1] - b[0]:
                a = _shorten(a, min(over, max(1, (a[1] - a[0]) - (b[1] - b[0]))), rng)
            else:
                b = _shorten(b, min(over, max(1, (b[1] - b[0]) - (a[1] - a[0]))), rng)
        if self.kind == "order" and not true:
            a, b = b, a
        tokens, flags = self.split.tokens, self.split.flags
        example = self._row(*(tokens[slice(*x)] for x in (a, b)), flags=[flags[slice(*x)] for x in (a, b)])
        before, between, after = self.segments
        second = after[-1] if len(after) else 0  # RoBERTa's rule has no segments
        halves = np.zeros(a[1] - a[0], np.int64), np.full(b[1] - b[0], second)
        example.token_type_ids = np.concatenate([before, halves[0], between, halves[1], after])
        example.labels["nsp" if self.kind == "pairs" else "sop"] = np.array([0 if true else 1])
        return example

    def _row(self, *parts: np.ndarray, flags: Sequence[np.ndarray]) -> Example:
        """[CLS] A [SEP], or [CLS] A [SEP] B [SEP]; special tokens have no flag."""
        ids, out = [self.frame[0]], [np.zeros(len(self.frame[0]), np.uint8)]
        for part, marks, after in zip(parts, flags, self.frame[1:], strict=True):
            ids += [part, after]
            out += [marks, np.zeros(len(after), np.uint8)]
        return Example(np.concatenate(ids, dtype=np.int64), flags=np.concatenate(out, dtype=np.uint8))

    def _span(self, first: int, last: int) -> tuple[int, int]:
        """Token range of sentences first … last − 1, which are of one document."""
        return int(self.split.sentences[first]), self.split.sentence_end(last - 1)

    def _sample_other_document(self, sentence: int, tokens: int, rng: np.random.Generator) -> tuple[int, int]:
        """Sample about `tokens` tokens of whole sentences from a document other than that of `sentence`."""
        bounds = self.split.document_sentences
        home = bisect_right(bounds, sentence) - 1
        low, high = int(bounds[home]), int(bounds[home + 1])
        pick = int(rng.integers(int(bounds[-1]) - (high - low)))
        pick += high - low if pick >= low else 0
        there = bisect_right(bounds, pick) - 1
        start = int(self.split.sentences[pick])
        end = pick + 1 + int(np.searchsorted(self.split.sentences[pick + 1 : int(bounds[there + 1])], start + tokens))
        return self._span(pick, min(end, int(bounds[there + 1])))


def _shorten(span: tuple[int, int], by: int, rng: np.random.Generator) -> tuple[int, int]:
    """Remove `by` tokens, split randomly between front and back, as BERT does."""
    front = int(rng.integers(by + 1))
    return span[0] + front, span[1] - (by - front)
