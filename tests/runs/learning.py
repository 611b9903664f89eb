"""Tiny data and a tiny model for `unmask learn`: texts of topics with 40 words each, of which few labeled texts show only some."""

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runs import tiny

from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.text.tokenizer import Tokenizer

TOPICS = ("sea", "sky")
SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki")
HANZI = {"sea": "海洋船鱼浪岸潮湾帆舟港岛滩礁波涛", "sky": "天空云星月日风鸟雷电雨雪虹霞晨暮"}


def words_of(topic: str, count: int = 40) -> list[str]:
    return [f"{topic}{SYLLABLES[n // 8]}{SYLLABLES[n % 8]}" for n in range(count)]


def topic_rows(
    count: int, seed: int, topics: Sequence[str] = TOPICS, prior: Sequence[float] = ()
) -> list[dict[str, Any]]:
    rng, rows = random.Random(seed), []
    for label in rng.choices(topics, list(prior) or None, k=count):
        words = rng.sample(words_of(label), 4) + rng.sample(words_of("word", 30), 6)
        rows.append({"text": " ".join(words), "label": label})
    return rows


def chinese_rows(count: int, seed: int) -> list[dict[str, Any]]:
    rng, rows = random.Random(seed), []
    for label in rng.choices(TOPICS, k=count):
        rows.append(
            {
                "text": "".join(rng.sample(HANZI[label], 5) + rng.sample("我们在这里看到了一个很多人的地方", 6)),
                "label": label,
            }
        )
    return rows


def word_flags(count: int = 10, topics: Sequence[str] = TOPICS) -> list[str]:
    """Return values of --words with some words of each topic."""
    return [f"{topic}: {' '.join(words_of(topic, count))}" for topic in topics]


def texts_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["text"] for row in rows]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def write_texts(path: Path, texts: Sequence[str]) -> Path:
    return write_jsonl(path, [{"text": text} for text in texts])


def data_files(folder: Path, labeled: int = 24, unlabeled: int = 200, test: int = 60) -> dict[str, Path]:
    return {
        "files": write_csv(folder / "labeled.csv", topic_rows(labeled, 1)),
        "text": write_texts(folder / "more.jsonl", texts_of(topic_rows(unlabeled, 2))),
        "test": write_csv(folder / "test.csv", topic_rows(test, 9)),
    }


def model_folder(folder: Path) -> Path:
    """Save a model that knows the words, with random weights."""
    texts = [*texts_of(topic_rows(300, 7)), *texts_of(chinese_rows(100, 7))]
    tokenizer = Tokenizer.train(texts, TokenizerRecipe(min_frequency=1))
    config = preset("bert-tiny", vocab_size=tokenizer.size, **tiny.SHAPE, attention_dropout=0.0)
    hf.save(Model(config, ("mlm",)).init(0), folder, tokenizer)
    return folder
