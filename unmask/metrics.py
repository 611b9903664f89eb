"""Metric: the properties of a metric's name: its range, which direction is better, and how it is printed.

The full name is looked up first (`f1`), then its last words: `macro_f1`, `HasAns_f1` and `sentiment.f1` are printed like `f1`, and
`recall@10` like `recall`. An unknown name is a score without bounds. Other packages declare metrics by an entry point with its name:

    [project.entry-points."unmask.metrics"]
    precision_at_1 = "my_package.metrics:PRECISION_AT_1"

    PRECISION_AT_1 = Metric("precision_at_1", 0, 1, percent=True)
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeGuard

from unmask.registry import Registry


def format_count(count: int, noun: str) -> str:
    """
    >>> format_count(1, "record"), format_count(1200, "record")
    ('1 record', '1,200 records')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    low: float = -math.inf
    high: float = math.inf
    higher_is_better: bool = True
    percent: bool = False  # printed as a percentage
    kind: Literal["score", "loss", "count", "threshold"] = "score"  # only scores are compared and have intervals
    is_per_record: bool = False  # the fraction of correct records, so it has a Wilson interval
    has_perplexity: bool = False  # in nats per token, so that its exponential is the perplexity
    title: str = ""  # for headings, if it differs from the name
    headline: bool = False  # shown next to the selection metric
    note: str = ""  # an explanation shown below tables

    def format(self, value: float) -> str:
        """
        >>> metric("macro_f1").format(0.8), metric("rmse").format(12.25)
        ('80.0%', '12.25')
        """
        return f"{value:.1%}" if self.percent else f"{value:.4g}"


def _fraction(name: str, is_per_record: bool = False) -> Metric:
    return Metric(name, 0.0, 1.0, percent=True, is_per_record=is_per_record)


def _loss(name: str, title: str = "", has_perplexity: bool = False) -> Metric:
    return Metric(name, 0.0, higher_is_better=False, kind="loss", has_perplexity=has_perplexity, title=title)


RAW_TEXT = "Raw text f1: the model was given each sentence as text, as `unmask predict` is. The other scores: with the words of the file."
METRICS = {
    m.name: m
    for m in (
        _fraction("accuracy", is_per_record=True),
        _fraction("exact", is_per_record=True),
        *map(_fraction, ("f1", "precision", "recall", "auc", "mrr", "map", "ndcg", "bleu", "chrf")),
        *map(_fraction, ("rouge1", "rouge2", "rougeL", "rougeLsum")),
        Metric("raw_text_f1", 0.0, 1.0, percent=True, headline=True, note=RAW_TEXT),
        _fraction("mean"),  # mean of the scores of a multi-task run
        *(Metric(name, -1.0, 1.0) for name in ("mcc", "pearson", "spearman")),
        Metric("r2", high=1.0),
        *(Metric(name, 0.0, higher_is_better=False) for name in ("mae", "rmse")),
        Metric("mean_rank", 1.0, higher_is_better=False),
        Metric("uniformity", 0.0),
        *(Metric(name, 0.0, kind="count") for name in ("records", "total")),
        Metric("thresh", kind="threshold"),
        _loss("loss"),
        _loss("mlm", "MLM", has_perplexity=True),
        _loss("clm", "CLM", has_perplexity=True),
        *(_loss(name, name.upper()) for name in ("nsp", "sop", "rtd")),
        *map(_loss, ("bilm", "cbow", "denoise", "prefix", "span", "distill_soft", "distill_cosine")),
        Metric("perplexity", 1.0, higher_is_better=False, kind="loss"),
    )
}
THIRD_PARTY: Registry = Registry("metrics", {})


@cache
def metric(name: str) -> Metric:
    """
    >>> metric("accuracy").is_per_record, metric("token_accuracy").is_per_record  # a fraction of tokens, not of records
    (True, False)
    >>> metric("spearman@64").low, metric("best_exact_thresh").kind, metric("HasAns_total").kind, metric("novelty").high
    (-1.0, 'threshold', 'count', inf)
    """
    words = name.rpartition(".")[2].partition("@")[0].split("_")
    for key in (name, *("_".join(words[n:]) for n in range(len(words)))):
        match = METRICS.get(key) or (THIRD_PARTY[key] if key in THIRD_PARTY.names() else None)
        if match is not None:
            inherited = replace(
                match, name=name, is_per_record=False, has_perplexity=False, title="", headline=False, note=""
            )
            return match if key == name else inherited
    return Metric(name)


def format_metric(name: str, value: float) -> str:
    """
    >>> format_metric("mlm_accuracy", 0.5), format_metric("recall@10", 0.5), format_metric("mae", 0.123456)
    ('50.0%', '50.0%', '0.1235')
    """
    return metric(name).format(value)


def finite(value: Any) -> TypeGuard[float]:
    """Return whether a value is a number that can be plotted and written as JSON: neither NaN nor infinite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
