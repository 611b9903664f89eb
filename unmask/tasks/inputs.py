"""What a person asks of a task, as a record: so many texts as the task takes, each of them text, and nothing dropped.

All follows from the input fields of the task's spec (`labels/fields.py`).
"""

from collections.abc import Sequence
from typing import Any

from unmask.errors import UserError
from unmask.labels.fields import required_fields
from unmask.labels.records import Record
from unmask.tasks.spec import TaskSpec


def input_texts(spec: TaskSpec, records: Sequence[Record]) -> list[Any]:
    """All that they ask about: texts, and lists of texts."""
    keys = [field.key for field in spec.fields if field.holds in ("text", "texts") and field.use != "target"]
    return [record[key] for record in records for key in keys if key in record]


def make_record(spec: TaskSpec, *parts: Any) -> Record:
    """Parts in the order of the fields. Several texts may be one list, after which come the fields that are not required; else they are last."""
    least, most = spec.num_inputs
    if len(parts) < least or (most is not None and len(parts) > most):
        raise UserError(f"{len(parts)} texts for the task {spec.name}", expected=spec.input_description)
    for part in parts:
        for each in part if isinstance(part, list | tuple) and most is None else (part,):
            if not isinstance(each, str):
                raise UserError(f"{each!r:.80} is {type(each).__name__}, not text", expected=spec.input_description)
    several = next((field for field in spec.inputs if field.holds == "texts"), None)
    single = [field for field in spec.inputs if field.holds != "texts" and (field.required or several is None)]
    record: Record = {field.key: part for field, part in zip(single, parts)}
    if several:
        rest = list(parts[len(single) :])
        optional = [field for field in spec.inputs if not field.required]
        if rest and isinstance(rest[0], list | tuple) and len(rest) <= 1 + len(optional):
            record |= {field.key: part for field, part in zip(optional, rest[1:]) if part}
            rest = list(rest[0])
        if len(rest) < several.min_count or not all(isinstance(each, str) for each in rest):
            raise UserError(f"{len(rest)} {several.name}", expected=spec.input_description)
        record[several.key] = rest
    if spec.output == "span" and (empty := next((key for key, text in record.items() if not text.strip()), None)):
        raise UserError(f"the {empty} is empty", expected=spec.input_description)
    return record


def check_record(spec: TaskSpec, item: Any, number: int) -> Record:
    """A text, its parts, or a record, as a record that the task can answer."""
    if not isinstance(item, dict):
        return make_record(spec, *item) if isinstance(item, list | tuple) else make_record(spec, item)
    at, needed = item.get("location", f"record {number}"), required_fields(spec.fields, labelled=False)
    lacking = next((key for key in needed if key not in item), None)
    if lacking is not None:
        raise UserError(f"{at} has no {lacking!r}: {item!r:.80}", expected=f"the keys {', '.join(needed)}")
    for field in spec.fields:
        held = item.get(field.key, () if field.holds == "texts" else "")
        if field.use == "target":
            continue
        if field.holds == "text" and not isinstance(held, str):
            raise UserError(f"{at}: {field.key} is {type(held).__name__}, not text: {held!r:.40}")
        if field.holds == "texts" and not (
            isinstance(held, list | tuple) and all(isinstance(text, str) for text in held)
        ):
            raise UserError(f"{at}: {field.key} is no list of texts: {held!r:.60}")
    _check_second(spec, item, at)
    return item


def _check_second(spec: TaskSpec, item: Record, at: str) -> None:
    """A second text where the model learnt from single ones, or none where it learnt from pairs, is refused."""
    trained_on = {field.name: field.required for field in spec.inputs}
    for field in spec.fields:
        if field.use != "input" or field.required or field.holds != "text" or trained_on.get(field.name) is False:
            continue
        paired = field.name in trained_on
        if paired != (field.key in item):
            what = f"{field.caption.lower()} ({field.name})"
            raise UserError(
                f"{at} has {'no' if paired else 'a'} {what}, and the model learnt from {'pairs' if paired else 'single texts'}",
                expected=spec.input_description,
                hint=f"--column {field.name}=NAME" if paired else "the texts without that column or key",
            )


def check_records(spec: TaskSpec, items: Any) -> Sequence[Record]:
    if isinstance(items, str | bytes | dict) or not hasattr(items, "__iter__"):
        raise UserError(f"{items!r:.80} is {type(items).__name__}", expected="a list of records or texts")
    return [check_record(spec, item, number) for number, item in enumerate(items, 1)]
