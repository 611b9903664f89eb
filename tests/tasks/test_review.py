"""Wrong labels, texts to label next, and learning curves."""

import numpy as np
import pytest
from near import gap

from unmask.tasks.classify.active import choose_texts_to_label
from unmask.tasks.classify.label_errors import LabelError, find_label_errors, thresholds
from unmask.tasks.classify.learning_curve import (
    chance_of,
    curve_results,
    curve_sizes,
    learning_curve,
    measure_curve,
    nested_order,
)

# ----------------------------------------------------------------------------------------------------- wrong labels

PROBABILITIES = np.array([
    [0.8, 0.1, 0.1],  # label 0: threshold (0.8 + 0.6 + 0.1) / 3 = 0.5
    [0.6, 0.3, 0.1],
    [0.1, 0.7, 0.2],
    [0.2, 0.7, 0.1],  # label 1: threshold (0.7 + 0.5 + 0.3) / 3 = 0.5
    [0.3, 0.5, 0.2],
    [0.4, 0.3, 0.3],
    [0.1, 0.1, 0.8],  # label 2: threshold (0.8 + 0.2) / 2 = 0.5
    [0.55, 0.25, 0.2],
])  # fmt: skip
GIVEN = np.array([0, 0, 0, 1, 1, 1, 2, 2])


def test_label_errors_match_the_computation_by_hand() -> None:
    assert gap(thresholds(PROBABILITIES, GIVEN), [0.5, 0.5, 0.5]) < 1e-9
    # Record 5 prefers another label, but with less than its threshold.
    assert find_label_errors(PROBABILITIES, GIVEN) == [
        LabelError(2, given=0, suggested=1, score=0.2),  # (0.1 - 0.7 + 1) / 2
        LabelError(7, given=2, suggested=0, score=0.325),  # (0.2 - 0.55 + 1) / 2
    ]


def test_the_most_probable_of_several_confident_labels_is_suggested() -> None:
    """The thresholds are 0.9, 0.2 and 0.15. In the last record, label 0 is below its threshold, and 1 is ahead of 2."""
    probabilities = np.array([[0.9, 0.05, 0.05], [0.8, 0.2, 0.0], [0.85, 0.05, 0.1], [0.5, 0.3, 0.2]])
    assert find_label_errors(probabilities, np.array([0, 1, 2, 2])) == [LabelError(3, given=2, suggested=1, score=0.35)]


def test_a_record_that_the_model_agrees_with_is_not_a_suspect() -> None:
    """Label 1 has the low threshold 0.3, so records of label 0 exceed it, but their label is still the most probable one."""
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.95, 0.05], [0.7, 0.3]])
    assert find_label_errors(probabilities, np.array([0, 0, 0, 1])) == []


def test_labels_without_records_and_empty_files() -> None:
    probabilities = np.array([[0.1, 0.0, 0.9], [0.9, 0.1, 0.0], [0.2, 0.8, 0.0]])
    assert find_label_errors(probabilities, np.array([0, 0, 1])) == []  # label 2 has no records, so it has no threshold
    assert find_label_errors(np.zeros((0, 2)), np.zeros(0, int)) == []


def test_flipped_labels_are_found() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 600)
    logits = rng.normal(size=(600, 3)) + 4 * np.eye(3)[truth]
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    flipped = rng.choice(600, 60, replace=False)
    given = truth.copy()
    given[flipped] = (given[flipped] + 1) % 3
    found = find_label_errors(probabilities, given)
    hits = [error.index in set(flipped.tolist()) for error in found]
    assert sum(hits) >= 50 and np.mean(hits) > 0.85
    assert np.mean([error.suggested == truth[error.index] for error in found]) > 0.85
    scores = [error.score for error in found]
    assert scores == sorted(scores) and np.mean(hits[:30]) == 1


# ------------------------------------------------------------------------------------------------------ texts to label


def blobs(centers: int = 8, each: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in well separated clusters, and the cluster of each."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(centers), each)
    return 10 * rng.normal(size=(centers, 5))[group] + 0.1 * rng.normal(size=(len(group), 5)), group


def test_chosen_texts_are_uncertain_and_from_every_cluster() -> None:
    vectors, group = blobs()
    p = np.full(len(group), 0.99)
    p[::4] = np.linspace(
        0.5, 0.6, len(p[::4])
    )  # a quarter of each cluster is uncertain: 80 texts, 10 for each one chosen
    chosen = choose_texts_to_label(np.stack([p, 1 - p], -1), vectors, count=8)
    assert sorted(group[chosen]) == list(range(8))
    assert all(n % 4 == 0 for n in chosen)
    margins = [p[n] for n in chosen]
    assert margins == sorted(margins)


def test_without_a_model_the_choice_is_diverse() -> None:
    vectors, group = blobs()
    for constant in (0.5, 1.0):
        probabilities = np.tile([constant, 1 - constant], (len(group), 1))
        chosen = choose_texts_to_label(probabilities, vectors, count=8)
        assert sorted(group[chosen]) == list(range(8))


def test_choice_is_deterministic_and_depends_on_the_seed() -> None:
    vectors, group = blobs()
    probabilities = np.tile([0.5, 0.5], (len(group), 1))
    first, again = (choose_texts_to_label(probabilities, vectors, 20, seed=3) for _ in range(2))
    assert first == again and len(set(first)) == 20
    assert first != choose_texts_to_label(probabilities, vectors, 20, seed=4)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_fewer_texts_than_asked_for_are_all_returned(n: int) -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([1, 1, 1], n).reshape(n, 3)
    assert sorted(choose_texts_to_label(probabilities, rng.normal(size=(n, 4)), 10)) == list(range(n))


def test_duplicates_are_chosen_once() -> None:
    vectors = np.tile(np.random.default_rng(0).normal(size=(30, 4)), (20, 1))
    probabilities = np.random.default_rng(1).dirichlet([1, 1], 600)
    chosen = choose_texts_to_label(probabilities, vectors, 20)
    assert len(chosen) == 20 == len({n % 30 for n in chosen})
    assert len(choose_texts_to_label(probabilities, vectors, 50)) == 30
    assert len(choose_texts_to_label(probabilities, np.zeros((600, 4)), 50)) == 1


# ----------------------------------------------------------------------------------------------------- learning curves

SIZES = [25, 50, 100, 200, 400]


def power_law(n: np.ndarray | int, a: float = 0.9, b: float = 1.2, c: float = 0.5) -> np.ndarray:
    return a - b * np.asarray(n, float) ** -c


def noisy(sd: float, seed: int = 0, repeats: int = 10) -> np.ndarray:
    return power_law(np.array(SIZES))[:, None] + np.random.default_rng(seed).normal(0, sd, (len(SIZES), repeats))


def test_an_exact_power_law_is_recovered() -> None:
    curve, note = learning_curve(SIZES, noisy(0).tolist())
    assert curve is not None and note == ""
    for n in (1000, 2000):
        predicted = curve.predict(n)
        assert gap(predicted.score, power_law(n)) < 0.002
        assert predicted.high - predicted.low < 0.005


def test_the_interval_contains_the_truth_about_as_often_as_it_claims() -> None:
    covered = []
    for seed in range(60):
        curve, _ = learning_curve(SIZES, noisy(0.03, seed).tolist())
        assert curve
        predicted = curve.predict(1000)
        covered.append(predicted.low <= power_law(1000) <= predicted.high)
    assert 0.65 <= np.mean(covered) <= 0.97


def test_few_test_records_widen_the_interval() -> None:
    scores = noisy(0.01).tolist()
    widths = []
    for num_test in (None, 10_000, 400):
        curve, _ = learning_curve(SIZES, scores, num_test=num_test)
        assert curve
        widths.append(curve.predict(1000).high - curve.predict(1000).low)
    assert widths == sorted(widths) and widths[2] > widths[0] + 0.02
    # 80% of a normal distribution are within 1.28 standard errors
    assert widths[2] >= 2 * 1.28 * (0.86 * 0.14 / 400) ** 0.5 * 0.9


def test_a_flat_curve_predicts_no_gain() -> None:
    scores = 0.95 + np.random.default_rng(0).normal(0, 0.002, (5, 10))
    curve, _ = learning_curve(SIZES, scores.tolist())
    assert curve
    assert abs(curve.predict(2000).score - 0.95) < 0.005


def test_more_labels_are_never_predicted_to_hurt() -> None:
    falling = np.tile(np.array([0.95, 0.94, 0.93, 0.92, 0.91])[:, None], (1, 5))
    curve, _ = learning_curve(SIZES, falling.tolist())
    assert curve
    assert gap(curve.predict(400).score, curve.predict(2000).score) < 1e-9


def test_scores_stay_below_one() -> None:
    rising = np.tile(np.array([0.6, 0.7, 0.8, 0.9, 0.99])[:, None], (1, 5))
    curve, _ = learning_curve(SIZES, rising.tolist())
    assert curve
    assert 0.97 < curve.predict(1_000_000).score <= curve.predict(1_000_000).high <= 1.0


@pytest.mark.parametrize(
    ("sizes", "scores", "chance", "reason"),
    [
        ([50, 100], [[0.7] * 5, [0.8] * 5], 0.0, "too few labels"),
        ([], [], 0.0, "too few labels"),
        (SIZES, [[0.8]] * 5, 0.0, "repetitions"),
        (SIZES, [[0.8, float("nan"), 0.8]] * 5, 0.0, "complete repetitions"),
        (SIZES, [[0.52, 0.55, 0.53]] * 5, 0.5, "close to chance"),
        (SIZES, np.random.default_rng(0).uniform(0.2, 1, (5, 4)).tolist(), 0.0, "vary too much"),
    ],
)
def test_curves_that_allow_no_prediction_are_refused(
    sizes: list[int], scores: list[list[float]], chance: float, reason: str
) -> None:
    curve, note = learning_curve(sizes, scores, chance)
    assert curve is None and reason in note
    results = curve_results(sizes, scores, curve, note, num_labels=500)
    assert results["predicted"] == [] and results["note"] == note and len(results["points"]) == len(sizes)


def test_measuring_trains_on_nested_samples_of_the_other_folds() -> None:
    y = np.array([0] * 60 + [1] * 30 + [2] * 10)
    calls: list[tuple[np.ndarray, np.ndarray]] = []

    def score(train: np.ndarray, test: np.ndarray) -> float:
        calls.append((train, test))
        return len(train) / 100

    sizes, scores = measure_curve(y, score, repeats=10)
    assert sizes == curve_sizes(100) == [10, 20, 40, 80]
    assert np.array(scores).shape == (4, 10) and scores[2] == [0.4] * 10
    for n, (train, test) in enumerate(calls):
        assert not set(train) & set(test) and len(test) == 20
        assert set(y[train]) == {0, 1, 2}
        if n % 4:
            assert set(calls[n - 1][0]) < set(train)  # nested
    tested = np.concatenate([test for _, test in calls[:20:4]])
    assert sorted(tested) == list(range(100))  # the five folds of the first round test every record once
    again: list[np.ndarray] = []
    measure_curve(y, lambda train, test: again.append(train) or 0.0, repeats=10)  # type: ignore[func-returns-value]
    assert all((a == b).all() for a, (b, _) in zip(again, calls, strict=True))


def test_too_few_labels_are_not_measured() -> None:
    def score(train: np.ndarray, test: np.ndarray) -> float:
        raise AssertionError("nothing should be trained")

    assert measure_curve(np.array([0, 1] * 10), score) == ([], [])
    assert measure_curve(np.arange(100) // 2, score) == ([], [])  # no label has a record for every fold


def test_every_prefix_has_about_the_label_distribution() -> None:
    y = np.array([0] * 80 + [1] * 20)
    order = nested_order(y, np.random.default_rng(0).permutation(100))
    assert sorted(order) == list(range(100))
    for size in (5, 10, 50):
        assert abs((y[order[:size]] == 1).sum() - size / 5) <= 1
    assert chance_of(y) == 0.8


def test_results_have_points_predictions_and_the_fitted_curve() -> None:
    scores = noisy(0.01).tolist()
    curve, note = learning_curve(SIZES, scores)
    results = curve_results(SIZES, scores, curve, note, num_labels=500)
    assert [point["labels"] for point in results["points"]] == SIZES
    assert gap(results["points"][0]["sd"], np.std(scores[0], ddof=1)) < 1e-9
    assert [row["labels"] for row in results["predicted"]] == [1000, 2000] and results["now"]["labels"] == 500
    assert all(row["low"] <= row["score"] <= row["high"] for row in results["fitted"])
    assert results["fitted"][0]["labels"] == 25 and results["fitted"][-1]["labels"] == 2000
