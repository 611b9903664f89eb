"""Chunks: runs of whole sentences of one document, from which NSP and SOP cut their pairs (BERT 1810.04805
§A.2).

Greedy: from a sentence on, as many as fit in a row (`length` less [CLS] and two [SEP]), but two at least,
since a pair needs both its halves; the reader cuts a run of two that is too long. A last sentence that
would be alone takes the one before it along. A document of one sentence gives no chunk: it serves only as a
wrong continuation.
"""

from collections.abc import Callable, Iterator

import numpy as np

from unmask.text.tokenizer import Tokenizer

BLOCK = 1 << 18  # sentences looked at together (whole documents, so more when one is longer)


Read = Callable[[str, int, int], np.ndarray]  # values [start, end) of a file of the split: `Split.read`


def pair_chunks(read: Read, documents: int, length: int) -> Iterator[np.ndarray]:
    """(c, 2) int64 blocks of [first, last) sentence numbers, for a split with that many documents."""
    assert length > 3, length
    first_document = 0
    while first_document < documents:
        last = min(first_document + BLOCK, documents)
        bounds = read("document_sentences", first_document, last + 1)
        take = max(1, int(np.searchsorted(bounds, bounds[0] + BLOCK, "right")) - 1)
        bounds = bounds[: take + 1]
        starts = read("sentences", int(bounds[0]), int(bounds[-1]) + 1)
        yield greedy_chunks(starts, bounds - bounds[0], length - 3) + bounds[0]
        first_document += take


def pair_special_tokens(tokenizer: Tokenizer) -> list[list[tuple[int, int]]]:
    """(id, segment) of the special tokens before, between and after two texts, which are never without a border."""
    before, between, after = tokenizer.special_token_layout[1]
    return [before, between, after] if between else [before, [(tokenizer.sep, 0)], [(tokenizer.sep, 1)]]


def bert_equivalent_length(length: int, tokenizer: Tokenizer) -> int:
    """How long a row with BERT's three special tokens is that has as much text as this tokenizer's of `length`."""
    return length - sum(map(len, pair_special_tokens(tokenizer))) + 3


def greedy_chunks(starts: np.ndarray, bounds: np.ndarray, budget: int) -> np.ndarray:
    """Chunks of documents whose first sentences are `bounds` (last = number of sentences S).

    `starts` (S+1,): token offsets of the sentences; before each document's first one stands the previous
    [SEP].

    >>> greedy_chunks(np.array([0, 4, 8, 12, 17]), np.array([0, 4]), budget=8).tolist()
    [[0, 2], [2, 4]]
    >>> greedy_chunks(np.array([0, 4, 8, 13]), np.array([0, 3]), budget=8).tolist()
    [[0, 2], [1, 3]]
    """
    sentences = len(starts) - 1
    ends = starts[1:].copy()
    ends[bounds[1:] - 1] -= 1  # without the document's [SEP]
    document = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    limit = bounds[1:][document]  # (S,): where the document of each sentence ends
    here = np.arange(sentences)
    reach = np.searchsorted(ends, starts[:-1] + budget, "right")  # sentences [s, reach) fit the budget
    reach = np.minimum(np.maximum(reach, here + 2), limit)
    # Follow the reaches. A plain loop over lists, once per chunk: 0.1 µs each.
    next_, last = reach.tolist(), limit.tolist()
    firsts, lasts = [], []
    s = 0
    while s < sentences:
        end = next_[s]
        if end - s > 1:
            firsts.append(s)
            lasts.append(end)
        elif s > 0 and last[s - 1] == end:  # the document's last sentence, alone: take the one before it along
            firsts.append(s - 1)
            lasts.append(end)
        s = end
    return np.stack([np.array(firsts, np.int64), np.array(lasts, np.int64)], axis=1)
