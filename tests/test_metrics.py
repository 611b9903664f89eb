"""The table of metrics contains every value that tasks and objectives report, and prints it in the same format as before."""

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from unmask import metrics
from unmask.metrics import METRICS, Metric, format_metric, metric
from unmask.registry import OBJECTIVES, Registry
from unmask.runs.seeds import t_interval
from unmask.tasks import contrastive, ranking
from unmask.tasks.answer.spans import squad_scores
from unmask.tasks.classify.targets import MultiLabel, Regression, SingleLabel
from unmask.tasks.generate.metrics import scores as written
from unmask.tasks.tag import entities

PERCENT = re.compile(
    r"(accuracy|f1|precision|recall|auc|exact|mrr|map|ndcg|rouge\w*|bleu|chrf|mean)$"
)  # metrics printed as percentages before the table existed


def metric_names() -> set[str]:
    """Return all metric names from the functions that compute them."""
    labels = [{"label": "a"}, {"label": "b"}, {"label": "a"}]
    one = SingleLabel({"labels": ["a", "b"]}).score(
        [{"label": x, "scores": {"a": p, "b": 1 - p}} for x, p in (("a", 0.9), ("b", 0.2), ("b", 0.4))], labels
    )
    several = MultiLabel({"labels": ["a", "b"], "thresholds": [0.5, 0.5]}).score(
        [{"labels": ["a"], "scores": {"a": 0.9, "b": 0.1}}] * 2, [{"label": ["a"]}, {"label": ["b"]}]
    )
    number = Regression({"labels": ["value"], "mean": 0.0, "sd": 1.0}).score(
        [{"value": x} for x in (1.0, 2.5, 3.0)], [{"label": x} for x in (1.0, 2.0, 3.5)]
    )
    tags = entities.scores([[(0, 1, "PER")]], [[(0, 1, "PER")]])
    golds = [["rome"], [], ["oslo"]]
    spans = squad_scores(["rome", "", "bonn"], [0.1, 0.9, 0.2], golds, 0.5, False)
    chinese = squad_scores(["rome", "", "bonn"], [0.1, 0.9, 0.2], golds, 0.5, True)
    ranked = ranking.ranking_metrics([0, 1], [1, 0])
    text = written([["a b c d"]], ["a b c d"])
    pair = {"similarity": 0.5, "place": 1, "similarity@8": 0.5, "place@8": 2}
    scored = contrastive.score([pair, pair | {"similarity": 0.1}], [{"score": 1.0}, {"score": 0.0}], [8])
    retrieved = contrastive.score([pair], [{}], [8]) | contrastive.score([{"vector": np.ones(2)}] * 2, [{}, {}], [])
    names = {*one, *several, *number, *tags, *spans, *chinese, *ranked, *text, *scored, *retrieved, "records"}
    names |= {"token_accuracy", "raw_text_f1", "mean_rank", "mean", "loss", "perplexity", "sentiment.macro_f1"}
    terms = {term for name in OBJECTIVES.names() for term in OBJECTIVES[name].terms}
    return names | terms | {f"{term}_accuracy" for term in terms}


def test_every_metric_is_in_the_table_and_formatted_as_before() -> None:
    names = metric_names()
    assert {"macro_f1", "zh_f1", "best_f1_thresh", "HasAns_total", "recall@100", "spearman@8", "rougeLsum"} <= names
    for name in names:
        words = name.rpartition(".")[2].partition("@")[0].split("_")
        assert any("_".join(words[n:]) in METRICS for n in range(len(words))), (
            f"{name}: not in METRICS of unmask/metrics.py"
        )
        is_percentage = PERCENT.search(name.partition("@")[0]) is not None
        assert format_metric(name, 0.12345) == ("12.3%" if is_percentage else "0.1235"), name
        assert not is_percentage or (metric(name).low, metric(name).high) == (0.0, 1.0), name


def test_kinds_of_metrics() -> None:
    kinds = {name: metric(name).kind for name in metric_names()}
    assert {n for n, kind in kinds.items() if kind == "count"} == {"records", "total", "HasAns_total", "NoAns_total"}
    assert {n for n, kind in kinds.items() if kind == "threshold"} == {n for n in kinds if n.endswith("_thresh")}
    assert {n for n in kinds if metric(n).is_per_record} == {"accuracy", "exact"}
    assert {n for n in kinds if metric(n).has_perplexity} == {"mlm", "clm"}
    assert {n for n, kind in kinds.items() if kind == "score" and not metric(n).higher_is_better} == {
        "mae",
        "rmse",
        "mean_rank",
    }


def test_interval_over_seeds_stays_within_the_metric_range() -> None:
    interval = t_interval([0.99, 1.0, 0.9], metric("f1").low, metric("f1").high)
    assert interval["high"] == 1.0 and interval["low"] < 0.9
    assert metric("rmse").low == 0.0 and metric("mcc").low == -1.0 and metric("something").low == -math.inf


def test_third_party_metric_is_loaded_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "graders.py").write_text(
        "from unmask.metrics import Metric\n\nFIRST = Metric('precision_at_1', 0, 1, percent=True, is_per_record=True)\n"
    )
    info = tmp_path / "graders-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: graders\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[unmask.metrics]\nprecision_at_1 = graders:FIRST\n")
    monkeypatch.setattr(metrics, "THIRD_PARTY", Registry("metrics", {}))
    metric.cache_clear()
    assert metric("precision_at_1") == Metric("precision_at_1"), "the metric is not declared yet"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(metrics, "THIRD_PARTY", Registry("metrics", {}))
    metric.cache_clear()
    assert format_metric("precision_at_1", 0.5) == format_metric("search.precision_at_1", 0.5) == "50.0%"
    assert metric("precision_at_1").is_per_record and not metric("search.precision_at_1").is_per_record
    metric.cache_clear()
    sys.modules.pop("graders", None)
