"""95% confidence intervals of a model's scores.

A fraction of correct records gets the Wilson interval (1927). Other scores get a bootstrap interval (Efron 1979), unless
NUM_RESAMPLES scorings take longer than MAX_SECONDS.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unmask.metrics import finite, metric
from unmask.numeric import wilson_interval
from unmask.seeds import generator
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import Task

NUM_RESAMPLES, MAX_SECONDS = 200, 10.0
MIN_RECORDS = 10  # fewer are too few to bootstrap


def intervals(
    task: Task, predictions: Sequence[Any], records: Sequence[Any], scores: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Return {score name: (low, high)} for those of `scores` that have an interval."""
    n = len(records)
    scores = {key: value for key, value in scores.items() if metric(key).kind == "score" and finite(value)}
    out = {key: found for key, value in scores.items() if (found := fraction_interval(key, value, n))}
    others = [key for key in scores if key not in out]
    if not others or n < MIN_RECORDS or not _independent(task.SPEC, records):
        return out
    rng, samples, start_time = generator(0, "bootstrap", n), [], time.monotonic()
    for _ in range(NUM_RESAMPLES):
        indices = rng.integers(0, n, n).tolist()
        samples.append(task.score([predictions[i] for i in indices], [records[i] for i in indices]))
        if time.monotonic() - start_time > MAX_SECONDS:
            return out
    for key in others:
        values = [sample[key] for sample in samples if finite(sample.get(key))]
        if len(values) > NUM_RESAMPLES // 2:  # the score of a rare label is undefined in resamples without it
            low, high = np.quantile(values, [0.025, 0.975])
            if low < high:  # if all predictions are correct, every resample has the same score
                out[key] = (min(float(low), scores[key]), max(float(high), scores[key]))
    return out


def fraction_interval(name: str, value: float, n: int) -> tuple[float, float] | None:
    """Return the interval of a score that is a fraction of `n` correct records, and None for other scores.

    >>> [fraction_interval(name, 0.5, 10) is not None for name in ("accuracy", "macro_f1")]
    [True, False]
    """
    if not (metric(name).is_per_record and 0 <= value <= 1 and n):
        return None
    return wilson_interval(round(value * n), n)


def _independent(spec: TaskSpec, records: Sequence[Any]) -> bool:
    """Return whether records contribute to a score independently. A rank among all records does not: duplicates in a resample would compete."""
    targets = [field.key for field in spec.fields if field.use == "target"]
    return not spec.ranked_field or all(any(key in record for key in targets) for record in records)
