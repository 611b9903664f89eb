"""Turn a user's inputs into records of a task, and check them against the input fields of its spec (`labels/fields.py`)."""

from collections.abc import Sequence
from typing import Any

from unmask.errors import UserError
from unmask.labels.fields import required_fields
from unmask.labels.records import Record
from unmask.tasks.spec import TaskSpec


def input_texts(spec: TaskSpec, records: Sequence[Record]) -> list[Any]:
    """Return all inputs of the records: texts, and lists of texts."""
    keys = [field.key for field in spec.fields if field.holds in ("text", "texts") and field.use != "target"]
    return [record[key] for record in records for key in keys if key in record]


def make_record(spec: TaskSpec, *parts: Any) -> Record:
    """Return the record of input texts in the order of the fields.

    The texts of a field of several texts (`choices`) come last. They may also be one list, which the optional fields may follow.
    """
    min_inputs, max_inputs = spec.num_inputs
    if len(parts) < min_inputs or (max_inputs is not None and len(parts) > max_inputs):
        raise UserError(f"{len(parts)} texts given for the task {spec.name}", expected=spec.input_description)
    for part in parts:
        for text in part if isinstance(part, list | tuple) and max_inputs is None else (part,):
            if not isinstance(text, str):
                raise UserError(f"{text!r:.80} is {type(text).__name__}, not text", expected=spec.input_description)
    list_field = next((field for field in spec.inputs if field.holds == "texts"), None)
    single = [field for field in spec.inputs if field.holds != "texts" and (field.required or list_field is None)]
    record: Record = {field.key: part for field, part in zip(single, parts)}
    if list_field:
        rest = list(parts[len(single) :])
        optional = [field for field in spec.inputs if not field.required]
        if rest and isinstance(rest[0], list | tuple) and len(rest) <= 1 + len(optional):
            record |= {field.key: part for field, part in zip(optional, rest[1:]) if part}
            rest = list(rest[0])
        if len(rest) < list_field.min_count or not all(isinstance(text, str) for text in rest):
            raise UserError(f"{len(rest)} {list_field.name} given", expected=spec.input_description)
        record[list_field.key] = rest
    if spec.output == "span" and (empty := next((key for key, text in record.items() if not text.strip()), None)):
        raise UserError(f"the {empty} is empty", expected=spec.input_description)
    return record


def check_record(spec: TaskSpec, item: Any, number: int) -> Record:
    """Return a record that the task can predict, from a text, a list of its inputs, or a record."""
    if not isinstance(item, dict):
        return make_record(spec, *item) if isinstance(item, list | tuple) else make_record(spec, item)
    location, required = item.get("location", f"record {number}"), required_fields(spec.fields, labeled=False)
    missing = next((key for key in required if key not in item), None)
    if missing is not None:
        raise UserError(f"{location} has no {missing!r}: {item!r:.80}", expected=f"the keys {', '.join(required)}")
    for field in spec.fields:
        if field.use == "target":
            continue
        value = item.get(field.key, () if field.holds == "texts" else "")
        if field.holds == "text" and not isinstance(value, str):
            raise UserError(f"{location}: {field.key} is {type(value).__name__}, not text: {value!r:.40}")
        if field.holds == "texts" and not (
            isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
        ):
            raise UserError(f"{location}: {field.key} is not a list of texts: {value!r:.60}")
    _check_second_text(spec, item, location)
    return item


def _check_second_text(spec: TaskSpec, item: Record, location: str) -> None:
    """Raise UserError if a model trained on pairs gets a single text, or one trained on single texts gets a pair."""
    trained_on = {field.name: field.required for field in spec.inputs}
    for field in spec.fields:
        if field.use != "input" or field.required or field.holds != "text" or trained_on.get(field.name) is False:
            continue
        on_pairs = field.name in trained_on
        if on_pairs != (field.key in item):
            text = f"{field.caption.lower()} ({field.name})"
            raise UserError(
                f"{location} has {'no' if on_pairs else 'a'} {text}, but the model was trained on {'pairs' if on_pairs else 'single texts'}",
                expected=spec.input_description,
                hint=f"--column {field.name}=NAME" if on_pairs else f"remove the column or key {field.key!r}",
            )


def check_records(spec: TaskSpec, items: Any) -> Sequence[Record]:
    if isinstance(items, str | bytes | dict) or not hasattr(items, "__iter__"):
        raise UserError(f"{items!r:.80} is {type(items).__name__}", expected="a list of records or texts")
    return [check_record(spec, item, number) for number, item in enumerate(items, 1)]
