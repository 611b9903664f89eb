"""Chunks: runs of consecutive sentences of one document, which NSP and SOP split into pairs (BERT 1810.04805 §A.2).

A chunk greedily takes as many sentences as fit into a row (`length` minus [CLS] and two [SEP]), but at least two, because a
pair has two halves. `RowDataset` truncates a chunk of two sentences that is too long. If the last sentence of a document would
be alone, its chunk includes the sentence before it too. A document with one sentence has no chunk and is used only as a
negative second segment.
"""

from collections.abc import Callable, Iterator

import numpy as np

from unmask.text.tokenizer import Tokenizer

BLOCK_SENTENCES = 1 << 18  # sentences processed at a time; whole documents, so a longer document exceeds it

ReadValues = Callable[[str, int, int], np.ndarray]  # returns values [start, end) of a file of the split: `Split.read`


def pair_chunks(read: ReadValues, documents: int, length: int) -> Iterator[np.ndarray]:
    """Yield blocks (c, 2) int64 of sentence ranges [first, last) for a split of `documents` documents."""
    assert length > 3, length
    first_document = 0
    while first_document < documents:
        last = min(first_document + BLOCK_SENTENCES, documents)
        bounds = read("document_sentences", first_document, last + 1)
        take = max(1, int(np.searchsorted(bounds, bounds[0] + BLOCK_SENTENCES, "right")) - 1)
        bounds = bounds[: take + 1]
        starts = read("sentences", int(bounds[0]), int(bounds[-1]) + 1)
        yield greedy_chunks(starts, bounds - bounds[0], length - 3) + bounds[0]
        first_document += take


def pair_special_tokens(tokenizer: Tokenizer) -> list[list[tuple[int, int]]]:
    """Return (id, segment) of the special tokens before, between and after a pair. There is always a token between."""
    before, between, after = tokenizer.special_token_layout[1]
    return [before, between, after] if between else [before, [(tokenizer.sep, 0)], [(tokenizer.sep, 1)]]


def bert_equivalent_length(length: int, tokenizer: Tokenizer) -> int:
    """Return the length of a row with BERT's three special tokens that has as much text as this tokenizer's of `length`."""
    return length - sum(map(len, pair_special_tokens(tokenizer))) + 3


def greedy_chunks(starts: np.ndarray, bounds: np.ndarray, budget: int) -> np.ndarray:
    """Return the chunks (C, 2) of documents whose first sentences are `bounds` (D+1,); its last value is S.

    `starts` (S+1,): token offsets of the S sentences. The token before a document's first one is the previous [SEP].

    >>> greedy_chunks(np.array([0, 4, 8, 12, 17]), np.array([0, 4]), budget=8).tolist()
    [[0, 2], [2, 4]]
    >>> greedy_chunks(np.array([0, 4, 8, 13]), np.array([0, 3]), budget=8).tolist()
    [[0, 2], [1, 3]]
    """
    sentences = len(starts) - 1
    ends = starts[1:].copy()
    ends[bounds[1:] - 1] -= 1  # without the document's [SEP]
    document = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    limit = bounds[1:][document]  # (S,) last sentence + 1 of the document of each sentence
    reach = np.searchsorted(ends, starts[:-1] + budget, "right")  # sentences [s, reach) fit the budget
    reach = np.minimum(np.maximum(reach, np.arange(sentences) + 2), limit)
    # Jump from chunk to chunk. A plain loop over lists takes 0.1 µs per chunk.
    ends_of, last = reach.tolist(), limit.tolist()
    chunks = []
    s = 0
    while s < sentences:
        end = ends_of[s]
        if end - s > 1:
            chunks.append((s, end))
        elif s > 0 and last[s - 1] == end:  # the document's last sentence is alone: include the one before it
            chunks.append((s - 1, end))
        s = end
    return np.array(chunks, np.int64).reshape(-1, 2)
