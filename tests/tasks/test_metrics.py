"""Metrics against scikit-learn, scipy and plain counting, on random inputs that include edge cases."""

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from unmask import numeric
from unmask.tasks import metrics

CASES = 200
pytestmark = pytest.mark.filterwarnings("ignore")


def draw(n: int) -> tuple[np.random.Generator, int, int]:
    """Return (rng, records, labels). Small sizes are frequent, so that empty labels, a single class and ties all
    occur."""
    rng = np.random.default_rng(n)
    return rng, int(rng.choice([1, 2, 3, 5, 20, 60])), int(rng.integers(2, 6))


def one_label(n: int) -> tuple[np.ndarray, np.ndarray, int]:
    rng, size, k = draw(n)
    truth = rng.integers(0, k if n % 5 else 1, size)  # every fifth: one class only
    predicted = np.where(rng.random(size) < 0.6, truth, rng.integers(0, k, size)) if n % 7 else np.full(size, n % k)
    return truth, predicted, k


def test_single_label_matches_scikit_learn() -> None:
    for n in range(CASES):
        truth, predicted, k = one_label(n)
        table = metrics.confusion(truth, predicted, k)
        assert (table == sk.confusion_matrix(truth, predicted, labels=range(k))).all()
        assert metrics.accuracy(table) == pytest.approx(sk.accuracy_score(truth, predicted), abs=1e-12)
        assert metrics.mcc(table) == pytest.approx(sk.matthews_corrcoef(truth, predicted), abs=1e-9)
        counts = np.diag(table), table.sum(0), table.sum(1)
        assert metrics.macro_f1(*counts) == pytest.approx(sk.f1_score(truth, predicted, average="macro"), abs=1e-12)
        assert metrics.micro_f1(*counts) == pytest.approx(sk.accuracy_score(truth, predicted), abs=1e-12)
        theirs = sk.precision_recall_fscore_support(truth, predicted, labels=range(k), zero_division=0)[:3]
        for ours, other in zip(metrics.precision_recall_f1(*counts), theirs, strict=True):
            assert ours == pytest.approx(other, abs=1e-12)


def test_single_label_matches_counting() -> None:
    for n in range(CASES):
        truth, predicted, k = one_label(n)
        f1s = []
        for label in range(k):
            hit = sum(t == g == label for t, g in zip(truth, predicted))
            wrong = sum((t == label) != (g == label) for t, g in zip(truth, predicted))
            if hit or wrong:
                f1s.append(hit / (hit + wrong / 2))
        table = metrics.confusion(truth, predicted, k)
        assert metrics.macro_f1(np.diag(table), table.sum(0), table.sum(1)) == pytest.approx(sum(f1s) / len(f1s))
        # MCC of k labels is the correlation of the two indicator matrices
        x, y = np.eye(k)[truth], np.eye(k)[predicted]
        x, y = x - x.mean(0), y - y.mean(0)
        below = math.sqrt((x * x).sum() * (y * y).sum())
        assert metrics.mcc(table) == pytest.approx((x * y).sum() / below if below > 1e-12 else 0.0, abs=1e-9)


def test_multi_label_matches_scikit_learn() -> None:
    for n in range(CASES):
        rng, size, k = draw(n)
        truth, predicted = rng.random((size, k)) < rng.random(), rng.random((size, k)) < rng.random()
        if n % 6 == 0:
            predicted[:] = False  # nothing is predicted
        counts = (truth & predicted).sum(0), predicted.sum(0), truth.sum(0)
        occurs = np.flatnonzero((truth | predicted).any(0))
        if not len(occurs):
            assert metrics.micro_f1(*counts) is None and metrics.macro_f1(*counts) is None
            continue
        theirs = sk.f1_score(truth, predicted, average="micro", zero_division=0)
        assert metrics.micro_f1(*counts) == pytest.approx(theirs, abs=1e-12)
        theirs = sk.f1_score(truth, predicted, average=None, zero_division=0)[occurs].mean()
        assert metrics.macro_f1(*counts) == pytest.approx(theirs, abs=1e-12)


def test_auc_matches_scikit_learn_and_counting_pairs() -> None:
    for n in range(CASES):
        rng, size, k = draw(n)
        truth = rng.integers(0, 2 if n % 5 else 1, size).astype(bool)
        scores = rng.integers(0, 4, size) / 4 if n % 2 else rng.random(size)  # with ties
        scores = np.full(size, 0.5) if n % 11 == 0 else scores
        ours = metrics.auc(scores, truth)
        if truth.all() or not truth.any():
            assert ours is None
            continue
        assert ours == pytest.approx(sk.roc_auc_score(truth, scores), abs=1e-12)
        pairs = [(p > q) + (p == q) / 2 for p in scores[truth] for q in scores[~truth]]
        assert ours == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
        classes = np.concatenate([np.arange(k), rng.integers(0, k, size)])  # each class occurs
        logits = rng.normal(size=(len(classes), k)).round(1)
        p = np.exp(numeric.log_softmax(logits))
        if k > 2:
            theirs = sk.roc_auc_score(classes, p, multi_class="ovr", average="macro")
            assert metrics.macro_auc(p, np.eye(k, dtype=bool)[classes]) == pytest.approx(theirs, abs=1e-12)


def test_regression_matches_scipy() -> None:
    for n in range(CASES):
        rng, size, _ = draw(n)
        truth = rng.integers(0, 5, size).astype(float) if n % 2 else rng.normal(size=size) * 10.0 ** rng.integers(-8, 8)
        predicted = truth * rng.normal() + rng.normal(size=size) if n % 3 else rng.integers(0, 3, size).astype(float)
        predicted = np.full(size, 0.1) if n % 7 == 0 else predicted  # constant predictions
        ours = metrics.regression(truth, predicted)
        assert ours["mae"] == pytest.approx(sk.mean_absolute_error(truth, predicted))
        assert ours["rmse"] == pytest.approx(math.sqrt(sk.mean_squared_error(truth, predicted)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = (
                (stats.pearsonr(truth, predicted)[0], stats.spearmanr(truth, predicted)[0])
                if size > 1
                else (np.nan,) * 2
            )
        for name, value in zip(("pearson", "spearman"), theirs, strict=True):
            assert ours.get(name, np.nan) == pytest.approx(value, abs=1e-9, nan_ok=True), (n, name)
        if size > 1 and np.ptp(truth):
            assert ours["r2"] == pytest.approx(sk.r2_score(truth, predicted))
        else:
            assert "r2" not in ours
        assert (metrics.ranks(truth) == stats.rankdata(truth)).all()


def test_empty_input_has_no_score() -> None:
    empty = np.zeros((2, 2), int)
    assert metrics.accuracy(empty) is None and metrics.mcc(empty) is None and metrics.auc([], []) is None
    assert metrics.regression([], []) == {} and metrics.reliability([], []) == ([], None)
    assert metrics.pr_curve([], []) == ([], []) and metrics.best_threshold([], []) == 0.5


def test_curves_match_scikit_learn() -> None:
    for n in range(CASES):
        rng, size, _ = draw(n)
        truth, scores = rng.random(size) < 0.4, rng.integers(0, 9, size) / 9
        if not truth.any():
            continue
        precision, recall = metrics.pr_curve(scores, truth)
        theirs = sk.precision_recall_curve(truth, scores)
        assert precision == pytest.approx(theirs[0][:-1][::-1]) and recall == pytest.approx(theirs[1][:-1][::-1])
    long = metrics.pr_curve(np.random.default_rng(0).random(5000), np.arange(5000) % 3 == 0)
    assert len(long[0]) == metrics.MAX_CURVE_POINTS and long[1][-1] == 1.0


def test_best_threshold_is_optimal() -> None:
    for n in range(CASES):
        rng, size, _ = draw(n)
        truth, scores = rng.random(size) < 0.4, rng.random(size) if n % 2 else rng.integers(0, 4, size) / 4
        best = metrics.best_threshold(scores, truth)
        if not truth.any():
            assert best == 0.5
            continue

        def f1(threshold: float, truth: np.ndarray = truth, scores: np.ndarray = scores) -> float:
            predicted = scores >= threshold
            return 2 * (predicted & truth).sum() / (predicted.sum() + truth.sum())

        every = [f1(t) for t in (*scores, 0.5, 2.0)]
        assert f1(best) == pytest.approx(max(every))
        assert f1(0.5) < max(every) - 1e-12 or best == 0.5  # keeps the default if no threshold is better


@pytest.mark.parametrize("multi_label", [False, True])
def test_temperature_minimizes_nll(multi_label: bool) -> None:
    for n in range(60):
        rng = np.random.default_rng(n)
        logits = rng.normal(size=(80, 3)) * 3
        true = float(rng.choice([0.5, 1.0, 2.5]))
        p = numeric.sigmoid(logits / true) if multi_label else np.exp(numeric.log_softmax(logits / true))
        truth = (
            (rng.random(p.shape) < p).astype(float) if multi_label else np.array([rng.choice(3, p=row) for row in p])
        )
        temperature = metrics.fit_temperature(logits, truth)
        around = [metrics.nll(logits, truth, temperature * f) for f in (0.98, 1.02, 0.5, 2)]
        assert metrics.nll(logits, truth, temperature) <= min(around)
        assert temperature == pytest.approx(true, rel=0.6)
        if not multi_label:
            assert metrics.nll(logits, truth) == pytest.approx(
                sk.log_loss(truth, np.exp(numeric.log_softmax(logits)), labels=range(3))
            )
    certain = np.array([[9.0, 0.0], [0.0, 9.0]])
    assert metrics.fit_temperature(certain, np.array([0, 1])) == 1.0  # every prediction is right: nothing to calibrate
    many = np.tile(certain, (30, 1))
    assert metrics.fit_temperature(many, np.tile([0, 1], 30)) == 1.0
    assert metrics.fit_temperature(many, np.tile([1, 0], 30)) == 1.0  # worse than chance: no finite temperature helps
    mixed = np.tile([0, 1, 0, 1, 0, 0], 10)
    assert (
        metrics.fit_temperature(many, mixed) > 2 and metrics.fit_temperature(many[:48], mixed[:48]) == 1.0
    )  # too few records to fit


def test_reliability_matches_counting() -> None:
    for n in range(CASES):
        rng, size, _ = draw(n)
        confidence = rng.choice([0.0, 0.1, 0.5, 0.55, 0.99, 1.0], size)
        right = rng.random(size) < 0.5
        bins, ece = metrics.reliability(confidence, right)
        groups = itertools.groupby(sorted(zip(confidence, right)), key=lambda pair: min(int(pair[0] * 10), 9))
        gaps = 0.0
        for _, members in groups:
            items = list(members)
            gaps += abs(sum(c for c, _ in items) - sum(r for _, r in items))
        assert ece == pytest.approx(gaps / size, abs=1e-12) and sum(b["count"] for b in bins) == size
