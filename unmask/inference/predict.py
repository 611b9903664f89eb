"""predict: texts, parts or records in, predictions out. Terminal, Python and server all come through here."""

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
    records: Sequence[Record]  # what was asked
    predictions: list[dict[str, Any]]  # one for each
    warnings: list[str]  # what was not read


def predict(
    predictor: TaskMethods, items: Iterable[Any], update: Update | None = None, overflow: str | None = None
) -> Predicted:
    """`items`: texts, tuples of parts, records. `overflow`: see `Predictor.predict`."""
    task = predictor.require_task().with_overflow(overflow)
    records = inputs.check_records(task.spec, items)
    predictor.warn_if_unknown(inputs.input_texts(task.SPEC, records))
    with progress_callback(update) as tell:
        found = task.predict(predictor.engine, records, tell)
    return Predicted(records, found, task.windowing.truncation_notes(len(records)))


def predict_inputs(
    predictor: TaskMethods,
    given: Any,
    columns: dict[str, str],
    console: Console,
    overflow: str | None = None,
    predicate: str | None = None,
) -> list[dict[str, Any]]:
    """Each prediction with what it was asked about. `given`: a file, a text, a record, a list of texts or records, or standard
    input, line by line. `predicate`: of each, where the task reads one."""
    spec = predictor.require_task().spec
    items: Iterable[Any] = read_inputs(predictor, given, columns, console)
    if predicate is not None:
        field = next((field for field in spec.fields if field.use == "input" and field.holds == "place"), None)
        if field is None:
            raise UserError(f"a predicate for the task {spec.name}, which reads none", hint="leave --predicate out")
        items = [record | {field.key: predicate} for record in inputs.check_records(spec, items)]
    with console.bar("predict") as update:
        found = predict(predictor, items, update, overflow)
    for what in found.warnings:
        console.warn(what)
    asked = {"location", "id", *(field.key for field in spec.fields)} - set(required_targets(spec.fields))
    return [
        {key: value for key, value in record.items() if key in asked} | prediction
        for record, prediction in zip(found.records, found.predictions)
    ]


def read_inputs(predictor: TaskMethods, given: Any, columns: dict[str, str], console: Console) -> list[Any]:
    """What was given as a list: the records of files or of standard input, else texts and records as they are."""
    task = predictor.require_task()
    if isinstance(given, io.TextIOBase):
        return list(_lines(task.spec, given))
    items: list[Any] = [given] if isinstance(given, str | Path | dict) else list(given)
    if files := named_files(items):
        from unmask.inference.labeled_files import read

        return read(task, files, columns, False, console)[0]
    if any(isinstance(item, str) and not item.strip() for item in items):
        raise UserError("an empty text", expected="a text with words in it")
    return items


def _lines(spec: TaskSpec, lines: Iterable[str]) -> Iterable[Record]:
    """A record for each line that is not blank, with its number; parts of a line have a tab between them."""
    several = spec.num_inputs[0] > 1
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n").removeprefix("\ufeff")
        if text.strip():
            yield inputs.make_record(spec, *(text.split("\t") if several else [text])) | {"location": f"-:{number}"}
