"""`unmask doctor`: check labeled files as a fine-tuning run would, without training."""

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
    """Return the findings in the given files (split → paths) as JSON-compatible values."""
    spec, sets = read_sets(recipe.task.model_copy(update=files))
    task_class = TASKS[spec.name]
    findings = list(sets.findings)
    if model:
        config = hf.config_of(model)
        task_class.check(recipe, config)
        tokenizer = Tokenizer.load(model)
        try:
            fitted = task_class.fit_state(FitContext(recipe, config, tokenizer, [*sets.dev, *sets.test]), sets.train)
        except UserError as error:  # the records cannot be trained on
            if not any(finding.error for finding in findings):
                findings.append(Finding(sets.train[0]["location"], error.message, error.hint or "", kind="study"))
        else:
            windowing = task_class(recipe, tokenizer, fitted.task_state).windowing
            findings += textcheck.check_lengths(
                sets.train, spec, tokenizer, windowing.length, f"they are {windowing.overflow_action()}"
            )
            findings += fitted.findings
    return {
        "task": task_class.name,
        "files": files,
        "records": set_sizes(sets),
        "errors": sum(finding.error for finding in findings),
        "warnings": sum(not finding.error for finding in findings),
        "findings": as_rows(findings),
    }
