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
from unmask.metrics import format_count
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


def normalize_text(text: str) -> str:
    """Collapse white space and ignore case, to compare texts.

    >>> normalize_text(" What a\\nFilm ")
    'what a film'
    """
    return SPACES.sub(" ", text).strip().casefold()


# ---------------------------------------------------------------------------------------------------------- labels


def _labels(sets: Sets, spec: RecordSpec, user_labels: Sequence[str]) -> list[Finding]:
    findings: list[Finding] = []
    first: dict[str, str] = {}  # label → its first location in train
    counts: Counter[str] = Counter()  # records with the label
    train = sets.get("train", ())
    for record in train:
        for label in dict.fromkeys(labels_of(spec, record)):
            if label:
                first.setdefault(label, record["location"])
                counts[label] += 1
    if not counts:
        return findings
    known = set(user_labels or counts)
    for name, records in sets.items():
        findings += _unknown(name, records, spec, known, bool(user_labels))
    top = train[0]["location"] if train else ""
    # words outside a span are a label too
    multi_label = has_word_labels(spec) or any(len(labels_of(spec, r)) != 1 for r in train)
    if len(train) >= MIN_RECORDS_FOR_RATIOS and not multi_label and len(counts) > len(train) / 2:
        numbers = all(parse_float(label) is not None for label in counts)
        hint = "pass --column label=NAME if another column has the label"
        hint += _hint(spec, "numbers as labels") if numbers else ""
        message = f"{len(counts):,} different labels in {len(train):,} records: probably not the label"
        return [*findings, Finding(top, message, hint, error=False, kind="label column")]
    for label in counts:
        if label.strip().casefold() in MISSING_VALUES and not (label == "-" and "+" in counts):
            message = f"the label {label!r} ({format_count(counts[label], 'record')}) looks like a missing value"
            hint = "fill it in, or remove the rows"
            findings.append(Finding(first[label], message, hint, error=False, kind="missing label"))
    findings += _alike(counts, first)
    if len(counts) == 1 and not multi_label:
        message = f"every record has the label {next(iter(counts))!r}: nothing can be learned"
        findings.append(Finding(top, message, "add records with other labels", kind="one label"))
    for label, count in sorted(counts.items(), key=lambda item: item[1]):
        if count < MIN_LABEL_COUNT and len(counts) > 1 and len(train) >= MIN_RECORDS_FOR_RATIOS:
            message = f"the label {label!r} has {format_count(count, 'record')}, too few to train or evaluate on"
            hint = "add records, or merge rare labels into one"
            findings.append(Finding(first[label], message, hint, error=False, kind="rare label"))
    frequent = {label: count for label, count in counts.items() if count >= MIN_LABEL_COUNT}
    if len(frequent) > 1 and not multi_label:
        largest, smallest = max(frequent, key=frequent.__getitem__), min(frequent, key=frequent.__getitem__)
        if frequent[largest] >= IMBALANCE_RATIO * frequent[smallest]:
            message = f"{frequent[largest]:,} records of {largest!r}, {frequent[smallest]:,} of {smallest!r}: accuracy is not informative"
            hint = "use macro F1" + _hint(spec, "imbalance")
            findings.append(Finding(first[smallest], message, hint, error=False, kind="imbalance"))
    return findings


def _hint(spec: RecordSpec, kind: str) -> str:
    """Return the hint that the task adds to a kind of finding."""
    return f"; {spec.hints[kind]}" if kind in spec.hints else ""


def _unknown(name: str, records: Sequence[Record], spec: RecordSpec, known: set[str], from_user: bool) -> list[Finding]:
    """Find labels that the model will not have."""
    locations: dict[str, list[str]] = defaultdict(list)
    for record in records:
        for label in dict.fromkeys(labels_of(spec, record)):
            if label and label not in known:
                locations[label].append(record["location"])
    findings = []
    listed = ", ".join(map(repr, sorted(known)[:8])) + (", …" if len(known) > 8 else "")
    for label, label_locations in locations.items():
        reason = "is not in --labels" if from_user else "does not occur in the training records"
        message = f"the label {label!r} of {name} ({format_count(len(label_locations), 'record')}) {reason}"
        hint = f"use one of {listed}, or add " + (
            "it to --labels" if from_user else "records with it to the training file"
        )
        findings.append(Finding(label_locations[0], message, hint, kind="unknown label"))
    return findings


def _alike(counts: Counter[str], first: Mapping[str, str]) -> list[Finding]:
    """Find labels that differ only in case, white space or number format."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for label in counts:
        number = parse_float(label)
        groups[normalize_text(label) if number is None else number].append(label)
    findings = []
    for labels in groups.values():
        main, *others = sorted(labels, key=lambda label: -counts[label])
        for other in others:
            message = f"the label {other!r} ({format_count(counts[other], 'record')}) differs from {main!r} ({counts[main]:,}) only in spelling"
            hint = f"write {main!r} if they mean the same"
            findings.append(Finding(first[other], message, hint, error=False, kind="labels alike"))
    return findings


# --------------------------------------------------------------------------------------------------------- repeats


def _repeats(sets: Sets, spec: RecordSpec) -> list[Finding]:
    """Find records with equal inputs: duplicates, contradicting labels, and leakage between sets (dev selects the model and its thresholds)."""
    findings: list[Finding] = []
    earlier: dict[str, dict[tuple[str, ...], tuple[str, str | None]]] = {}
    for name, records in sets.items():
        seen: dict[tuple[str, ...], tuple[str, str | None]] = {}
        copies: dict[tuple[str, ...], list[str]] = {}
        leaks: dict[str, list[tuple[str, str]]] = defaultdict(list)  # other set → (location here, location there)
        for record in records:
            inputs = tuple(normalize_text(text) for text in inputs_of(spec, record))
            if not any(inputs):
                continue
            location, target = record["location"], target_key(spec, record)
            if leaked_from := next((other for other, inputs_there in earlier.items() if inputs in inputs_there), None):
                leaks[leaked_from].append((location, earlier[leaked_from][inputs][0]))
            if inputs not in seen:
                seen[inputs] = (location, target)
                continue
            before, other = seen[inputs]
            if target is None or target == other:
                copies.setdefault(inputs, [before]).append(location)
            else:
                message = f"the same text as {_relative_location(before, location)}, but a different label: {target:.60} here, {other:.60} there"
                hint = "keep the correct one"
                findings.append(Finding(location, message, hint, error=False, kind="contradiction"))
        for locations in copies.values():
            first, second = locations[:2]
            message = f"the same record as {_relative_location(first, second)} ({len(locations)} times in all)"
            findings.append(Finding(second, message, "keep one of them", error=False, kind="duplicate"))
        for other, pairs in leaks.items():
            if len(pairs) == len(records) == len(sets[other]):
                reason = "the same data is used for model selection and testing"
                if other == "train":
                    reason = "test scores would be meaningless"
                message, hint = f"{name} has the same records as {other}: {reason}", f"pass another file to --{name}"
                findings.append(Finding(pairs[0][0], message, hint, error=other == "train", kind="same file"))
                continue
            fraction = f"{len(pairs):,} of {len(records):,} records of {name}"
            kind = "leakage" if (other, name) == ("train", "test") else "dev leakage"
            for location, other_location in pairs:
                message = f"also in {other}, at {other_location} ({fraction} are)"
                hint = f"remove it from {other} or from {name}"
                findings.append(Finding(location, message, hint, error=False, kind=kind))
        earlier[name] = seen
    return findings


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
    findings: list[Finding] = []
    for name in ("dev", "test"):
        train, heldout = (
            [
                (normalize_text(" ".join(inputs_of(spec, r))), r["location"])
                for r in subsample_evenly(sets.get(part, ()), NEAR_SAMPLE // 2)
            ]
            for part in ("train", name)
        )
        equal = {text for text, _ in train}
        train = [item for item in train if _script(item[0])]
        heldout = [item for item in heldout if _script(item[0]) and item[0] not in equal]
        if not train or not heldout:
            continue
        both = train + heldout
        near = near_duplicates(
            np.stack([minhash_signature(text, _script(text)) for text, _ in both]),
            np.arange(len(both)) >= len(train),
            len(both),
        )
        pairs = [(a, b) for a, b in near.examples if a < len(train) <= b]
        if near.leaked and pairs:
            fraction = f"{near.leaked:,} of {near.heldout:,} sampled records of {name} are near duplicates"
            for a, b in pairs:
                message = f"nearly the same text as {both[a][1]} in train ({fraction})"
                hint = f"remove it from train or from {name}"
                findings.append(Finding(both[b][1], message, hint, error=False, kind="near leakage"))
    return findings
