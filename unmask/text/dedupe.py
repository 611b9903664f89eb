"""Find exact duplicates by a 128-bit hash, and count near duplicates by MinHash.

Exact duplicates are documents that differ only in whitespace. All documents are compared with bounded memory: a file has their
hashes and lengths (24 bytes each), and one pass per million documents sorts the hashes of one range.

Near duplicates are documents whose sets of word 5-grams (5 characters in Chinese) have a Jaccard similarity of about 0.8 or more.
MinHash (Broder 1997): the minimum of a random permutation is equal for two sets with exactly that probability, so 64
permutations estimate the similarity. Banding (16 bands of 4) finds candidates without comparing all pairs.
"""

import string
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

HASH_RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("characters", "<i8")])  # one per document, in corpus order
BUCKET_DOCUMENTS = 1 << 20  # documents sorted at a time
BLOCK_RECORDS = 1 << 16  # records read at a time
PERMUTATIONS, BANDS = 64, 16
MIN_SIMILARITY = 0.8
SHINGLE_WORDS = 5

_SLICE_CHARS = 1 << 20  # characters normalized at a time
_NO_PUNCTUATION = bytes(32 if chr(b) in string.punctuation else b for b in range(256))
# Permutations h → (a·h + b) mod 2⁶⁴, upper half. Never change them: signatures of two runs are compared.
_A, _B = np.random.Generator(np.random.PCG64(20_240_501)).integers(0, 1 << 63, (2, 1, PERMUTATIONS), np.uint64)
_A |= np.uint64(1)


def digest(text: str) -> bytes:
    """Return 16 bytes that are equal for texts that differ only in whitespace.

    >>> digest("a  b\\n") == digest("a b") != digest("ab")
    True
    """
    state = blake2b(digest_size=16, person=b"unmask.document")
    started = space = False  # a word was hashed; whitespace followed it
    for start in range(0, len(text), _SLICE_CHARS):
        part = text[start : start + _SLICE_CHARS]
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
    """Yield (index of the first record, block of HASH_RECORD). Not memory-mapped: pages would count as our memory."""
    with open(path, "rb") as file:
        first = 0
        while len(block := np.fromfile(file, HASH_RECORD, BLOCK_RECORDS)):
            yield first, block
            first += len(block)


def exact_duplicates(path: Path, total: int) -> Iterator[np.ndarray]:
    """Yield arrays of the documents that are equal to an earlier one, in no particular order."""
    buckets = -(-total // BUCKET_DOCUMENTS)
    width = (1 << 64) // max(1, buckets) + 1
    for bucket in range(buckets):
        low, high = np.uint64(bucket * width), np.uint64(min((bucket + 1) * width, 1 << 64) - 1)
        parts, documents = [], []
        for first, block in read_hash_records(path):
            inside = (block["high"] >= low) & (block["high"] <= high)
            parts.append(block[["high", "low"]][inside])
            documents.append(np.flatnonzero(inside) + first)
        part, document = np.concatenate(parts), np.concatenate(documents)
        order = np.lexsort((part["low"], part["high"]))  # stable: equal documents stay in corpus order
        part, document = part[order], document[order]
        equal = (part["high"][1:] == part["high"][:-1]) & (part["low"][1:] == part["low"][:-1])
        yield document[1:][equal]


def minhash_signature(text: str, language: str) -> np.ndarray:
    """Return (64,) uint32: the minimum of each permutation over the text's shingles."""
    if language == "zh":
        characters = "".join(text.lower().split()).encode("utf-32-le", "surrogatepass")
        units = np.frombuffer(characters, np.uint32)
    else:
        words = text.lower().encode("utf-8", "surrogatepass").translate(_NO_PUNCTUATION).split()
        units = np.fromiter(map(zlib.crc32, words), np.uint32, len(words))
    width = max(1, min(SHINGLE_WORDS, len(units)))
    shingles = np.zeros(max(0, len(units) - width + 1), np.uint64)
    for i in range(width):  # polynomial hash; the multiplier is derived from the golden ratio
        shingles = (shingles + units[i : len(units) - width + 1 + i]) * np.uint64(0x9E3779B97F4A7C15)
        shingles ^= shingles >> np.uint64(29)
    signature = np.full(PERMUTATIONS, np.iinfo(np.uint32).max, np.uint32)
    for start in range(0, len(shingles), 4096):
        values = (shingles[start : start + 4096, None] * _A + _B) >> np.uint64(32)
        np.minimum(signature, values.min(0).astype(np.uint32), out=signature)
    return signature


@dataclass
class NearDuplicates:
    documents: int  # compared documents
    near: int  # near duplicates of an earlier document
    heldout: int  # compared held-out documents
    leaked: int  # held-out documents that are near duplicates of a training document
    examples: list[tuple[int, int]]  # pairs of indices of compared documents


def near_duplicates(signatures: np.ndarray, heldout: np.ndarray, examples: int = 5) -> NearDuplicates:
    """Count near duplicates among documents with signatures (n, 64). `heldout` (n,) bool marks held-out documents.

    In every band, documents with the same values are compared with the first of them (a training document if there is one) and
    with the previous one. This is linear, although a thousand copies of a text have a million pairs.
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
        same = np.flatnonzero(group[1:] == group[:-1]) + 1  # indices in `order` that are not the first of their group
        starts = np.searchsorted(group, group[same])
        for left, right in ((order[same - 1], order[same]), (order[starts], order[same])):
            close = (signatures[left] == signatures[right]).mean(1) >= MIN_SIMILARITY
            left, right = left[close], right[close]
            later, earlier = np.maximum(left, right), np.minimum(left, right)
            partner[later] = np.where(partner[later] < 0, earlier, partner[later])
            leaked[right[heldout[right] & ~heldout[left]]] = True
    near = np.flatnonzero(partner >= 0)
    pairs = [(int(partner[i]), int(i)) for i in near[:examples]]
    return NearDuplicates(n, len(near), int(heldout.sum()), int(leaked.sum()), pairs)
