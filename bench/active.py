"""Active learning: accuracy with texts chosen by `choose_texts_to_label`, and with texts chosen at random.

    python bench/active.py --datasets reviews,sms --data ../shared/data --draws 10 --out docs/results/active.json

Each draw starts with 50 random labels and adds 50 in each of five rounds. All strategies start with the same labels. A draw is
saved when it is complete, and a second call continues where the first one stopped. The vectors are a latent semantic analysis of the
pool. `--self-train` trains with the other texts of the pool as unlabeled texts.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from few_labels.datasets import DATASETS
from few_labels.table import interval
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from unmask.console import write
from unmask.numeric import log_softmax
from unmask.tasks.classify.active import choose_texts_to_label, uncertainty
from unmask.tasks.classify.linear import LinearModel, TfidfFeatures
from unmask.tasks.classify.self_training import self_train

ROUNDS, PER_ROUND, DIMENSIONS = 5, 50, 100
STRATEGIES = ("random", "active", "uncertain")  # uncertain: the most uncertain texts, without diversity


def vectors_of(records: list[Any]) -> np.ndarray:
    tfidf = TfidfFeatures(3, 50_000).fit(records).transform(records)
    return normalize(tfidf @ randomized_svd(tfidf, DIMENSIONS, n_iter=2, random_state=0)[2].T)


def choose(strategy: str, probabilities: np.ndarray, vectors: np.ndarray, rest: np.ndarray, seed: int) -> np.ndarray:
    """Return the rows of the pool to label next; `rest` are the rows without a label."""
    if strategy == "random":
        return np.random.default_rng(seed).choice(rest, PER_ROUND, replace=False)
    if strategy == "uncertain":
        return rest[np.argsort(-uncertainty(probabilities), kind="stable")[:PER_ROUND]]
    return rest[choose_texts_to_label(probabilities, vectors[rest], PER_ROUND, seed)]


def first_rows(pool: list[Any], draw: int) -> np.ndarray:
    rng = np.random.default_rng(draw)
    while True:
        rows = rng.choice(len(pool), PER_ROUND, replace=False)
        if len({pool[n]["label"] for n in rows}) == len({r["label"] for r in pool}):
            return rows


def measure(
    strategy: str, pool: list[Any], test: list[Any], vectors: np.ndarray, draw: int, with_unlabeled: bool
) -> list[float]:
    """Return the accuracy after each round, starting with that of the first labels."""
    state, labeled, accuracies = {"labels": sorted({r["label"] for r in pool})}, first_rows(pool, draw), []
    y = np.array([state["labels"].index(r["label"]) for r in test])
    for number in range(ROUNDS + 1):
        train, rest = [pool[n] for n in labeled], np.setdiff1d(np.arange(len(pool)), labeled)
        unlabeled = [pool[n]["text"] for n in rest]
        model = self_train(state, train, unlabeled).model if with_unlabeled else None
        model = model or LinearModel.fit(state, train)
        accuracies.append(float((model.logits(test).argmax(-1) == y).mean()))
        if number < ROUNDS:
            probabilities = np.exp(log_softmax(model.logits([pool[n] for n in rest])))
            new = choose(strategy, probabilities, vectors, rest, 1000 * draw + number)
            labeled = np.concatenate([labeled, new])
    return accuracies


def print_table(key: str, draws: dict[str, dict[str, list[float]]]) -> None:
    write(f"{key}: accuracy, mean and 95% interval of {len(draws)} draws")
    write(f"{'labels':>6}  {'random':>12}  {'active':>12}  {'uncertain':>12}  {'active - random':>15}")
    for number in range(ROUNDS + 1):
        by = {name: [draw[name][number] for draw in draws.values()] for name in STRATEGIES}
        difference = [a - b for a, b in zip(by["active"], by["random"])]
        cells = "  ".join(f"{interval(by[name]):>12}" for name in STRATEGIES)
        write(f"{PER_ROUND * (number + 1):>6}  {cells}  {interval(difference):>15}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default="reviews,sms", help=f"comma-separated: {', '.join(DATASETS)}")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--pool", type=int, default=3000)
    parser.add_argument("--test", type=int, default=1500)
    parser.add_argument("--self-train", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("active.json"))
    args = parser.parse_args()
    results: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name in args.datasets.split(","):
        pool, test = DATASETS[name].load(args.data)
        random.Random(0).shuffle(pool)
        pool, test = pool[: args.pool], test[: args.test]
        key = f"{name}, {len(pool):,} texts{', self-training' if args.self_train else ''}"
        vectors, draws = vectors_of(pool), results.setdefault(key, {})
        for draw in range(args.draws):
            if str(draw) not in draws:
                draws[str(draw)] = {
                    strategy: [round(a, 4) for a in measure(strategy, pool, test, vectors, draw, args.self_train)]
                    for strategy in STRATEGIES
                }
                args.out.write_text(json.dumps(results) + "\n")
        print_table(key, {n: draws[n] for n in map(str, range(args.draws))})


if __name__ == "__main__":
    main()
