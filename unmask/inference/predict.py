"""Predictions of a fine-tuned model for texts, records and files, used by the command line, the Python API and the server."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unmask.console import Console
from unmask.errors import UserError
from unmask.inference.inputs import named_files
from unmask.inference.progress import Update, progress_callback
from unmask.labels.fields import required_targets
from unmask.labels.records import Record
from unmask.tasks import inputs
from unmask.tasks.spec import TaskSpec

if TYPE_CHECKING:
    from unmask.inference.task_methods import TaskMethods


class Predicted(NamedTuple):
    records: Sequence[Record]
    predictions: list[dict[str, Any]]  # one per record
    warnings: list[str]  # about truncated texts


def predict(
    predictor: TaskMethods, items: Iterable[Any], update: Update | None = None, overflow: str | None = None
) -> Predicted:
    """Predict for texts, tuples of texts, or records. `overflow`: see `Predictor.predict`."""
    task = predictor.require_task().with_overflow(overflow)
    records = inputs.check_records(task.spec, items)
    predictor.warn_if_unknown(inputs.input_texts(task.SPEC, records))
    with progress_callback(update) as report:
        predictions = task.predict(predictor.engine, records, report)
    return Predicted(records, predictions, task.windowing.truncation_notes(len(records)))


def predict_inputs(
    predictor: TaskMethods,
    source: Any,
    columns: dict[str, str],
    console: Console,
    overflow: str | None = None,
    predicate: str | None = None,
) -> list[dict[str, Any]]:
    """Return each prediction with the input fields of its record. `source`: a file, a text, a record, a list of these, or a text
    stream with one record per line. `predicate`: set for every record, if the task has such a field."""
    spec = predictor.require_task().spec
    items: Iterable[Any] = read_inputs(predictor, source, columns, console)
    if predicate is not None:
        field = next((field for field in spec.fields if field.use == "input" and field.holds == "place"), None)
        if field is None:
            raise UserError(f"the task {spec.name} does not use a predicate", hint="remove --predicate")
        items = [record | {field.key: predicate} for record in inputs.check_records(spec, items)]
    with console.bar("predict") as update:
        predicted = predict(predictor, items, update, overflow)
    for warning in predicted.warnings:
        console.warn(warning)
    input_keys = {"location", "id", *(field.key for field in spec.fields)} - set(required_targets(spec.fields))
    return [
        {key: value for key, value in record.items() if key in input_keys} | prediction
        for record, prediction in zip(predicted.records, predicted.predictions)
    ]


def read_inputs(predictor: TaskMethods, source: Any, columns: dict[str, str], console: Console) -> list[Any]:
    """Return a list of inputs: the records of files or of a text stream, or the texts and records themselves."""
    task = predictor.require_task()
    if isinstance(source, io.TextIOBase):
        return list(_parse_lines(task.spec, source))
    items: list[Any] = [source] if isinstance(source, str | Path | dict) else list(source)
    if files := named_files(items):
        from unmask.inference.labeled_files import read_records

        return read_records(task, files, columns, False, console)[0]
    if any(isinstance(item, str) and not item.strip() for item in items):
        raise UserError("an empty text", expected="a text with at least one word")
    return items


def _parse_lines(spec: TaskSpec, lines: Iterable[str]) -> Iterable[Record]:
    """Yield a record for each line that is not blank. Several inputs are separated by tabs."""
    is_split = spec.num_inputs[0] > 1
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n").removeprefix("\ufeff")
        if text.strip():
            yield inputs.make_record(spec, *(text.split("\t") if is_split else [text])) | {"location": f"-:{number}"}
