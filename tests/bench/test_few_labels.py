"""bench/few_labels.py: ranks and errors from hand-made rows, draws, and rows that are not computed twice."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from near import gap

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Return bench/few_labels.py as a module; its parts are the package bench/few_labels."""
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("few_labels_script", BENCH / "few_labels.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    return module


def rows_of(script: ModuleType, scores: dict[str, list[float]], dataset: str = "sms", labels: int = 20) -> list:
    """Return one row per method and draw."""
    starts = {"st_lr": "downloaded", "setfit": "downloaded", "trainer": "random"}
    return [
        script.Row(script.Key(dataset, method, starts.get(method, "none"), labels, draw), value, 1.5)
        for method, values in scores.items()
        for draw, value in enumerate(values)
    ]


def cells_of(script: ModuleType, scores: dict[str, list[float]], min_draws: int = 3) -> list:
    return sys.modules["few_labels.table"].make_cells(rows_of(script, scores), min_draws)


def test_ranks_follow_the_means_and_ties_share_a_rank(script: ModuleType) -> None:
    scores = {
        "tfidf": [0.5, 0.6, 0.7],
        "st_lr": [0.9, 0.9, 0.9],
        "model2vec": [0.7, 0.6, 0.5],
        "setfit": [0.1, 0.2, 0.3],
    }
    (cell,) = cells_of(script, scores)
    assert {name: cell.rank(name) for name in scores} == {"st_lr": 1, "tfidf": 2.5, "model2vec": 2.5, "setfit": 4}
    assert cell.best == "st_lr"


def test_the_error_is_paired_over_draws(script: ModuleType) -> None:
    """The draws differ by 40 points, which is an error of every mean but not of a difference of exactly 1 point."""
    (cell,) = cells_of(script, {"tfidf": [0.4, 0.6, 0.8], "st_lr": [0.41, 0.61, 0.81]})
    assert cell.is_worse("tfidf", "st_lr") and not cell.is_within_error_of_best("tfidf")
    assert cell.is_within_error_of_best("st_lr") and not cell.is_worse("st_lr", "tfidf")


@pytest.mark.parametrize(("last", "is_worse"), [(0.02, False), (0.06, True)])
def test_a_difference_counts_if_it_exceeds_its_standard_error(script: ModuleType, last: float, is_worse: bool) -> None:
    """Differences 0.1, -0.06 and 0.02: mean 0.02, error 0.046. With 0.1, 0.0 and 0.06: mean 0.053, error 0.029."""
    first = -0.06 if last == 0.02 else 0.0
    (cell,) = cells_of(script, {"tfidf": [0.5, 0.5, 0.5], "st_lr": [0.6, 0.5 + first, 0.5 + last]})
    assert cell.best == "st_lr"
    assert cell.is_worse("tfidf", "st_lr") == is_worse
    assert cell.is_within_error_of_best("tfidf") != is_worse


def test_a_cell_uses_the_draws_that_all_of_its_methods_have(script: ModuleType) -> None:
    scores = {"tfidf": [0.1, 0.2, 0.3, 0.9, 0.9], "st_lr": [0.2, 0.3, 0.4], "setfit": [1.0]}
    (cell,) = cells_of(script, scores)
    assert cell.scores == {"tfidf": [0.1, 0.2, 0.3], "st_lr": [0.2, 0.3, 0.4]}  # setfit has too few draws
    assert gap(cell.mean("tfidf"), 0.2) < 1e-9
    assert cells_of(script, scores, min_draws=6) == []


def test_the_summary_compares_only_cells_that_have_every_method(script: ModuleType) -> None:
    rows = rows_of(script, {"tfidf": [0.8] * 3, "st_lr": [0.7] * 3})
    rows += rows_of(script, {"tfidf": [0.5] * 3, "st_lr": [0.9] * 3}, labels=100)
    rows += rows_of(script, {"tfidf": [0.5] * 3}, labels=500)
    table = sys.modules["few_labels.table"]
    lines, shared = table.summarize(table.make_cells(rows, 3), ["tfidf", "st_lr"])
    assert (lines, shared) == ([["tfidf", "1.50", "50%", "0 of 2"], ["st_lr", "1.50", "50%", "1 of 2"]], 2)


def test_downloaded_and_other_start_weights_are_in_different_tables(script: ModuleType) -> None:
    scores = {"tfidf": [0.5] * 3, "st_lr": [0.6] * 3, "trainer": [0.4] * 3}
    text = script.render(rows_of(script, scores), 3, ["tfidf", "st_lr", "trainer"])
    first, second = text.split("## Without downloaded weights")
    assert "| sms | 20 | 3 | 50.0 ± 0.0 (2) | 60.0 ± 0.0 (1) |" in first and "trainer" not in first
    assert "| sms | 20 | 3 | 50.0 ± 0.0 (1) | 40.0 ± 0.0 (2) |" in second and "st_lr" not in second
    assert "trainer (random) | 1.5 |" in second


def test_cpu_seconds_are_compared_on_the_same_cells(script: ModuleType) -> None:
    """A method that is missing for the expensive data set must not look cheaper for that reason."""
    rows = rows_of(script, {"tfidf": [0.5] * 3, "st_lr": [0.6] * 3})
    expensive = rows_of(script, {"tfidf": [0.5] * 3}, dataset="reviews")
    rows += [script.Row(row.key, row.score, 100.0) for row in expensive]
    text = script.render(rows, 3, ["tfidf", "st_lr"]).split("## Without downloaded weights")[0]
    assert "| tfidf | 1.5 |" in text and "| st_lr | 1.5 |" in text


def test_a_finished_row_is_not_computed_again(script: ModuleType, tmp_path: Path) -> None:
    keys = list(script.wanted(["sms"], ["tfidf"], ["downloaded"], [20, 100], 2))
    computed = []

    def run(key: object) -> object:
        computed.append(key)
        if len(computed) == 2:
            raise RuntimeError("no memory")
        return script.Row(key, 0.25, 1.0, {"metric": "macro_f1"})

    failed = script.compute(keys, run, tmp_path, limit_minutes=60)
    assert computed == keys and len(failed) == 1 and "no memory" in failed[0]
    assert script.compute(keys, run, tmp_path, limit_minutes=60) == []
    assert computed[4:] == [keys[1]]  # only the row that failed
    rows = script.read_rows(tmp_path)
    assert list(rows) == [keys[0], keys[2], keys[3], keys[1]]
    assert rows[keys[0]] == script.Row(keys[0], 0.25, 1.0, {"metric": "macro_f1"})


def test_no_row_starts_after_the_time_limit(script: ModuleType, tmp_path: Path) -> None:
    keys = list(script.wanted(["sms"], ["tfidf"], [], [20], 3))
    assert script.compute(keys, lambda key: pytest.fail(f"{key} was computed"), tmp_path, limit_minutes=-1) == []


def test_draws_are_repeatable_have_every_label_and_grow(script: ModuleType) -> None:
    pool = [{"text": str(n), "label": "rare" if n == 7 else f"usual {n % 3}"} for n in range(300)]
    draw_records = sys.modules["few_labels.rows"].draw_records
    drawn = [draw_records(pool, 20, draw)[0] for draw in range(3)]
    assert drawn[0] == draw_records(list(pool), 20, 0)[0] and drawn[0] != drawn[1] != drawn[2]
    for draw, records in enumerate(drawn):
        assert {r["label"] for r in records} == {r["label"] for r in pool}
        more, rest = draw_records(pool, 100, draw)
        assert more[:20] == records and sorted(r["text"] for r in more + rest) == sorted(r["text"] for r in pool)
    with pytest.raises(ValueError, match="4 labels"):
        draw_records(pool, 3, 0)


def test_committed_rows_belong_to_a_file_with_their_name(script: ModuleType) -> None:
    paths = sorted(script.RESULTS.glob("*/*.jsonl"))
    assert paths
    for path in paths:
        rows = [script.Row.from_json(line) for line in path.read_text("utf-8").splitlines()]
        assert {(row.key.dataset, row.key.method) for row in rows} == {(path.parent.name, path.stem)}
        assert len({row.key for row in rows}) == len(rows), f"{path} has a row twice"
        assert all(0 <= row.score <= 1 and row.key.start in script.METHODS[row.key.method].starts for row in rows)
