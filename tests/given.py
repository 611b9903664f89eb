"""The files and runs that README and `--help` presuppose: small files under the names they use, and runs in the default directories."""

import csv
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import zstandard

from unmask import api

THINGS = ["list", "tuple", "class", "method", "module", "string", "number", "loop"]
REVIEWS = [("a fine film", "pos"), ("a dull film", "neg"), ("warm and funny", "pos"), ("cold and slow", "neg")]
OPINIONS = {"pos": ["great", "wonderful", "best"], "neg": ["terrible", "awful", "worst"]}
TOWNS = ["Rome", "Oslo", "Lima", "Bern"]
SHAPE = ["model.hidden=32", "model.heads=4", "model.intermediate=64"]
QUICK = ["train.threads=1", "train.max_eval_examples=16"]


def write_jsonl(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_csv(path: str, head: list[str], rows: list[tuple[Any, ...]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def write_texts() -> None:
    for folder, predicate in (
        ("corpus", "is sorted or empty or reversed in place , and the president of the united states says so"),
        ("law", "is void under section"),
        ("text", "is a list of words that a pre-trained model reads"),
    ):
        Path(folder).mkdir()
        for part in range(2):
            blocks = [f"The {THINGS[n % 8]} of number {n} {predicate} {n % 7} .\nIt is the {THINGS[n % 5]} again ." for n in range(part, 160, 2)]  # fmt: skip
            Path(folder, f"{part}.txt").write_text("\n\n".join(blocks), "utf-8")
    text = "\n".join(f"A note of the day {n} , and of the {THINGS[n % 8]} ." for n in range(200))
    Path("logs.gz").write_bytes(gzip.compress(text.encode()))
    Path("news.txt.zst").write_bytes(zstandard.compress(text.encode()))
    for name in ("texts", "lines"):
        Path(f"{name}.txt").write_text("a text\nanother one\n", "utf-8")
    Path("drugs.tsv").write_text("sorted in place\tphrase\nthe president\tphrase\n", "utf-8")
    docs = Path("docs")
    docs.mkdir()
    for path in sorted((Path(__file__).parent.parent / "docs").glob("*.zh.md")):
        shutil.copy(path, docs / path.name)


def reviews(first: int, count: int) -> list[tuple[str, str]]:
    return [(f"{REVIEWS[n % 4][0]} , seen from seat {n} .", REVIEWS[n % 4][1]) for n in range(first, first + count)]


def write_labeled_files() -> None:
    for name, first, count in (("train", 0, 40), ("test", 100, 12), ("other", 200, 12), ("new", 300, 4)):
        write_csv(f"{name}.csv", ["text", "label"], reviews(first, count))
    unlabeled = [(text, "", "positive", 0.6) for text, _ in reviews(400, 4)]
    write_csv("to_label.csv", ["text", "label", "suggested", "probability"], unlabeled)
    long = [
        (f"{text} I went there with a friend. We left at {n}.", label) for n, (text, label) in enumerate(reviews(0, 60))
    ]
    write_csv("reviews.csv", ["review", "label"], long)
    for name, label in (("train", "stars"), ("data", "label")):
        write_jsonl(f"{name}.jsonl", [{"review": text, label: value} for text, value in reviews(0, 24)])
    for name, first in (("train", 0), ("test", 4)):
        people = [f"Ann B-PER\nlives O\nin O\n{TOWNS[n % 4]} B-LOC\n. O\n{n} O\n" for n in range(first, first + 24)]
        Path(f"{name}.conll").write_text("\n".join(people), "utf-8")
    for name, first in (("train-v2.0", 0), ("dev-v2.0", 40)):
        paragraphs = []
        for n in range(first, first + 16):
            context, town = f"Ann number {n} went to {TOWNS[n % 4]} .", TOWNS[n % 4]
            answer = {"text": town, "answer_start": context.index(town)}
            question = {
                "id": str(n),
                "question": f"Where did Ann {n} go ?",
                "answers": [answer],
                "is_impossible": False,
            }
            paragraphs.append({"context": context, "qas": [question]})
        squad = {"version": "v2.0", "data": [{"title": "Ann", "paragraphs": paragraphs}]}
        Path(f"{name}.json").write_text(json.dumps(squad), "utf-8")
    write_jsonl("choices.jsonl", [{"text": f"The {t} {n} is", "choices": [t, "none"], "label": 0} for n in range(4) for t in THINGS])  # fmt: skip
    write_csv("summaries.csv", ["text", "target"], [(f"The {t} is number {n} .", f"{t} {n}") for n in range(4) for t in THINGS])  # fmt: skip


def write_unlabeled_texts() -> None:
    """Write few.csv, and texts with the words that `unmask learn --help` gives for its labels."""
    rows = [
        (f"a {good} film , and a {other} story , seen from seat {n} .", label)
        for n in range(40)
        for label, words, others in (
            ("positive", ("great", "wonderful", "best"), ("warm", "funny", "moving")),
            ("negative", ("terrible", "awful", "worst"), ("cold", "slow", "boring")),
        )
        for good, other in [(words[n % 3], others[n // 3 % 3])]
    ]
    write_csv("few.csv", ["text", "label"], rows[:24])
    Path("more").mkdir()
    write_jsonl("more/texts.jsonl", [{"text": text} for text, _ in rows[24:]])


def write_search_files() -> None:
    Path("passages.txt").write_text("\n".join(f"A {t} is sorted ." for t in THINGS), "utf-8")
    write_jsonl("passages.jsonl", [{"id": t, "text": f"It is the {t} of Python ."} for t in THINGS])
    Path("queries.tsv").write_text("".join(f"q{n}\twhat is a {t}\n" for n, t in enumerate(THINGS)), "utf-8")
    Path("qrels.txt").write_text("".join(f"q{n} 0 {t} 1\n" for n, t in enumerate(THINGS)), "utf-8")
    write_jsonl("related.jsonl", [{"query": f"what is a {t} {n}", "positive": f"It is the {t} {n} .", "negatives": ["no", "not it"]} for n in range(3) for t in THINGS])  # fmt: skip
    write_jsonl("alike.jsonl", [{"text": f"what is a {t} {n}", "positive": f"tell me of the {t} {n}"} for n in range(3) for t in THINGS])  # fmt: skip
    pairs = [{"sentence_good": f"The {t} is sorted .", "sentence_bad": f"The {t} are sorted ."} for t in THINGS]
    for name in ("pairs", "blimp"):
        write_jsonl(f"{name}.jsonl", pairs)
    banks = [("I sat on the river bank", "river"), ("the bank lent money", "money"), ("a bank of the lake", "river"), ("my bank pays", "money")]  # fmt: skip
    for name in ("bank", "sentences"):
        write_csv(f"{name}.csv", ["text", "sense"], banks * 2)


def train_runs() -> None:
    """Train each run as the documented command does, with a small shape and one or two steps."""
    for preset, folder in (
        ("bert-tiny", "runs/docs"),
        *((p, f"runs/pretrain/{p}-1") for p in ("bert-mini", "modernbert-mini", "gpt2-mini", "bart-mini", "t5-mini")),
    ):
        api.pretrain(
            "corpus", preset=preset, steps=1, batch_size=4, max_length=32, out=folder, overrides=[*SHAPE, *QUICK]
        )
    start = "runs/docs/model"
    for task, train in (("classify", "train.csv"), ("embed", "alike.jsonl"), ("rank", "related.jsonl")):
        api.finetune(
            start, task=task, train=train, steps=2, batch_size=4, out=f"runs/finetune/{task}-1", overrides=QUICK
        )
    api.tune(start, train="train.csv", trials=1, steps=1, out="runs/tune/classify-1", overrides=QUICK)
    shutil.copytree("runs/docs", "runs/quickstart-1/pretrain")
    shutil.copytree("runs/finetune/classify-1", "runs/quickstart-1/classify")
    api.prepare("corpus", out="runs/store")
    shutil.copytree("runs/docs/model", "runs/tokenizer")


def make() -> None:
    """Create everything in the current directory."""
    write_texts()
    write_labeled_files()
    write_unlabeled_texts()
    write_search_files()
    train_runs()
