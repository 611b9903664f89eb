"""Entity tagging schemes: decoded as seqeval decodes them, encoded so that seqeval's strict mode agrees, and
converted without loss."""

import random
from typing import Any

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, IOBES, Entities

from unmask.labels.formats import schemes

CASES = 300


def random_tags(seed: int, letters: str, count: int = CASES) -> list[list[str]]:
    """Sequences of arbitrary tags, valid or not; some empty, some without an entity."""
    rng = random.Random(seed)
    tags = ["O", *(f"{letter}-{label}" for letter in letters for label in ("per", "loc", "creative-work"))]
    return [[rng.choice(tags) for _ in range(rng.randrange(9))] for _ in range(count)] + [["O"] * 3]


def entities(seed: int) -> list[tuple[int, list[schemes.Entity]]]:
    """(number of words, non-overlapping entities)."""
    rng, out = random.Random(seed), []
    for _ in range(CASES):
        at, spans = 0, []
        for _ in range(rng.randrange(4)):
            first = at + rng.randrange(3)
            at = first + rng.randrange(1, 4)
            spans.append((first, at, rng.choice(["per", "loc"])))
        out.append((at + rng.randrange(2), spans))
    return out


@pytest.mark.parametrize("letters", ["BI", "I", "BIES"])
def test_any_sequence_is_decoded_as_in_seqeval(letters: str) -> None:
    for tags in random_tags(1, letters):
        theirs = [(a, b + 1, label) for label, a, b in get_entities(tags)]
        assert schemes.tags_to_entities(tags) == theirs, tags


@pytest.mark.parametrize(("scheme", "theirs"), [("BIO", IOB2), ("BIOES", IOBES)])
def test_encoded_entities_round_trip_in_strict_mode(scheme: str, theirs: Any) -> None:
    for words, expected in entities(3):
        tags = schemes.entities_to_tags(expected, words, scheme)
        strict_entities = [(e.start, e.end, e.tag) for e in Entities([tags], theirs).entities[0]]
        assert schemes.tags_to_entities(tags) == expected == strict_entities
        assert not schemes.invalid_tags(tags, scheme)
        assert schemes.detect_scheme([tags, ["O"]]) in (scheme, "BIO" if not expected else scheme)


@pytest.mark.parametrize("letters", ["BI", "BIES"])
def test_repaired_sequence_is_valid_and_has_the_same_entities(letters: str) -> None:
    scheme = "BIO" if letters == "BI" else "BIOES"
    for tags in random_tags(4, letters):
        repaired = schemes.entities_to_tags(schemes.tags_to_entities(tags), len(tags), scheme)
        assert get_entities(repaired) == get_entities(tags)
        assert not schemes.invalid_tags(repaired, scheme)
        assert bool(schemes.invalid_tags(tags, scheme)) == (repaired != tags)


def test_scheme_detection() -> None:
    assert schemes.detect_scheme([["B-a", "I-a", "O"], ["I-a"]]) == "BIO"  # with an invalid tag
    assert schemes.detect_scheme([["I-a", "B-a", "I-a"], ["O", "I-a"]]) == "IOB1"
    assert schemes.detect_scheme([["I-a", "I-a", "O"]]) == "IO"
    assert schemes.detect_scheme([["S-a", "O", "B-a", "E-a"]]) == "BIOES"
    assert schemes.detect_scheme([["U-a", "O", "B-a", "L-a"]]) == "BIOES"  # BILOU
    assert schemes.detect_scheme([["B", "I", "O"]]) == "BIO"  # without labels
    assert schemes.detect_scheme([["O", "O"]]) == "BIO"
    assert schemes.detect_scheme([["DET", "NOUN"]]) == schemes.detect_scheme([["N", "V", "O", "S"]]) == "none"
    assert schemes.detect_scheme([["B-a", "X-a", "O"]]) == "BIO"  # X-a is then invalid


def test_iob1_is_converted_to_bio() -> None:
    tags = ["I-a", "I-a", "B-a", "O", "I-b", "I-a"]
    assert schemes.entities_to_tags(schemes.tags_to_entities(tags), 6, "BIO") == [
        "B-a",
        "I-a",
        "B-a",
        "O",
        "B-b",
        "B-a",
    ]
    assert schemes.tags_to_entities(["U-a", "B-a", "L-a"]) == [(0, 1, "a"), (1, 3, "a")]


def test_few_invalid_tags_do_not_change_the_detected_scheme() -> None:
    iob1 = [["I-per", "O", "I-loc"], ["I-loc", "B-loc", "O"]] * 1000
    assert schemes.detect_scheme([*iob1, ["B-loc", "O"], ["O", "B-per"]]) == "IOB1"
    bio = [["B-per", "O", "B-loc", "I-loc"]] * 1000
    assert schemes.detect_scheme([*bio, ["O", "I-loc"], ["O", "S-loc"], ["B-loc", "E-loc"]]) == "BIO"
    bioes = [["S-per", "O", "B-loc", "E-loc"]] * 1000
    assert schemes.detect_scheme([*bioes, ["B-loc", "I-loc"], ["B-per"]]) == "BIOES"
    speech = [["NOUN", "VERB", "O"]] * 1000
    assert schemes.detect_scheme([*speech, ["B-per", "O"]]) == "none"


def test_only_invalid_tags_are_reported() -> None:
    assert schemes.invalid_tags(["I-a", "B-a", "O", "B-a", "I-b"], "IOB1") == [(3, "B-a after O")]
    assert schemes.invalid_tags(["B-a", "S-a", "O"], "BIO") == [(1, "S-a is not a tag of BIO")]
    assert schemes.invalid_tags(["I-a", "I-b", "O"], "IO") == []
