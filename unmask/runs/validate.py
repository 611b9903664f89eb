"""`unmask doctor`: labelled files looked at as a run would, without training anything."""

from typing import Any

from unmask.errors import UserError
from unmask.labels import textcheck
from unmask.labels.findings import as_rows
from unmask.labels.record_sets import read_sets, set_sizes
from unmask.labels.records import Finding
from unmask.model import hf
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.tasks.task import FitContext
from unmask.text.tokenizer import Tokenizer


def validate_files(recipe: Recipe, files: dict[str, list[str]], model: str = "") -> dict[str, Any]:
    """Everything found in the files of each role, as plain values."""
    settings = recipe.task.model_copy(update=files)
    spec, sets = read_sets(settings)
    kind = TASKS[spec.name]
    found = list(sets.findings)
    if model:
        config = hf.config_of(model)
        kind.check(recipe, config)
        tokenizer = Tokenizer.load(model)
        others = [*sets.dev, *sets.test]
        try:
            summary = kind.fit_state(FitContext(recipe, config, tokenizer, others), sets.train)
        except UserError as error:  # of records that nothing can be learnt from
            if not any(finding.error for finding in found):
                found.append(Finding(sets.train[0]["location"], error.message, error.hint or "", kind="study"))
        else:
            reads = kind(recipe, tokenizer, summary.task_state).windowing
            found += textcheck.check_lengths(
                sets.train, spec, tokenizer, reads.length, f"they are {reads.overflow_action()}"
            )
            found += summary.findings
    return {
        "task": kind.name,
        "files": files,
        "records": set_sizes(sets),
        "errors": sum(finding.error for finding in found),
        "warnings": sum(not finding.error for finding in found),
        "findings": as_rows(found),
    }
