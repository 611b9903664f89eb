"""Defaults of `unmask pretrain` and `unmask finetune`: settings compared on eight data sets.

    python bench/defaults.py pretrain --minutes 3                       # a model for each data set, in runs/defaults
    python bench/defaults.py finetune --start here --arm old,new        # fine-tune them; --start minilm: a public model
    python bench/defaults.py table

Pre-training uses the texts of the pool without labels, fine-tuning its first records with labels (see few_labels/). The scores are those
on the test records. Finished rows are appended to docs/results/defaults.jsonl and are not computed again, so a stopped benchmark
continues.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from few_labels.datasets import DATASETS
from few_labels.methods import call, downloaded_weights
from few_labels.rows import draw_records
from few_labels.table import markdown

from unmask.console import write
from unmask.files import write_lines
from unmask.runs.learn_plan import MAX_PRETRAIN_MINUTES_PER_MB

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "defaults.jsonl"
LABELS = {
    "reviews": 2000, "short_reviews": 500, "sms": 500, "snli": 2000, "shopping": 1000, "sarcasm": 1000, "genre": 500, "flows": 500,
}  # fmt: skip
PRETRAIN_ARMS = {"auto": [], "2-layers": ["model.layers=2"], "4-layers": ["model.layers=4"], "rows-of-256": ["model.layers=2", "train.max_length=256"]}  # fmt: skip
SMALL = ["train.lr=1e-3", "train.layerwise_lr_decay=0.5", "train.betas=[0.9, 0.98]", "task.pooling=mean"]
FINETUNE_ARMS = {
    "defaults": [],
    "low-lr": ["train.lr=1.5e-4", "train.layerwise_lr_decay=0.9", "task.token_mask_rate=0", "task.pooling=auto"],
    "high-lr": [*SMALL, "task.token_mask_rate=0"],
    "high-lr-masked": [*SMALL, "task.token_mask_rate=0.2"],
    "highest-lr": [*SMALL, "train.lr=2e-3", "task.token_mask_rate=0.3", "train.epochs=5"],
    "5-epochs": [*SMALL, "task.token_mask_rate=0.2", "train.epochs=5"],
    "blend": ["task.blend=linear"],
    "random": ["task.init=random", "train.lr=1e-3"],
}


def read_rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []


def append(row: dict[str, Any]) -> None:
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    write(json.dumps(row, ensure_ascii=False))


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("command", "dataset", "start", "arm", "seed"))


def model_folder(args: argparse.Namespace, dataset: str, arm: str) -> Path:
    return args.models / f"{dataset}-{arm.replace(' ', '-')}"


def pretrain(args: argparse.Namespace, dataset: str, arm: str) -> None:
    pool, _ = DATASETS[dataset].load(args.data)
    texts = ["\n".join(filter(None, (r["text"], r.get("pair")))) for r in pool]
    minutes = min(args.minutes, MAX_PRETRAIN_MINUTES_PER_MB * sum(map(len, texts)) / 1e6)
    out, start = model_folder(args, dataset, arm), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        write_lines(Path(name, "texts.jsonl"), [{"text": text} for text in texts])
        flags = [
            "--minutes",
            f"{minutes:.2f}",
            "--out",
            str(out.resolve()),
            "--seed",
            "0",
            *overrides(args, PRETRAIN_ARMS[arm]),
        ]
        call(["pretrain", "texts.jsonl", *flags], Path(name))
    results = json.loads((out / "results.json").read_text("utf-8"))
    values = {k: v for k, v in results["evaluation"].items() if isinstance(v, float)}
    append(
        {"command": "pretrain", "dataset": dataset, "start": "none", "arm": arm, "seed": 0, "minutes": round(minutes, 2),
         "steps": results["step"], "seconds": round(time.monotonic() - start), **values}
    )  # fmt: skip


def finetune(args: argparse.Namespace, dataset: str, arm: str, seed: int) -> None:
    pool, test = DATASETS[dataset].load(args.data)
    train, _ = draw_records(pool, LABELS[dataset], seed)
    folder = model_folder(args, dataset, args.pretrained) / "model"
    model = folder if args.start == "here" else downloaded_weights(DATASETS[dataset].language)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        for file, records in {"train": train, "test": test}.items():
            write_lines(Path(name, f"{file}.jsonl"), records)
        flags = ["--train", "train.jsonl", "--test", "test.jsonl", "--out", "run", "--seed", str(seed)]
        call(["finetune", str(model.resolve()), *flags, *overrides(args, FINETUNE_ARMS[arm])], Path(name))
        results = json.loads(Path(name, "run", "results.json").read_text("utf-8"))
    append(
        {"command": "finetune", "dataset": dataset, "start": args.start, "arm": arm, "seed": seed, "labels": LABELS[dataset],
         "score": round(results["test"][DATASETS[dataset].metric], 4), "seconds": round(time.monotonic() - start)}
    )  # fmt: skip


def overrides(args: argparse.Namespace, settings: Sequence[str]) -> list[str]:
    return [f"--set={setting}" for setting in [*settings, f"train.threads={args.threads}"]]


def run(args: argparse.Namespace) -> None:
    done = {key_of(row) for row in read_rows()}
    for dataset in args.dataset.split(","):
        for arm in args.arm.split(","):
            for seed in range(args.seeds if args.command == "finetune" else 1):
                start = "none" if args.command == "pretrain" else args.start
                if (args.command, dataset, start, arm, seed) in done:
                    continue
                try:
                    pretrain(args, dataset, arm) if args.command == "pretrain" else finetune(args, dataset, arm, seed)
                except RuntimeError as error:
                    write(f"{dataset}, {arm}: {error}")


def table(args: argparse.Namespace) -> None:
    rows = read_rows()
    for start in ("here", "minilm"):
        scores: dict[tuple[str, str], list[float]] = defaultdict(list)
        for row in rows:
            if row["command"] == "finetune" and row["start"] == start:
                scores[row["dataset"], row["arm"]].append(100 * row["score"])
        arms = [arm for arm in FINETUNE_ARMS if any(name == arm for _, name in scores)]
        lines = [
            [dataset, f"{LABELS[dataset]:,}", *(f"{fmean(scores[dataset, arm]):.1f}" if scores[dataset, arm] else "" for arm in arms)]
            for dataset in LABELS
        ]  # fmt: skip
        if arms:
            write(f"start: {start}", markdown(["data", "labels", *arms], lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["pretrain", "finetune", "table"])
    parser.add_argument("--dataset", default=",".join(DATASETS))
    parser.add_argument("--arm", default="")
    parser.add_argument("--start", choices=["here", "minilm"], default="here")
    parser.add_argument("--pretrained", default="auto", help="arm of the pre-trained model")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    args = parser.parse_args()
    args.arm = args.arm or ("auto" if args.command == "pretrain" else "defaults")
    table(args) if args.command == "table" else run(args)


if __name__ == "__main__":
    main()
