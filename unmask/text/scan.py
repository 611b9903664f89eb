"""Scan: the first of two passes over a corpus, and what it decides for every document.

The pass leaves 24 bytes per document (`dedupe.RECORD`); from these follows a plan, one byte per document:
dropped as a duplicate, held out, or trained on, and whether MinHash looks at it.

Held out is decided by the hash of the text alone, so that adding documents moves none from one side to the
other, and equal texts are always on the same side. In a corpus below RANKED documents chance would make the
share too uneven: there the documents with the smallest hashes are held out until the share of the text is
reached. Where even one whole document would be too much (one book, three speeches), the last sentences of
the longest one are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.text.dedupe import HASH_RECORD, exact_duplicates, read_hash_records

HELDOUT, DROPPED, SAMPLED = 1, 2, 4  # bits of a document's plan; HELDOUT not set = trained on
MAX_RANKED_DOCUMENTS = 10_000  # documents
MAX_DOCUMENT_FRACTION = 0.2  # of the text: the most that a single held-out document may be


@dataclass
class SplitPlan:
    documents: int  # in the corpus
    characters: int
    dropped: int
    tail_of: int  # number of the document whose end is held out, -1 when whole documents are
    tail: float  # share of that document
    rule: str  # for people: how the held-out text was chosen


def make_split_plan(scan: Path, plan: Path, deduplicate: bool, heldout: float, sample: int) -> SplitPlan:
    """Write the file `plan` (uint8 per document) for the records in `scan`, and say what it holds."""
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
        held, tail_of, tail = _ranked(scan, marks, heldout * characters, characters)
        marks[held] |= HELDOUT
        rule = (
            f"the last {tail:.1%} of the longest document, from a sentence on, and {len(held)} whole ones"
            if tail
            else "whole documents, by the smallest hashes"
        )
    else:
        limit, least, smallest = np.uint64(int(heldout * 2**64)), 0, np.uint64(2**64 - 1)
        for first, low, here in _kept(scan, marks):
            marks[first + here[low < limit]] |= HELDOUT
            if low.min() < smallest:
                smallest, least = low.min(), first + int(here[low.argmin()])
        marks[least] |= HELDOUT  # at least one
        rule = "whole documents, by hash"
    _sample(scan, marks, sample)
    marks.flush()
    return SplitPlan(documents, characters, documents - kept, tail_of, tail, rule)


def _write_zeros(path: Path, size: int) -> None:
    """Really written: a map over a hole in a file would end the process (SIGBUS) when the disk is full."""
    with open(path, "wb") as file:
        for at in range(0, size, 1 << 20):
            file.write(bytes(min(1 << 20, size - at)))


def decisions(scan: Path, plan: Path) -> Iterator[tuple[int, int]]:
    """(bits, characters) of every document, in corpus order."""
    with open(plan, "rb") as file:
        for _, block in read_hash_records(scan):
            yield from zip(file.read(len(block)), block["characters"].tolist())


def _kept(scan: Path, marks: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """(number of a block's first document, lower hashes of those kept, their places in the block)."""
    for first, block in read_hash_records(scan):
        here = np.flatnonzero(marks[first : first + len(block)] & DROPPED == 0)
        if len(here):
            yield first, block["low"][here], here


def _ranked(scan: Path, marks: np.ndarray, target: float, total: int) -> tuple[np.ndarray, int, float]:
    """Documents to hold out, about `target` characters of `total`; or the document to cut, and how much of it."""
    block = np.fromfile(scan, HASH_RECORD)
    kept = np.flatnonzero(np.asarray(marks) & DROPPED == 0)
    sizes = block["characters"][kept]
    held: list[int] = []  # places in `kept`
    taken = 0
    for i in np.argsort(block["low"][kept], kind="stable").tolist():
        if taken + sizes[i] / 2 < target and len(held) + 1 < len(kept):  # nearer to the target with it than without
            held.append(i)
            taken += int(sizes[i])
    tail_of, tail = -1, 0.0
    if taken < target / 2:  # what is left is too long: the smallest document whole, or the end of the longest
        rest = np.setdiff1d(np.arange(len(kept)), held)
        smallest, longest = rest[sizes[rest].argmin()], rest[sizes[rest].argmax()]
        if len(rest) > 1 and sizes[smallest] <= MAX_DOCUMENT_FRACTION * total:
            held.append(int(smallest))
        else:
            tail_of, tail = int(kept[longest]), float((target - taken) / sizes[longest])
    return kept[held], tail_of, tail


def _sample(scan: Path, marks: np.ndarray, size: int) -> None:
    """Mark the `size` kept documents with the smallest (other) hash values: the same ones every time."""
    if size <= 0:
        return
    values, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for first, block in read_hash_records(scan):
        here = np.flatnonzero(marks[first : first + len(block)] & DROPPED == 0)
        values = np.append(values, block["high"][here] ^ block["low"][here])
        numbers = np.append(numbers, first + here)
        if len(values) > size:
            smallest = np.argpartition(values, size - 1)[:size]
            values, numbers = values[smallest], numbers[smallest]
    marks[numbers] |= SAMPLED
