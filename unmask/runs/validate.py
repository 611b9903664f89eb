"""`unmask doctor`: labelled files looked at as a run would, without training anything."""

from typing import Any

from unmask.labels import textcheck
from unmask.labels.findings import as_rows
from unmask.labels.record_sets import read_sets, sizes
from unmask.model import hf
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.text.tokenizer import Tokenizer


def check_up(recipe: Recipe, files: dict[str, list[str]], model: str = "") -> dict[str, Any]:
    """Everything found in the files of each role, as plain values."""
    settings = recipe.task.model_copy(update=files)
    spec, sets = read_sets(settings)
    kind = TASKS[spec.name]
    found = list(sets.findings)
    if model:
        config = hf.config_of(model)
        kind.check(recipe, config)
        known = kind.remember(config)
        task = kind(recipe, Tokenizer.load(model), known | {"length": recipe.task.length or known["length"]})
        found += textcheck.too_long(
            sets.train, spec, task.tokenizer, task.windowing.length, f"they are {task.windowing.fate()}"
        )
        task.fit_lengths(sets.train)
        found += task.too_large([*sets.train, *sets.dev, *sets.test])
    return {
        "task": kind.name,
        "files": files,
        "records": sizes(sets),
        "errors": sum(finding.error for finding in found),
        "warnings": sum(not finding.error for finding in found),
        "findings": as_rows(found),
    }
