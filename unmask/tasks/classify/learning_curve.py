"""How much would more labels give? Fit an inverse power law to the scores of models trained on fewer labels, and extrapolate.

    sizes, scores = measure_curve(y, score)                  # score(train_index, test_index) -> float
    curve, note = learning_curve(sizes, scores, chance=chance_of(y), num_test=len(y))
    results["curve"] = curve_results(sizes, scores, curve, note, num_labels=len(y))

The curve is score = a - b * labels^-c. The 80% interval combines the repetitions (bootstrap), fits that leave out the smallest sizes,
and the sampling error of the test records. Curves near chance are refused: before a model finds anything, its scores do not rise, and
a power law then predicts far too little. `docs/log.md` has the coverage of the intervals.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

LEVEL = 0.8  # of the intervals
NUM_FOLDS, MIN_SIZE, MAX_SIZES = 5, 8, 5
MIN_SIZES, MIN_REPEATS, NUM_RESAMPLES = 3, 3, 400
EXPONENTS = np.geomspace(0.05, 1.5, 16)  # values of c to try
MIN_SKILL = 0.4  # of (score - chance) / (1 - chance) at the largest size
MAX_WIDTH = 0.15  # of the interval at twice the labels

Scores = Sequence[Sequence[float]]  # a row per size, a column per repetition


@dataclass(frozen=True)
class Prediction:
    labels: int
    score: float
    low: float  # of the 80% interval
    high: float


@dataclass(frozen=True)
class Curve:
    fits: np.ndarray  # (F, 3): a, b, c
    noise: np.ndarray  # (F,): sampling error of the test records, in standard errors
    num_test: int | None

    def predict(self, labels: int) -> Prediction:
        a, b, c = self.fits.T
        scores = a - b * labels**-c
        score = float(np.median(scores))
        error = (score * (1 - score) / self.num_test) ** 0.5 if self.num_test and 0 < score < 1 else 0.0
        low, high = np.quantile(np.clip(scores + error * self.noise, 0, 1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Prediction(labels, score, min(float(low), score), max(float(high), score))


def learning_curve(
    sizes: Sequence[int], scores: Scores, chance: float = 0.0, num_test: int | None = None
) -> tuple[Curve | None, str]:
    """Fit a curve to scores between 0 and 1; return (None, reason) if they do not allow a prediction.

    `chance`: the score without a model, such as the fraction of the most frequent label. `num_test`: distinct records that the scores
    were measured on.
    """
    x, y = np.asarray(sizes, float), np.asarray(scores, float)  # (S,), (S, R)
    if len(x) < MIN_SIZES:
        return None, f"too few labels to measure {MIN_SIZES} sizes"
    if y.shape[1] < MIN_REPEATS or not np.isfinite(y).all():
        return None, f"fewer than {MIN_REPEATS} complete repetitions"
    skill = (y[-1].mean() - chance) / max(1e-9, 1 - chance)
    if skill < MIN_SKILL:
        return None, "the model is still too close to chance to extrapolate"
    rng = np.random.default_rng(0)
    resamples = (
        y[:, rng.integers(0, y.shape[1], (NUM_RESAMPLES, y.shape[1]))].mean(-1).T
    )  # nested, so resampled together
    left_out = range(min(2, len(x) - MIN_SIZES) + 1)  # of the smallest sizes
    fits = np.concatenate([_fit(x[n:], resamples[:, n:]) for n in left_out])
    curve = Curve(fits, rng.normal(size=len(fits)), num_test)
    twice = curve.predict(2 * int(x[-1]))
    if twice.high - twice.low > MAX_WIDTH:
        return None, "the scores vary too much between repetitions to extrapolate"
    return curve, ""


def _fit(sizes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the least-squares fit (a, b, c) of each row of `scores` (B, S), weighted by size, with a <= 1 and b >= 0.

    For a given c, the fit is a linear regression, so only c is searched.
    """
    weights = sizes / sizes.sum()
    x = sizes ** -EXPONENTS[:, None]  # (C, S)
    x_mean, y_mean = x @ weights, scores @ weights
    centered = x - x_mean[:, None]
    b = -((scores * weights) @ centered.T) / (centered**2 @ weights)  # (B, C)
    b = np.maximum(b, 0)
    a = y_mean[:, None] + b * x_mean
    b_below_1 = np.maximum(((1 - scores) * weights) @ x.T / (x**2 @ weights), 0)
    a, b = np.where(a > 1, 1, a), np.where(a > 1, b_below_1, b)
    residuals = scores[:, None] - (a[..., None] - b[..., None] * x)
    best = (residuals**2 @ weights).argmin(-1)
    rows = np.arange(len(scores))
    return np.stack([a[rows, best], b[rows, best], EXPONENTS[best]], -1)


# ---------------------------------------------------------------------------------------------------------- measuring


def measure_curve(
    y: np.ndarray, score: Callable[[np.ndarray, np.ndarray], float], repeats: int = 10, seed: int = 0
) -> tuple[list[int], list[list[float]]]:
    """Return sizes and scores by cross-validation: `score(train_index, test_index)` for nested samples of the training records.

    With a separate test set, `score` ignores `test_index`. If there are too few labels for a curve, nothing is trained.
    """
    sizes = curve_sizes(len(y))
    if len(sizes) < MIN_SIZES or np.bincount(y).max() < NUM_FOLDS:
        return [], []
    columns: list[list[float]] = []
    while len(columns) < repeats:
        rng = np.random.default_rng([seed, len(columns)])
        folds = StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=int(rng.integers(2**31)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a label has fewer records than there are folds
            splits = list(folds.split(y, y))
        for train, test in splits[: repeats - len(columns)]:
            order = nested_order(y, rng.permutation(train))
            columns.append([score(order[:size], test) for size in sizes])
    return sizes, [list(row) for row in zip(*columns)]


def curve_sizes(num_labels: int) -> list[int]:
    """Return the sizes to measure: the training part of a fold, and halves of it.

    >>> curve_sizes(500), curve_sizes(30)
    ([25, 50, 100, 200, 400], [12, 24])
    """
    largest = num_labels * (NUM_FOLDS - 1) // NUM_FOLDS
    return [largest // 2**n for n in reversed(range(MAX_SIZES)) if largest // 2**n >= MIN_SIZE]


def nested_order(y: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Reorder `index` so that each prefix has about the label distribution of the whole, and at least one record of each label.

    >>> nested_order(np.array([0, 0, 0, 0, 1, 1]), np.arange(6)).tolist()
    [0, 4, 1, 2, 5, 3]
    """
    position = np.zeros(len(index))
    for label in np.unique(y[index]):
        rows = np.flatnonzero(y[index] == label)
        position[rows] = np.arange(len(rows)) / len(rows)
    return index[np.argsort(position, kind="stable")]


def chance_of(y: np.ndarray) -> float:
    """Return the accuracy of always predicting the most frequent label."""
    return float(np.bincount(y).max() / len(y))


def curve_results(
    sizes: Sequence[int], scores: Scores, curve: Curve | None, note: str, num_labels: int
) -> dict[str, Any]:
    """Return the curve as JSON: the measured points, predictions for twice and four times the labels, and the fitted curve."""
    points = [
        {"labels": int(size), "score": float(np.mean(row)), "sd": float(np.std(row, ddof=1)) if len(row) > 1 else None}
        for size, row in zip(sizes, scores)
    ]
    results = {"points": points, "predicted": [], "level": LEVEL, "note": note}
    if curve:
        now, *results["predicted"] = (vars(curve.predict(factor * num_labels)) for factor in (1, 2, 4))
        grid = np.geomspace(sizes[0], 4 * num_labels, 30).round().astype(int)
        results |= {"now": now, "fitted": [vars(curve.predict(n)) for n in np.unique(grid).tolist()]}
    return results
