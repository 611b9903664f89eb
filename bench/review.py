"""Wrong labels and learning curves with a linear model on n-grams: are the suspects wrong, and do the intervals contain the truth?

    python bench/review.py labels --dataset reviews --draws 5
    python bench/review.py curve --dataset sms --data ../shared/data --draws 20

`labels` flips 5, 10 and 30% of the labels of a sample and searches for them with out-of-fold probabilities. `curve` fits learning
curves to samples of 100, 200 and 500 labels and predicts the accuracy with twice and four times as many. The truth is the mean
accuracy of 12 models on the test records.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from few_labels.datasets import DATASETS
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from unmask.console import write
from unmask.tasks.classify.label_errors import find_label_errors
from unmask.tasks.classify.learning_curve import chance_of, learning_curve, measure_curve
from unmask.tasks.classify.linear import min_df_of

FLIPPED = (0.0, 0.05, 0.1, 0.3)
LABELS, FACTORS, TRUTH_DRAWS = (100, 200, 500), (2, 4), 12
MAX_POOL = 8000


class Texts:
    """Counts of n-grams of all texts, so that a fit takes a fraction of a second. TF-IDF is fitted on the training rows only."""

    def __init__(self, pool: list[Any], test: list[Any]):
        labels = sorted({record["label"] for record in pool})
        self.y, self.test_y = (np.array([labels.index(r["label"]) for r in rows]) for rows in (pool, test))
        vectorizer = CountVectorizer(ngram_range=(1, 2))
        self.counts = vectorizer.fit_transform([r["text"] for r in pool])
        self.test_counts = vectorizer.transform([r["text"] for r in test])

    def probabilities(self, rows: np.ndarray, y: np.ndarray, counts: csr_matrix) -> np.ndarray:
        train = self.counts[rows]
        columns = np.flatnonzero(np.diff(train.tocsc().indptr) >= min_df_of(len(rows)))
        tfidf = TfidfTransformer(sublinear_tf=True).fit(train[:, columns])
        model = LogisticRegression(C=10, max_iter=1000).fit(tfidf.transform(train[:, columns]), y)
        return model.predict_proba(tfidf.transform(counts[:, columns]))

    def accuracy(self, rows: np.ndarray) -> float:
        return float((self.probabilities(rows, self.y[rows], self.test_counts).argmax(-1) == self.test_y).mean())


def wrong_labels(texts: Texts, draws: int, count: int = 2000) -> list[dict[str, Any]]:
    results = []
    for fraction in FLIPPED:
        for draw in range(draws):
            rng = np.random.default_rng([draw, round(1000 * fraction)])
            rows = rng.choice(len(texts.y), count, replace=False)
            y = texts.y[rows].copy()
            flipped = rng.choice(count, round(fraction * count), replace=False)
            y[flipped] = 1 - y[flipped]
            probabilities = np.zeros((count, 2))
            for train, held_out in StratifiedKFold(5, shuffle=True, random_state=draw).split(rows, y):
                held_out_counts = texts.counts[rows[held_out]]
                probabilities[held_out] = texts.probabilities(rows[train], y[train], held_out_counts)
            found = [error.index for error in find_label_errors(probabilities, y)]
            right = set(flipped.tolist())
            hits = [index in right for index in found]
            results.append({
                "flipped": fraction, "draw": draw, "found": len(found), "precision": fmean(hits or [0.0]),
                "precision_of_50": fmean(hits[:50] or [0.0]), "recall": sum(hits) / max(1, len(right)),
            })  # fmt: skip
    write(f"{'flipped':>8}  {'found':>6}  {'precision':>9}  {'of the first 50':>15}  {'recall':>6}")
    for fraction in FLIPPED:
        of = mean_of([row for row in results if row["flipped"] == fraction])
        numbers = f"{of('precision'):>9.1%}  {of('precision_of_50'):>15.1%}  {of('recall'):>6.1%}"
        write(f"{fraction:>8.0%}  {of('found'):>6.0f}  {numbers}")
    return results


def curves(texts: Texts, draws: int) -> list[dict[str, Any]]:
    def truth(count: int) -> float:
        rng = np.random.default_rng(count)
        return fmean(texts.accuracy(rng.choice(len(texts.y), count, replace=False)) for _ in range(TRUTH_DRAWS))

    counts = {n * factor for n in LABELS for factor in FACTORS}
    expected = {n: truth(n) for n in sorted(counts) if n <= 0.7 * len(texts.y)}
    results = []
    for count in LABELS:
        for draw in range(100, 100 + draws):  # the first 100 were used to choose the rules
            rows = np.random.default_rng([draw, count]).choice(len(texts.y), count, replace=False)
            y = texts.y[rows]

            def score(train: np.ndarray, test: np.ndarray, rows: np.ndarray = rows, y: np.ndarray = y) -> float:
                predicted = texts.probabilities(rows[train], y[train], texts.counts[rows[test]]).argmax(-1)
                return float((predicted == y[test]).mean())

            curve, note = learning_curve(*measure_curve(y, score, seed=draw), chance_of(y), len(y))
            for n in (n for factor in FACTORS if (n := factor * count) in expected):
                row = {"labels": count, "draw": draw, "predicted_for": n, "truth": expected[n], "note": note}
                results.append(row | (vars(curve.predict(n)) | {"labels": count} if curve else {}))
    write("labels  for   truth  predicted  mean error  80% interval  contains the truth  refused")
    for count, n in dict.fromkeys((row["labels"], row["predicted_for"]) for row in results):
        all_rows = [row for row in results if (row["labels"], row["predicted_for"]) == (count, n)]
        fitted = [row for row in all_rows if "score" in row]
        refused = f"{len(all_rows) - len(fitted)} of {len(all_rows)}"
        if not fitted:
            write(f"{count:>6}  {n:>4}  {expected[n]:.3f}  {'–':>9}  {'–':>10}  {'–':>12}  {'–':>18}  {refused:>7}")
            continue
        width, error = (fmean(f(r) for r in fitted) for f in (_width, _error))
        covered = sum(r["low"] <= r["truth"] <= r["high"] for r in fitted)
        mean = f"{mean_of(fitted)('score'):>9.3f}  {error:>10.3f}  {width:>12.3f}"
        write(f"{count:>6}  {n:>4}  {expected[n]:.3f}  {mean}  {f'{covered} of {len(fitted)}':>18}  {refused:>7}")
    return results


def _width(row: dict[str, Any]) -> float:
    return row["high"] - row["low"]


def _error(row: dict[str, Any]) -> float:
    return abs(row["score"] - row["truth"])


def mean_of(rows: list[dict[str, Any]]) -> Callable[[str], float]:
    return lambda key: fmean(row[key] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("labels", "curve"))
    parser.add_argument("--dataset", choices=DATASETS, default="reviews")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the results of every draw to this JSON file")
    args = parser.parse_args()
    pool, test = DATASETS[args.dataset].load(args.data)
    results = {"labels": wrong_labels, "curve": curves}[args.what](Texts(pool[:MAX_POOL], test), args.draws)
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
