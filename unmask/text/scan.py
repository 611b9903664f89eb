"""Split plan: decide for every document whether it is dropped, held out or trained on.

The first pass over the corpus writes 24 bytes per document (`dedupe.HASH_RECORD`). The plan is computed from them and
has one byte per document: dropped as a duplicate, held out or trained on, and whether MinHash samples it.

The hash of the text alone decides whether a document is held out. So adding documents moves no document between the
splits, and equal texts are always in the same split. With fewer than MAX_RANKED_DOCUMENTS documents the held-out
fraction would vary too much; then the documents with the smallest hashes are held out until the fraction is reached.
If even one document is too large (one book, three speeches), the last sentences of the longest one are held out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.text.dedupe import HASH_RECORD, exact_duplicates, read_hash_records

HELDOUT, DROPPED, SAMPLED = 1, 2, 4  # bits of a document's plan; HELDOUT not set = trained on
MAX_RANKED_DOCUMENTS = 10_000
MAX_DOCUMENT_FRACTION = 0.2  # a single document may be held out if it is at most this fraction of the text


@dataclass
class SplitPlan:
    documents: int  # in the corpus
    characters: int
    dropped: int
    tail_of: int  # index of the document whose end is held out; -1 if whole documents are
    tail: float  # held-out fraction of that document
    rule: str  # description: how the held-out text was chosen


def make_split_plan(scan: Path, plan: Path, deduplicate: bool, heldout: float, sample: int) -> SplitPlan:
    """Write the file `plan` (uint8 per document) for the records in `scan`, and return its summary."""
    documents = scan.stat().st_size // HASH_RECORD.itemsize
    _write_zeros(plan, documents)
    marks = np.memmap(plan, np.uint8, "r+")
    if deduplicate:
        for numbers in exact_duplicates(scan, documents):
            marks[numbers] |= DROPPED
    kept = characters = 0
    for first, block in read_hash_records(scan):
        keep = marks[first : first + len(block)] & DROPPED == 0
        kept += int(keep.sum())
        characters += int(block["characters"][keep].sum())
    tail_of, tail = -1, 0.0
    if heldout == 0:
        rule = "none"
    elif kept < MAX_RANKED_DOCUMENTS:
        held_out, tail_of, tail = _select_smallest_hashes(scan, marks, heldout * characters, characters)
        marks[held_out] |= HELDOUT
        rule = (
            f"the last {tail:.1%} of the longest document, from a sentence on, and {len(held_out)} whole ones"
            if tail
            else "whole documents, by the smallest hashes"
        )
    else:
        limit, smallest, smallest_index = np.uint64(int(heldout * 2**64)), np.uint64(2**64 - 1), 0
        for first, block in read_hash_records(scan):
            kept_here = np.flatnonzero(marks[first : first + len(block)] & DROPPED == 0)
            if not len(kept_here):
                continue
            low = block["low"][kept_here]
            marks[first + kept_here[low < limit]] |= HELDOUT
            if low.min() < smallest:
                smallest, smallest_index = low.min(), first + int(kept_here[low.argmin()])
        marks[smallest_index] |= HELDOUT  # hold out at least one document
        rule = "whole documents, by hash"
    _mark_sampled(scan, marks, sample)
    marks.flush()
    return SplitPlan(documents, characters, documents - kept, tail_of, tail, rule)


def _write_zeros(path: Path, size: int) -> None:
    """Write real zeros: on a full disk, a memory map over a sparse file would kill the process (SIGBUS)."""
    with open(path, "wb") as file:
        for start in range(0, size, 1 << 20):
            file.write(bytes(min(1 << 20, size - start)))


def read_decisions(scan: Path, plan: Path) -> Iterator[tuple[int, int]]:
    """Yield (bits, characters) of every document, in corpus order."""
    with open(plan, "rb") as file:
        for _, block in read_hash_records(scan):
            yield from zip(file.read(len(block)), block["characters"].tolist())


def _select_smallest_hashes(scan: Path, marks: np.ndarray, target: float, total: int) -> tuple[np.ndarray, int, float]:
    """Return the documents to hold out (about `target` of `total` characters), the document to split, and its fraction."""
    block = np.fromfile(scan, HASH_RECORD)
    kept = np.flatnonzero(np.asarray(marks) & DROPPED == 0)
    sizes = block["characters"][kept]
    held_out: list[int] = []  # indices into `kept`
    num_characters = 0
    for i in np.argsort(block["low"][kept], kind="stable").tolist():
        if num_characters + sizes[i] / 2 < target and len(held_out) + 1 < len(kept):  # closer to the target with it
            held_out.append(i)
            num_characters += int(sizes[i])
    tail_of, tail = -1, 0.0
    if num_characters < target / 2:  # all other documents are too long: take the smallest, or the end of the longest
        remaining = np.setdiff1d(np.arange(len(kept)), held_out)
        smallest, longest = remaining[sizes[remaining].argmin()], remaining[sizes[remaining].argmax()]
        if len(remaining) > 1 and sizes[smallest] <= MAX_DOCUMENT_FRACTION * total:
            held_out.append(int(smallest))
        else:
            tail_of, tail = int(kept[longest]), float((target - num_characters) / sizes[longest])
    return kept[held_out], tail_of, tail


def _mark_sampled(scan: Path, marks: np.ndarray, size: int) -> None:
    """Mark the `size` kept documents with the smallest values of another hash, so that the sample is reproducible."""
    if size <= 0:
        return
    values, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for first, block in read_hash_records(scan):
        kept = np.flatnonzero(marks[first : first + len(block)] & DROPPED == 0)
        values = np.append(values, block["high"][kept] ^ block["low"][kept])
        numbers = np.append(numbers, first + kept)
        if len(values) > size:
            smallest = np.argpartition(values, size - 1)[:size]
            values, numbers = values[smallest], numbers[smallest]
    marks[numbers] |= SAMPLED
