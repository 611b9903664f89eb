"""How sure a score is: 95 % intervals of what a model reached on so many records.

A share of right records has Wilson's interval (1927). Any other score is computed again on records drawn with replacement
(bootstrap, Efron 1979), as often as a few seconds allow; a score that takes longer gets none.
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

DRAWS, SECONDS = 200, 10.0
FEWEST = 10  # records below which drawing them again says nothing


def intervals(
    task: Task, predictions: Sequence[Any], records: Sequence[Any], reached: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Score → (low, high) for those of `reached` that have one."""
    n = len(records)
    whole = {key: value for key, value in reached.items() if metric(key).kind == "score" and finite(value)}
    found = {
        key: wilson_interval(round(value * n), n)
        for key, value in whole.items()
        if metric(key).is_per_record and 0 <= value <= 1 and n
    }
    others = [key for key in whole if key not in found]
    if not others or n < FEWEST or not _independent(task.SPEC, records):
        return found
    rng, drawn, begun = generator(0, "bootstrap", n), [], time.monotonic()
    for _ in range(DRAWS):
        chosen = rng.integers(0, n, n).tolist()
        drawn.append(task.score([predictions[i] for i in chosen], [records[i] for i in chosen]))
        if time.monotonic() - begun > SECONDS:
            return found
    for key in others:
        values = [d[key] for d in drawn if finite(d.get(key))]
        if len(values) > DRAWS // 2:  # a label that many drawings lack has no score there
            low, high = np.quantile(values, [0.025, 0.975])
            if low < high:  # nothing but right answers: drawing them again cannot tell how sure that is
                found[key] = (min(float(low), whole[key]), max(float(high), whole[key]))
    return found


def _independent(spec: TaskSpec, records: Sequence[Any]) -> bool:
    """Whether a record's part in a score is its own. Not so of a place among all of them: records drawn twice would be each other's rivals."""
    targets = [field.key for field in spec.fields if field.use == "target"]
    return not spec.ranked_field or all(any(key in record for key in targets) for record in records)
