"""What a person asks of a task, as a record: so many texts as the task takes, each of them text, and nothing dropped."""

from collections.abc import Sequence
from typing import Any

from unmask.errors import UserError
from unmask.labels.records import Record
from unmask.tasks.task import Task

TEXTS = ("text", "pair", "question", "context", "query", "positive")  # roles that hold a text
LISTS = ("choices", "passages", "negatives")  # roles that hold several


def texts(records: Sequence[Record]) -> list[Any]:
    """All that they ask about: texts, and lists of texts."""
    return [record[role] for record in records for role in (*TEXTS, *LISTS) if role in record]


def ask(task: Task, *parts: Any) -> Record:
    least, most, wanted = task.takes()
    if len(parts) < least or (most is not None and len(parts) > most):
        raise UserError(f"{len(parts)} texts for the task {task.name}", valid=wanted)
    for part in parts:
        for each in part if isinstance(part, list | tuple) and most is None else (part,):
            if not isinstance(each, str):
                raise UserError(f"{each!r:.80} is {type(each).__name__}, not text", valid=wanted)
    return task.ask(*parts)


def record(task: Task, item: Any, number: int) -> Record:
    """A text, its parts, or a record, as a record that the task can answer."""
    if not isinstance(item, dict):
        return ask(task, *item) if isinstance(item, list | tuple) else ask(task, item)
    at = item.get("at", f"record {number}")
    lacking = next((role for role in task.needed if role not in item), None)
    if lacking is not None:
        raise UserError(f"{at} has no {lacking!r}: {item!r:.80}", valid=f"the keys {', '.join(task.needed)}")
    for role in TEXTS:
        if role in item and not isinstance(item[role], str):
            raise UserError(f"{at}: {role} is {type(item[role]).__name__}, not text: {item[role]!r:.40}")
    for role in LISTS:
        held = item.get(role, ())
        if not isinstance(held, list | tuple) or not all(isinstance(text, str) for text in held):
            raise UserError(f"{at}: {role} is no list of texts: {held!r:.60}")
    paired = task.learnt.get("pair")
    if paired is not None and paired != ("pair" in item):
        has = "no second text (pair)" if paired else "a second text (pair)"
        raise UserError(
            f"{at} has {has}, and the model learnt from {'pairs' if paired else 'single texts'}",
            valid=task.takes()[2],
            fix="--column pair=NAME" if paired else "the texts without that column or key",
        )
    return item


def records(task: Task, items: Any) -> Sequence[Record]:
    if isinstance(items, str | bytes | dict) or not hasattr(items, "__iter__"):
        raise UserError(f"{items!r:.80} is {type(items).__name__}", valid="a list of records or texts")
    return [record(task, item, number) for number, item in enumerate(items, 1)]
