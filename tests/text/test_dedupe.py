"""Exact and near duplicates: against plain reference implementations, and with more documents than are sorted at
once."""

import random
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.text.dedupe import (
    BUCKET_DOCUMENTS,
    HASH_RECORD,
    digest,
    exact_duplicates,
    hash_record,
    minhash_signature,
    near_duplicates,
)


def plain_digest(text: str) -> bytes:
    return blake2b(" ".join(text.split()).encode(), digest_size=16, person=b"unmask.document").digest()


@given(st.text(alphabet=st.sampled_from("ab \n\t\u3000é"), max_size=40))
def test_digest_ignores_only_whitespace(text):
    assert digest(text) == plain_digest(text)


@pytest.mark.parametrize("shift", range(-3, 4))
@pytest.mark.parametrize("gap", ["", " ", "  ", "   \n  "])
def test_digest_of_a_text_longer_than_a_slice(shift, gap):
    text = "x" * ((1 << 20) + shift) + gap + "y" * 10
    assert digest(text) == plain_digest(text)
    assert digest(" " * (1 << 20) + text) == digest(text)


def duplicate_ids(path, total) -> set[int]:
    return {int(n) for group in exact_duplicates(path, total) for n in group}


def test_exact_duplicates_keep_the_first(tmp_path):
    texts = ["one", "two", " one ", "three", "two\n", "one"]
    (tmp_path / "scan").write_bytes(b"".join(map(hash_record, texts)))
    assert duplicate_ids(tmp_path / "scan", len(texts)) == {2, 4, 5}


def test_exact_duplicates_among_more_documents_than_are_sorted_at_once(tmp_path):
    rng = np.random.default_rng(0)
    total = 2 * BUCKET_DOCUMENTS + 1000  # three hash ranges
    block = np.zeros(total, HASH_RECORD)
    block["high"], block["low"] = rng.integers(0, 1 << 64, (2, total), np.uint64)
    block["high"][:2] = 0, 2**64 - 1  # the ends of the range
    copies = rng.choice(np.arange(total // 2, total), 5000, replace=False)
    block[copies] = block[rng.integers(0, total // 2, 5000)]
    block["high"][10] = block["high"][11]  # an equal half of the hash is not a match
    block.tofile(tmp_path / "scan")
    assert duplicate_ids(tmp_path / "scan", total) == set(copies.tolist())


def words(rng: random.Random, n: int) -> list[str]:
    return [f"w{rng.randrange(5000)}" for _ in range(n)]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_signatures_estimate_the_overlap(language):
    rng = random.Random(1)
    errors = []
    for _ in range(60):
        if language == "en":
            a = words(rng, 300)
            b = a[: (cut := rng.randrange(300))] + words(rng, 300 - cut)
            sets = [{tuple(x[i : i + 5]) for i in range(len(x) - 4)} for x in (a, b)]
            texts = [" ".join(a), ", ".join(b).title()]  # case and punctuation are ignored
        else:
            a = [chr(0x4E00 + rng.randrange(3000)) for _ in range(300)]
            b = a[: (cut := rng.randrange(300))] + [chr(0x4E00 + rng.randrange(3000)) for _ in range(300 - cut)]
            sets = [{tuple(x[i : i + 5]) for i in range(len(x) - 4)} for x in (a, b)]
            texts = ["".join(a), " ".join(b)]
        true = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        estimate = (minhash_signature(texts[0], language) == minhash_signature(texts[1], language)).mean()
        errors.append(estimate - true)
    # The estimate is a mean of 64 Bernoulli samples: standard deviation at most 0.0625; of the mean of 60 at most 0.008.
    assert abs(np.mean(errors)) < 0.03
    assert np.std(errors) < 0.08


def test_signature_of_empty_and_short_texts():
    assert (minhash_signature("", "en") == 2**32 - 1).all()
    assert (minhash_signature("Good film.", "en") == minhash_signature("good film", "en")).all()
    assert (minhash_signature("good film", "en") != minhash_signature("bad film", "en")).any()


def test_near_duplicates_are_found_and_others_are_not():
    rng = random.Random(2)
    texts = [" ".join(words(rng, 200)) for _ in range(300)]
    near = [f"{text} {' '.join(words(rng, 5))}" for text in texts[:20]]  # overlap 196 of 201 = 0.97
    half = [" ".join(text.split()[:100] + words(rng, 100)) for text in texts[20:40]]  # about 1/3
    everything = texts + near + half
    heldout = np.zeros(len(everything), bool)
    heldout[300:305] = True  # five copies are held out, their originals are in the training split
    heldout[[10, 310]] = True  # and one pair is entirely held out, which is not leakage
    result = near_duplicates(np.stack([minhash_signature(t, "en") for t in everything]), heldout)
    assert (result.documents, result.near, result.heldout, result.leaked) == (340, 20, 7, 5)
    assert result.examples == [(i, 300 + i) for i in range(5)]


def test_a_thousand_copies_are_counted_without_a_million_pairs():
    rng = random.Random(3)
    notice = words(rng, 400)
    texts = []
    for _ in range(1000):
        copy = list(notice)
        copy[rng.randrange(400)] = f"name{rng.randrange(10**6)}"
        texts.append(" ".join(copy))
    heldout = np.array([rng.random() < 0.1 for _ in texts])
    result = near_duplicates(np.stack([minhash_signature(t, "en") for t in texts]), heldout)
    assert result.near >= 990
    assert result.leaked >= 0.98 * heldout.sum()
