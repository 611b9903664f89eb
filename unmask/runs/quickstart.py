"""`unmask quickstart`: from reviews to a pre-trained model and classifiers, in less than ten minutes.

Steps: tokenizer → pre-trained model → filled masks → classifiers trained with no label but five words each, with 100 labels and with
2,000. Each is compared with the usual model for the same labels: TF-IDF + logistic regression. All are tested on reviews that were
not used for the tokenizer or for pre-training. Duplicate reviews are removed before the split.

The first two classifiers are linear models with self-training on the unlabeled reviews. For 2,000 labels the pre-trained model is
fine-tuned too, and blended with the linear model: an ordinary `finetune` run on the files in the run folder. 200 of the
2,000 are used to choose the weights of the blend and to calibrate probabilities. `unmask learn` does the same with your own text.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.console import Console, clock
from unmask.files import read_lines
from unmask.recipe import Recipe
from unmask.runs.context import Context
from unmask.runs.lifecycle import Job, ResumeState
from unmask.runs.loops import Child, Loop
from unmask.runs.part import make_recipe as finetune_recipe
from unmask.runs.quickstart_data import LANGUAGES, TEXT, check_sample, read_reviews, split_reviews, write_files
from unmask.settings import deep_merge
from unmask.train.run import Run

__all__ = ["Quickstart", "classifier_recipe", "make_recipe", "read_reviews", "split_reviews", "write_files"]

MINUTES = 2.5  # of pre-training
SIZES = (0, 100, 2000)  # labels
MAX_UNLABELED, MAX_HIDDEN = 15_000, 5000  # texts for self-training, and texts with hidden states
HPARAMS = {"epochs": 2, "batch_size": 32, "betas": [0.9, 0.98], "num_evals": 1, "save_steps": 10_000}
PRETRAIN, CLASSIFY, LINEAR, FILLS, FEW = "pretrain", "classify", "linear", "fills.json", "few_labels.json"


def make_recipe(minutes: float, seed: int, language: str = "en") -> Recipe:
    """Return the recipe of the pre-training run. Its corpus is set once it is written to the run folder."""
    values = {"seed": seed, "train": {"minutes": minutes}, "data": {"language": language}}
    return Recipe.build(deep_merge(Recipe.load_builtin("quickstart"), values))


class Quickstart(Loop[Job]):
    name, folder = "quickstart", ""

    def check(self, recipe: Recipe, ctx: Context) -> Recipe:
        check_sample(LANGUAGES[recipe.data.language].sample)
        return recipe

    def prepare(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None = None) -> Job:
        return Job(recipe, self.name)

    def next(self, job: Job, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> Child | None:
        recipe, pretrained, language = job.recipe, Run(run.path / PRETRAIN), job.recipe.data.language
        if not done:
            write_files(run.path, recipe.seed, ctx, language)
            return Child(PRETRAIN, "pretrain", recipe.changed(data={"corpus": [str(run.path / TEXT)]}), "pre-train")
        if len(done) > 1:
            return None
        if ctx.is_main and not (run.path / FEW).exists():
            run.write_json(FILLS, show_fills(pretrained, LANGUAGES[language].fills, ctx.console))
            run.write_json(FEW, train_on_few_labels(run, pretrained.model, language, ctx))
        ctx.world.barrier()
        return Child(
            CLASSIFY,
            "finetune",
            classifier_recipe(run.path, pretrained.model, recipe.seed, language, LINEAR),
            "fine-tune",
        )

    def finish(self, job: Job, run: Run, done: Sequence[dict[str, Any]], ctx: Context) -> dict[str, Any]:
        rows = run.read_json(FEW)["rows"]
        rows[-1]["ours"] = done[-1]["test"]["accuracy"]
        num_test = done[-1]["test"]["records"]
        seconds = sum(results["seconds"] for results in done) + run.read_json(FEW)["seconds"]
        model, classifier = run.path / PRETRAIN / "model", run.path / CLASSIFY / "model"
        messages = LANGUAGES[job.recipe.data.language].messages
        commands = [
            f'unmask predict {classifier} "{messages["try"]}"',
            f"unmask serve {classifier.parent}",
            "unmask learn YOUR_LABELS.csv --text YOUR_TEXT/ --test TEST.csv",
        ]
        ctx.console.say(table(rows, num_test, messages))
        ctx.console.say(messages["time"].format(time=clock(seconds)))
        ctx.console.say(f"{messages['next']}:\n" + "\n".join(f"  {line}" for line in commands))
        ctx.console.say(str(run.path / CLASSIFY / "report.html"))
        return {
            "path": str(run.path), "model": str(model), "classifier": str(classifier), "fills": run.read_json(FILLS),
            "accuracy": rows, "test": num_test, "seconds": round(seconds, 1), "commands": commands,
        }  # fmt: skip


def show_fills(trained: Run, sentences: Sequence[str], console: Console) -> list[dict[str, Any]]:
    from unmask.inference.predictor import load

    fills = []
    for filling in load(trained.model).fill(list(sentences), top_k=3):
        fills.append(filling.as_dict())
        best = "  ".join(f"{c['token']} {c['probability']:.0%}" for c in fills[-1]["masks"][0]["candidates"])
        console.say(f"  {fills[-1]['text']:<56} {best}")
    return fills


def train_on_few_labels(run: Run, model: Path, language: str, ctx: Context) -> dict[str, Any]:
    """Train the linear models; return their accuracies next to those of TF-IDF."""
    from unmask.inference.predictor import load
    from unmask.tasks.classify.few_labels import compare

    start_time = time.monotonic()
    train, dev, test = (list(read_lines(run.path / f"{name}.jsonl")) for name in ("train", "dev", "test"))
    unlabeled = [row["text"] for row in read_lines(run.path / "unlabeled.jsonl")][:MAX_UNLABELED]
    texts = [*(r["text"] for r in train), *unlabeled][:MAX_HIDDEN]
    with ctx.console.bar("hidden states") as update:
        hidden = np.asarray(load(model).embed(texts, pooling="mean", overflow="window", update=update))
    ctx.console.say("training linear models with self-training …")
    sizes = [min(size, len(train) + len(dev)) for size in SIZES]
    rows = compare(LANGUAGES[language].words, train, dev, unlabeled, test, hidden, sizes, run.path / LINEAR)
    return {"rows": rows, "seconds": time.monotonic() - start_time}


def classifier_recipe(folder: Path, model: Path, seed: int, language: str = "en", linear: str = "") -> Recipe:
    """Return the recipe of a classifier on the labeled reviews in `folder`, blended with the linear model in its folder `linear`."""
    files = {split: [str(folder / f"{split}.jsonl")] for split in ("train", "dev", "test")}
    blend = str(folder / linear) if linear else "none"
    settings = {"max_length": LANGUAGES[language].max_length, "blend": blend, "patience": 0}
    task = {"name": "classify", **files, **settings}
    return finetune_recipe({"seed": seed, "init_from": str(model), "train": HPARAMS, "task": task})


def table(rows: Sequence[dict[str, Any]], num_test: int, messages: Mapping[str, str]) -> str:
    """Return the accuracies, one line per number of labels."""
    lines = [messages["title"].format(test=num_test)]
    for row in rows:
        labels = f"{row['labels']:,}" if row["labels"] else messages["words"]
        usual = messages["usual" if row["labels"] else "count words"]
        for name, key in ((usual, "usual"), (messages["ours"], "ours")):
            bar = "█" * max(0, round((row[key] - 0.5) * 60))
            lines.append(f"  {labels:<22}  {name:<19}  {row[key]:6.1%}  {bar}")
            labels = ""
    return "\n".join(lines)
