"""Reviews of `unmask quickstart`: English movie reviews and Chinese shopping reviews, from pip packages."""

import csv
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unmask.errors import UserError
from unmask.files import write_lines
from unmask.labels.records import Record
from unmask.runs.context import Context
from unmask.text.samples import SAMPLES

TEST, LABELED, DEV = 3000, 2000, 200  # the dev records are some of the labeled ones
SHORT = "rotten_tomatoes"  # source of the short English reviews, which are only for pre-training
TEXT = "reviews.jsonl"  # for pre-training; written last
LABELS = {"0": "negative", "1": "positive"}  # value in the English sample's label column → label


@dataclass(frozen=True)
class Language:
    sample: str
    words: Mapping[str, Sequence[str]]  # five for each label, instead of labels
    max_length: int  # tokens per row in fine-tuning
    fills: tuple[str, ...]
    messages: Mapping[str, str]


ENGLISH = Language(
    "movie-reviews",
    {
        "negative": ("terrible", "awful", "worst", "boring", "waste"),
        "positive": ("great", "wonderful", "best", "loved", "excellent"),
    },
    256,
    (
        "this movie is absolutely [MASK] .",
        "the acting was [MASK] and the plot made no sense .",
        "i would [MASK] recommend this film to anyone .",
        "one of the [MASK] films i have ever seen .",
        "directed by alfred [MASK] .",
    ),
    {
        "data": "{total:,} unique reviews: {test:,} for testing, {pool:,} for pre-training, of which {labeled:,} are labeled",
        "title": "accuracy on {test:,} reviews that were not used in training",
        "labels": "labels", "words": "0 (5 words per label)", "usual": "TF-IDF", "count words": "counting words", "ours": "with unlabeled text",
        "next": "next", "try": "what a film", "time": "trained for {time}",
    },
)  # fmt: skip
CHINESE = Language(
    "zh-reviews",
    {"差评": ("差", "垃圾", "退货", "失望", "后悔"), "好评": ("很好", "喜欢", "不错", "满意", "推荐")},
    128,
    ("这本书的质量非常[MASK]。", "物流很[MASK]，包装也很好。", "用了两天就[MASK]了，太失望了。", "这个酒店的服务[MASK]度很好。"),
    {
        "data": "去重后共 {total:,} 条评论：测试 {test:,} 条，预训练 {pool:,} 条，其中 {labeled:,} 条有标签",
        "title": "在 {test:,} 条未参与训练的评论上的准确率",
        "labels": "标签数", "words": "0（每类 5 个词）", "usual": "TF-IDF", "count words": "数词", "ours": "加上无标注文本",
        "next": "下一步", "try": "质量很好，下次还买", "time": "训练用时 {time}",
    },
)  # fmt: skip
LANGUAGES = {"en": ENGLISH, "zh": CHINESE}


def check_sample(name: str) -> None:
    sample = SAMPLES[name]
    if not sample.present:
        raise UserError(
            f"unmask quickstart needs the sample {name} ({sample.size:.0f} MB), which is not installed",
            expected="the sample, or another command: unmask pretrain sample:python-docs --minutes 5",
            hint=sample.pip,
        )


def write_files(folder: Path, seed: int, ctx: Context, language: str = "en") -> None:
    """Write the corpus and the labeled reviews to the run folder, unless they exist already."""
    if ctx.is_main and not (folder / TEXT).exists():
        settings = LANGUAGES[language]
        paths = [Path(path) for path in SAMPLES[settings.sample].sources()]
        reviews = read_reviews(paths[0]) if language == "en" else read_chinese(paths)
        pool, test = split_reviews(reviews, seed)
        long = [r for r in pool if r["source"] != SHORT]
        split = LABELED - DEV
        sets = {"train": long[:split], "dev": long[split:LABELED], "test": test, "unlabeled": long[LABELED:]}
        for name, records in sets.items():
            keys = ("text",) if name == "unlabeled" else ("text", "label")
            write_lines(folder / f"{name}.jsonl", ({key: r[key] for key in keys} for r in records))
        write_lines(folder / TEXT, ({"text": r["text"]} for r in pool))
        counts = {"total": len(pool) + len(test), "test": len(test), "pool": len(pool), "labeled": LABELED}
        ctx.console.say(settings.messages["data"].format(**counts))
    ctx.world.barrier()


def read_reviews(path: Path) -> list[Record]:
    """Return the unique English reviews, with HTML line breaks replaced by newlines."""
    csv.field_size_limit(sys.maxsize)
    seen: set[str] = set()
    reviews = []
    with open(path, encoding="utf-8", newline="") as file:
        for n, row in enumerate(csv.DictReader(file), 2):
            text = row["text"].replace("<br />", "\n").strip()
            if text and text not in seen:
                seen.add(text)
                label = LABELS[row["label"]]
                reviews.append({"location": f"{path.name}:{n}", "text": text, "label": label, "source": row["source"]})
    return reviews


def read_chinese(paths: Sequence[Path]) -> list[Record]:
    """Return the unique Chinese reviews, one per line; the file name is the label."""
    labels = dict(zip(("neg", "pos"), CHINESE.words))
    reviews: dict[str, Record] = {}
    for path in sorted(paths):
        for n, line in enumerate(path.read_text("utf-8").split("\n"), 1):
            if text := line.strip():
                record = {"location": f"{path.name}:{n}", "text": text, "label": labels[path.stem], "source": ""}
                reviews.setdefault(text, record)
    return list(reviews.values())


def split_reviews(reviews: list[Record], seed: int) -> tuple[list[Record], list[Record]]:
    """Return (training, test). Test reviews are sampled from the long ones."""
    shuffled = list(reviews)
    random.Random(seed).shuffle(shuffled)
    long = [r for r in shuffled if r["source"] != SHORT]
    if len(long) < TEST + LABELED:
        raise UserError(f"the sample has {len(long):,} long reviews, but {TEST + LABELED:,} are needed")
    test = long[:TEST]
    test_texts = {r["text"] for r in test}
    return [r for r in shuffled if r["text"] not in test_texts], test
