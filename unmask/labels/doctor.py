"""Data doctor: checks of labeled files before training.

Each check returns findings with file and line: errors stop the run, warnings are printed and kept. The inputs, labels and targets
of a record follow from the fields of its task (fields.py), so the checks are the same for all tasks. Time is linear in the number
of records; near duplicates are searched in a sample.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unmask.labels.fields import RecordSpec, has_word_labels, inputs_of, labels_of, target_key
from unmask.labels.records import MISSING_VALUES, Finding, Record
from unmask.labels.textcheck import check_texts, parse_float, subsample_evenly
from unmask.text.dedupe import minhash_signature, near_duplicates

MIN_LABEL_COUNT = 5  # a label with fewer records is reported as rare
IMBALANCE_RATIO = 20  # records of the most frequent label per record of the least frequent one that is not rare
MIN_RECORDS_FOR_RATIOS = 20
NEAR_SAMPLE, NEAR_WORDS = 20_000, 10  # texts compared by MinHash, and the words that one needs for it
SPACES = re.compile(r"\s+")

Sets = Mapping[str, Sequence[Record]]  # train, dev, test


def check_records(sets: Sets, spec: RecordSpec, labels: Sequence[str] = ()) -> list[Finding]:
    """Run all checks. `labels`: the labels that the user named, if any."""
    texts = [finding for records in sets.values() for finding in check_texts(records, spec)]
    return [*_labels(sets, spec, labels), *_repeats(sets, spec), *_near(sets, spec), *texts]


def plain(text: str) -> str:
    """Collapse white space and ignore case, to compare texts.

    >>> plain(" What a\\nFilm ")
    'what a film'
    """
    return SPACES.sub(" ", text).strip().casefold()


def many(count: int) -> str:
    return f"{count:,} record{'s' * (count != 1)}"


# ---------------------------------------------------------------------------------------------------------- labels


def _labels(sets: Sets, spec: RecordSpec, given: Sequence[str]) -> list[Finding]:
    found: list[Finding] = []
    first: dict[str, str] = {}  # label → where it stands first in train
    counts: Counter[str] = Counter()  # records with the label
    train = sets.get("train", ())
    for record in train:
        for label in dict.fromkeys(labels_of(spec, record)):
            if label:
                first.setdefault(label, record["location"])
                counts[label] += 1
    if not counts:
        return found
    known = set(given or counts)
    for name, records in sets.items():
        found += _unknown(name, records, spec, known, bool(given))
    top = train[0]["location"] if train else ""
    # words outside a span are a label too
    several = has_word_labels(spec) or any(len(labels_of(spec, r)) != 1 for r in train)
    if len(train) >= MIN_RECORDS_FOR_RATIOS and not several and len(counts) > len(train) / 2:
        numbers = all(parse_float(label) is not None for label in counts)
        hint = "--column label=NAME, if another column holds the label"
        hint += _hint(spec, "numbers as labels") if numbers else ""
        what = f"{len(counts):,} different labels in {len(train):,} records: probably not the label"
        return [*found, Finding(top, what, hint, error=False, kind="label column")]
    for label in counts:
        if label.strip().casefold() in MISSING_VALUES and not (label == "-" and "+" in counts):
            what = f"the label {label!r} ({many(counts[label])}) looks like a missing value"
            found.append(
                Finding(first[label], what, "fill it in, or remove the rows", error=False, kind="missing label")
            )
    found += _alike(counts, first)
    if len(counts) == 1 and not several:
        what = f"every record has the label {next(iter(counts))!r}: nothing can be learned"
        found.append(Finding(top, what, "add records with other labels", kind="one label"))
    for label, count in sorted(counts.items(), key=lambda item: item[1]):
        if count < MIN_LABEL_COUNT and len(counts) > 1 and len(train) >= MIN_RECORDS_FOR_RATIOS:
            what = f"the label {label!r} has {many(count)}, too few to train or evaluate on"
            hint = "add records, or merge rare labels into one"
            found.append(Finding(first[label], what, hint, error=False, kind="rare label"))
    usual = {label: count for label, count in counts.items() if count >= MIN_LABEL_COUNT}
    if len(usual) > 1 and not several:
        most, least = max(usual, key=usual.__getitem__), min(usual, key=usual.__getitem__)
        if usual[most] >= IMBALANCE_RATIO * usual[least]:
            what = f"{usual[most]:,} records of {most!r}, {usual[least]:,} of {least!r}: accuracy is not informative"
            hint = "use macro F1" + _hint(spec, "imbalance")
            found.append(Finding(first[least], what, hint, error=False, kind="imbalance"))
    return found


def _hint(spec: RecordSpec, kind: str) -> str:
    """Return the hint that the task adds to a kind of finding."""
    return f"; {spec.hints[kind]}" if kind in spec.hints else ""


def _unknown(name: str, records: Sequence[Record], spec: RecordSpec, known: set[str], given: bool) -> list[Finding]:
    """Find labels that the model will not have."""
    places: dict[str, list[str]] = defaultdict(list)
    for record in records:
        for label in dict.fromkeys(labels_of(spec, record)):
            if label and label not in known:
                places[label].append(record["location"])
    found = []
    shown = ", ".join(map(repr, sorted(known)[:8])) + (", …" if len(known) > 8 else "")
    for label, where in places.items():
        lacks = "is not one of the given labels" if given else "does not occur in the training records"
        what = f"the label {label!r} of {name} ({many(len(where))}) {lacks}"
        hint = f"use one of {shown}" + ("" if given else ", or add records with it to the training file")
        found.append(Finding(where[0], what, hint, kind="unknown label"))
    return found


def _alike(counts: Counter[str], first: Mapping[str, str]) -> list[Finding]:
    """Find labels that differ only in case, white space or number format."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for label in counts:
        number = parse_float(label)
        groups[plain(label) if number is None else number].append(label)
    found = []
    for labels in groups.values():
        usual, *others = sorted(labels, key=lambda label: -counts[label])
        for other in others:
            what = f"the label {other!r} ({many(counts[other])}) differs from {usual!r} ({counts[usual]:,}) only in spelling"
            hint = f"write {usual!r} if they mean the same"
            found.append(Finding(first[other], what, hint, error=False, kind="labels alike"))
    return found


# --------------------------------------------------------------------------------------------------------- repeats


def _repeats(sets: Sets, spec: RecordSpec) -> list[Finding]:
    """Find records with equal inputs: duplicates, contradicting labels, and leakage between sets (dev selects the model and its thresholds)."""
    found: list[Finding] = []
    earlier: dict[str, dict[tuple[str, ...], tuple[str, str | None]]] = {}
    for name, records in sets.items():
        seen: dict[tuple[str, ...], tuple[str, str | None]] = {}
        copies: dict[tuple[str, ...], list[str]] = {}
        leaks: dict[str, list[tuple[str, str]]] = defaultdict(list)  # other set → (location here, location there)
        for record in records:
            question = tuple(plain(text) for text in inputs_of(spec, record))
            if not any(question):
                continue
            at, answer = record["location"], target_key(spec, record)
            if holder := next((other for other, known in earlier.items() if question in known), None):
                leaks[holder].append((at, earlier[holder][question][0]))
            if question not in seen:
                seen[question] = (at, answer)
                continue
            before, other = seen[question]
            if answer is None or answer == other:
                copies.setdefault(question, [before]).append(at)
            else:
                what = f"the same text as {_relative_location(before, at)}, but a different label: {answer:.60} here, {other:.60} there"
                hint = "keep the correct one"
                found.append(Finding(at, what, hint, error=False, kind="contradiction"))
        for where in copies.values():
            what = f"the same record as {_relative_location(where[0], where[1])} ({len(where)} times in all)"
            found.append(Finding(where[1], what, "keep one of them", error=False, kind="duplicate"))
        for other, places in leaks.items():
            if len(places) == len(records) == len(sets[other]):
                trained = other == "train"
                says = (
                    "test scores would be meaningless"
                    if trained
                    else "the same data is used for model selection and testing"
                )
                what = f"{name} has the same records as {other}: {says}"
                found.append(Finding(places[0][0], what, f"pass another file to --{name}", trained, kind="same file"))
                continue
            share = f"{len(places):,} of {len(records):,} records of {name}"
            kind = "leakage" if (other, name) == ("train", "test") else "dev leakage"
            for at, there in places:
                what = f"also in {other}, at {there} ({share} are)"
                found.append(Finding(at, what, f"remove it from {other} or from {name}", error=False, kind=kind))
        earlier[name] = seen
    return found


def _relative_location(there: str, here: str) -> str:
    """
    >>> _relative_location("a.csv:3", "a.csv:9"), _relative_location("a.csv:3", "b.csv:9"), _relative_location("a.json:1:70", "a.json:1:90")
    ('line 3', 'a.csv:3', 'a.json:1:70')
    """
    file, _, line = there.rpartition(":")
    column = re.search(r":\d+$", file)  # the file has several records on one line
    return f"line {line}" if file == here.rpartition(":")[0] and not column else there


def _script(text: str) -> str:
    """Return the shingle unit for MinHash: words ("en"), characters if the text has no spaces ("zh"), or "" if it is too short."""
    return "en" if text.count(" ") >= NEAR_WORDS else "zh" if len(text) >= 3 * NEAR_WORDS and not text.isascii() else ""


def _near(sets: Sets, spec: RecordSpec) -> list[Finding]:
    """Find dev and test records that are near duplicates of training records (MinHash over word 5-grams)."""
    found: list[Finding] = []
    for name in ("dev", "test"):
        train, held = (
            [
                (plain(" ".join(inputs_of(spec, r))), r["location"])
                for r in subsample_evenly(sets.get(part, ()), NEAR_SAMPLE // 2)
            ]
            for part in ("train", name)
        )
        equal = {text for text, _ in train}
        train = [item for item in train if _script(item[0])]
        held = [item for item in held if _script(item[0]) and item[0] not in equal]
        if not train or not held:
            continue
        both = train + held
        near = near_duplicates(
            np.stack([minhash_signature(text, _script(text)) for text, _ in both]),
            np.arange(len(both)) >= len(train),
            len(both),
        )
        pairs = [(a, b) for a, b in near.examples if a < len(train) <= b]
        if near.leaked and pairs:
            share = f"{near.leaked:,} of {near.heldout:,} sampled records of {name} are near duplicates"
            for a, b in pairs:
                what = f"nearly the same text as {both[a][1]} in train ({share})"
                found.append(
                    Finding(both[b][1], what, f"remove it from train or from {name}", error=False, kind="near leakage")
                )
    return found
