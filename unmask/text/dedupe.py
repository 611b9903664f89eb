"""Duplicates: equal documents, found by a 128-bit hash, and near ones, counted by MinHash.

Equal means equal after every run of white space is made one space. All documents are compared, with bounded
memory: their hashes lie in a file (24 bytes each with the length), which is gone through once for every
million documents, each time sorting only those of one range of hashes.

Near means that the sets of word 5-grams (5 characters in Chinese) overlap by about 0.8 or more (Jaccard).
MinHash (Broder 1997): the smallest value of a random permutation is equal in two sets with exactly that
probability, so 64 permutations estimate the overlap; banding (16 bands of 4) finds candidates without
comparing all pairs.
"""

import string
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

HASH_RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("characters", "<i8")])  # one per document, in corpus order
BUCKET_DOCUMENTS = 1 << 20  # documents sorted at once
BLOCK_RECORDS = 1 << 16  # records read at once
PERMUTATIONS, BANDS = 64, 16
MIN_SIMILARITY = 0.8
SHINGLE_WORDS = 5

_SLICE = 1 << 20  # characters normalised at once
_NO_PUNCTUATION = bytes(32 if chr(b) in string.punctuation else b for b in range(256))
# The permutations h → (a·h + b) mod 2⁶⁴, upper half: fixed for ever, since signatures of two runs are
# compared.
_A, _B = np.random.Generator(np.random.PCG64(20_240_501)).integers(0, 1 << 63, (2, 1, PERMUTATIONS), np.uint64)
_A |= np.uint64(1)


def digest(text: str) -> bytes:
    """16 bytes that are equal for texts which differ in white space only.

    >>> digest("a  b\\n") == digest("a b") != digest("ab")
    True
    """
    state = blake2b(digest_size=16, person=b"unmask.document")
    started = space = False  # something was hashed; white space came after it
    for at in range(0, len(text), _SLICE):
        part = text[at : at + _SLICE]
        words = part.split()
        if words and started and (space or part[0].isspace()):
            state.update(b" ")
        state.update(" ".join(words).encode("utf-8", "surrogatepass"))
        started |= bool(words)
        space = part[-1].isspace() if words else True
    return state.digest()


def hash_record(text: str) -> bytes:
    return digest(text) + len(text).to_bytes(8, "little")


def read_hash_records(path: Path) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first, block of RECORD) through the file; read, not mapped, so that no page stays with us."""
    with open(path, "rb") as file:
        first = 0
        while len(block := np.fromfile(file, HASH_RECORD, BLOCK_RECORDS)):
            yield first, block
            first += len(block)


def exact_duplicates(path: Path, total: int) -> Iterator[np.ndarray]:
    """Numbers of the documents that are equal to an earlier one, in groups, in no particular order."""
    buckets = -(-total // BUCKET_DOCUMENTS)
    width = (1 << 64) // max(1, buckets) + 1
    for bucket in range(buckets):
        low, high = np.uint64(bucket * width), np.uint64(min((bucket + 1) * width, 1 << 64) - 1)
        parts, numbers = [], []
        for first, block in read_hash_records(path):
            inside = (block["high"] >= low) & (block["high"] <= high)
            parts.append(block[["high", "low"]][inside])
            numbers.append(np.flatnonzero(inside) + first)
        part, number = np.concatenate(parts), np.concatenate(numbers)
        order = np.lexsort((part["low"], part["high"]))  # stable: equal ones stay in corpus order
        part, number = part[order], number[order]
        equal = (part["high"][1:] == part["high"][:-1]) & (part["low"][1:] == part["low"][:-1])
        yield number[1:][equal]


def minhash_signature(text: str, language: str) -> np.ndarray:
    """(64,) uint32: the smallest value of each permutation over the text's shingles."""
    if language == "zh":
        characters = "".join(text.lower().split()).encode("utf-32-le", "surrogatepass")
        units = np.frombuffer(characters, np.uint32)
    else:
        words = text.lower().encode("utf-8", "surrogatepass").translate(_NO_PUNCTUATION).split()
        units = np.fromiter(map(zlib.crc32, words), np.uint32, len(words))
    width = max(1, min(SHINGLE_WORDS, len(units)))
    shingles = np.zeros(max(0, len(units) - width + 1), np.uint64)
    for i in range(width):  # a polynomial of the units; the odd multiplier is the golden ratio's
        shingles = (shingles + units[i : len(units) - width + 1 + i]) * np.uint64(0x9E3779B97F4A7C15)
        shingles ^= shingles >> np.uint64(29)
    smallest = np.full(PERMUTATIONS, np.iinfo(np.uint32).max, np.uint32)
    for at in range(0, len(shingles), 4096):
        values = (shingles[at : at + 4096, None] * _A + _B) >> np.uint64(32)
        np.minimum(smallest, values.min(0).astype(np.uint32), out=smallest)
    return smallest


@dataclass
class NearDuplicates:
    documents: int  # looked at
    near: int  # of these, nearly equal to an earlier one
    heldout: int  # looked at, of the held-out documents …
    leaked: int  # … of which nearly equal to one trained on
    examples: list[tuple[int, int]]  # pairs, as numbers among those looked at


def near_duplicates(signatures: np.ndarray, heldout: np.ndarray, examples: int = 5) -> NearDuplicates:
    """Count over (n, 64) signatures of documents, of which `heldout` (n,) bool are held out.

    In every band, documents with the same values are compared with the first of them (one trained on, where
    there is one) and with the one before: linear, though a thousand copies of a notice would make a million
    pairs.
    """
    n, rows = len(signatures), PERMUTATIONS // BANDS
    if n == 0:
        return NearDuplicates(0, 0, 0, 0, [])
    partner = np.full(n, -1)  # an earlier near duplicate of each document
    leaked = np.zeros(n, bool)
    for band in range(BANDS):
        values = np.ascontiguousarray(signatures[:, band * rows : (band + 1) * rows])
        _, group = np.unique(values, axis=0, return_inverse=True)
        order = np.lexsort((np.arange(n), heldout, group.ravel()))
        group = group.ravel()[order]
        same = np.flatnonzero(group[1:] == group[:-1]) + 1  # places in `order` whose group began before
        begins = np.searchsorted(group, group[same])
        for left, right in ((order[same - 1], order[same]), (order[begins], order[same])):
            close = (signatures[left] == signatures[right]).mean(1) >= MIN_SIMILARITY
            left, right = left[close], right[close]
            later, earlier = np.maximum(left, right), np.minimum(left, right)
            partner[later] = np.where(partner[later] < 0, earlier, partner[later])
            leaked[right[heldout[right] & ~heldout[left]]] = True
    found = np.flatnonzero(partner >= 0)
    pairs = [(int(partner[i]), int(i)) for i in found[:examples]]
    return NearDuplicates(n, len(found), int(heldout.sum()), int(leaked.sum()), pairs)
