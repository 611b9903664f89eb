"""`unmask learn` on movie reviews: accuracy over many draws of the labels, with one pre-trained model for all of them.

    unmask learn --text POOL --words … --test TEST --minutes 30 --out runs/reviews     # written by: python bench/learn.py data
    python bench/learn.py linear --run runs/reviews --labels 20,100 --draws 20         # the linear model with self-training
    python bench/learn.py learn --run runs/reviews --labels 500,2000 --draws 5 --minutes 4
    python bench/learn.py table

`data` writes a new split: pool.jsonl, test.jsonl and the command. A run with words pre-trains the model and computes the hidden states,
which do not depend on labels. `linear` and `learn` use both again. Finished rows are appended to docs/results/learn.jsonl.
"""

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from few_labels.datasets import DATASETS
from few_labels.rows import draw_records
from few_labels.table import interval, markdown

import unmask
from unmask.console import write
from unmask.files import read_lines, write_lines
from unmask.runs import learn as learn_run
from unmask.runs.quickstart_data import LANGUAGES
from unmask.tasks.classify.learner import LINEAR, TFIDF, Learner
from unmask.tasks.learner import LearnInputs

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "learn.jsonl"
SPLIT_SEED, NUM_TEST, MAX_POOL = 20261118, 3000, 20_000


def write_data(args: argparse.Namespace) -> None:
    """Write a split that no setting was chosen on: another shuffle of all reviews of the data set."""
    pool, test = DATASETS[args.dataset].load(args.data, limit=False)
    rows = [*pool, *test]
    random.Random(SPLIT_SEED).shuffle(rows)
    test, pool = rows[:NUM_TEST], rows[NUM_TEST : NUM_TEST + MAX_POOL]
    args.run.mkdir(parents=True, exist_ok=True)
    for name, records in (("pool", pool), ("test", test)):
        write_lines(args.run / f"{name}.jsonl", records)
    write_lines(args.run / "text.jsonl", ({"text": r["text"]} for r in pool))
    words = LANGUAGES[DATASETS[args.dataset].language].words.values()
    flags = " ".join(f'--words "{label}: {" ".join(each)}"' for label, each in zip(("negative", "positive"), words))
    write(
        f"unmask learn --text {args.run}/text.jsonl {flags} --test {args.run}/test.jsonl --minutes 30 --out {args.run}/words"
    )


def load(args: argparse.Namespace) -> tuple[list[Any], list[Any], dict[str, np.ndarray]]:
    """Return the pool, the test records, and the hidden states of texts. Records whose text has hidden states come first."""
    run = args.run / "words"
    pool, test = (list(read_lines(args.run / f"{name}.jsonl")) for name in ("pool", "test"))
    hidden, texts = np.load(run / learn_run.HIDDEN), [row["text"] for row in read_lines(run / "unlabeled.jsonl")]
    in_pool = {record["text"] for record in pool}  # `unmask learn` repairs control characters, so some texts differ
    known = {text: vector for text, vector in zip(texts, hidden) if text in in_pool}
    return sorted(pool, key=lambda record: record["text"] not in known), test, known


def linear_row(train: list[Any], rest: list[Any], test: list[Any], known: dict[str, np.ndarray]) -> dict[str, float]:
    texts = [r["text"] for r in rest]
    hidden = np.stack([known[text] for text in [*(r["text"] for r in train), *texts] if text in known])
    state = {"labels": sorted({r["label"] for r in test})}
    steps = Learner(LearnInputs(state, train, texts, test=test, hidden=hidden)).steps
    return {row["name"]: row["score"] for row in steps if row["name"] in (TFIDF, LINEAR)}


def learn_row(
    train: list[Any], rest: list[Any], test: list[Any], known: dict[str, np.ndarray], args: argparse.Namespace
) -> dict[str, float]:
    """Run `unmask learn`, with the hidden states that are known."""

    def hidden_states(run: Any, model: Any, texts: list[str], *rest: Any) -> np.ndarray:
        run.write_json(learn_run.SPEED, {"seconds_per_text": args.seconds_per_text})
        return np.stack([known[text] for text in texts if text in known])

    learn_run._hidden_states = hidden_states  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, records in (("train", train), ("test", test)):
            write_lines(folder / f"{file}.jsonl", records)
        write_lines(folder / "text.jsonl", ({"text": r["text"]} for r in rest))
        files: dict[str, Any] = {"text": folder / "text.jsonl", "test": folder / "test.jsonl", "out": folder / "run"}
        model = (args.run / "words" / "pretrain").resolve()
        overrides = [f"train.threads={args.threads}"]
        run = unmask.learn(folder / "train.jsonl", init_from=model, minutes=args.minutes, overrides=overrides, **files)
        return {row["name"]: row["score"] for row in run.results()["steps"]}


def compute(args: argparse.Namespace) -> None:
    pool, test, known = load(args)
    done = {(r["dataset"], r["kind"], r["labels"], r["draw"]) for r in read_rows()}
    for labels in map(int, args.labels.split(",")):
        for draw in range(args.draws):
            if (args.dataset, args.command, labels, draw) in done:
                continue
            train, others = draw_records(pool[: len(known)], labels, draw)
            rest = [*others, *pool[len(known) :]]
            start = time.monotonic()
            scores = (
                linear_row(train, rest, test, known)
                if args.command == "linear"
                else learn_row(train, rest, test, known, args)
            )
            row = {"dataset": args.dataset, "kind": args.command, "labels": labels, "draw": draw, "scores": scores, "seconds": round(time.monotonic() - start)}  # fmt: skip
            with open(RESULTS, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            write(json.dumps(row))


def read_rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []


def show_table() -> None:
    scores: dict[tuple[str, str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rows():
        for name, score in row["scores"].items():
            scores[row["dataset"], row["kind"], row["labels"]][name].append(score)
    lines = [
        [*map(str, key), name, str(len(values)), interval(values)]
        for key, by_name in sorted(scores.items())
        for name, values in by_name.items()
    ]
    write(markdown(["data", "kind", "labels", "model", "draws", "accuracy, 95% interval"], lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["data", "linear", "learn", "table"])
    parser.add_argument("--dataset", choices=["reviews", "shopping"], default="reviews")
    parser.add_argument("--run", type=Path, default=Path("runs/reviews"))
    parser.add_argument("--labels", default="20,100,500,2000")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds-per-text", type=float, default=0.012, help="a forward pass, to plan the fine-tuning")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    args = parser.parse_args()
    if args.command == "data":
        write_data(args)
    elif args.command == "table":
        show_table()
    else:
        compute(args)


if __name__ == "__main__":
    main()
