"""A fine-tuned model on a user's file: its scores where labels are, its answers where they are not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.data.records import Finding, Record, open_source
from unmask.errors import UserError
from unmask.lab.finetune import refuse
from unmask.serve.predictor import Predictor
from unmask.train.log import Console


def read(predictor: Predictor, paths: Sequence[str], columns: dict[str, str], labelled: bool) -> list[Record]:
    task = predictor._task()
    settings = task.settings.model_copy(update={"columns": task.settings.columns | columns})
    findings: list[Finding] = []
    records = [
        record for path in paths for record in task.read(open_source(path, findings), settings, findings, labelled)
    ]
    refuse(findings)
    return records


def evaluate(predictor: Predictor, paths: Sequence[str], columns: dict[str, str], console: Console) -> dict[str, Any]:
    task = predictor._task()
    records = read(predictor, paths, columns, labelled=True)
    with console.bar("evaluate") as update:
        answers = predictor.predict(records, update)
    return {
        "task": task.name,
        "metric": task.metric,
        "records": len(records),
        **task.score(answers, records),
        "details": task.details(answers, records),
    }


def predict(predictor: Predictor, given: Any, columns: dict[str, str], console: Console) -> list[dict[str, Any]]:
    """`given`: a file, a text, a record, or a list of texts or records."""
    task = predictor._task()
    items = [given] if isinstance(given, str | Path | dict) else list(given)
    if len(items) == 1 and not isinstance(items[0], dict) and _is_file(items[0]):
        records = read(predictor, [str(items[0])], columns, labelled=False)
    else:
        records = [item if isinstance(item, dict) else task.ask(*_parts(item)) for item in items]
    for n, record in enumerate(records, 1):
        lacking = next((role for role in task.needed if role not in record), None)
        if lacking is not None:
            raise UserError(
                f"record {n} has no {lacking!r}: {record!r:.80}", valid=f"the keys {', '.join(task.needed)}"
            )
    with console.bar("predict") as update:
        answers = predictor.predict(records, update)
    return [
        {key: value for key, value in record.items() if key in ("at", "id", *task.needed)} | answer
        for record, answer in zip(records, answers)
    ]


def _parts(item: Any) -> Sequence[Any]:
    return item if isinstance(item, tuple | list) else (item,)


def _is_file(item: Any) -> bool:
    try:
        return Path(str(item)).is_file()
    except (OSError, ValueError):  # a text that is too long, or has a NUL, is no file name
        return False
