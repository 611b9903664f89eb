"""A fine-tuned model on a user's file: its scores where labels are, its answers where they are not."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from unmask.data.forms.rank import FILES
from unmask.data.records import Finding, Record, Source, is_table, open_source
from unmask.errors import UserError
from unmask.lab.labelled import refuse, warn_of
from unmask.lab.pick import explained
from unmask.serve.predictor import Predictor
from unmask.tasks import asking
from unmask.tasks.task import Task
from unmask.train.log import Console


def read(
    predictor: Predictor, paths: Sequence[str], columns: dict[str, str], labelled: bool, console: Console
) -> list[Record]:
    task = predictor.need_task()
    findings: list[Finding] = []
    records: list[Record] = []
    for path in paths:
        source = open_source(path, findings, columns=task.settings.columns | columns)
        settings = task.settings.model_copy(update={"columns": kept_columns(task.settings.columns, source) | columns})
        if source.empty:
            continue
        if source.form == "text" and not labelled and len(task.needed) == 1 and Path(path).suffix.lower() == ".txt":
            records += [asking.ask(task, text) | {"at": source.at(line)} for line, text in source.lines if text.strip()]
            continue
        names = {source.at(line): row["id"] for line, row in source.rows if row.get("id") not in (None, "")}
        try:
            read_records = task.read(source, settings, findings, labelled)
        except UserError as error:
            raise explained(error, source, type(task), settings) from None
        for record in read_records:
            records.append({"id": names[record["at"]]} | record if record["at"] in names else record)
    refuse(findings)
    warn_of(findings, console)
    return records


def kept_columns(trained: dict[str, str], source: Source) -> dict[str, str]:
    """The columns named for the training file that this file has too. Numbers count only where no line names columns, and
    only together: a file with fewer columns has them in other places."""
    if source.form != "table":
        return trained
    numbers = [name for role, name in trained.items() if name.isdecimal() and role not in FILES]
    moved = any(name not in source.columns for name in numbers)
    there = [name for name in source.columns if not (moved and name in numbers)]
    return {role: name for role, name in trained.items() if name in there or role in FILES}


def evaluate(predictor: Predictor, paths: Sequence[str], columns: dict[str, str], console: Console) -> dict[str, Any]:
    task = predictor.need_task().reading(None)
    records = read(predictor, paths, columns, True, console)
    check_labels(task, records, console)
    task.judge_by(records)
    with console.bar("evaluate") as update:
        answers = task.answer(predictor.engine, records, update)
    for what in task.cuts(len(records)):
        console.warn(what)
    return {
        "task": task.name,
        "metric": task.metric,
        "records": len(records),
        **task.score(answers, records),
        "details": task.details(answers, records),
    }


def check_labels(task: Task, records: Sequence[Record], console: Console) -> None:
    """Labels that the model does not know are wrong whatever it answers: a score over nothing else says nothing."""
    known = set(task.kinds(task.learnt.get("labels", ())))
    counts = Counter(label for record in records for label in task.labels_in(record))
    if not known or not counts:
        return
    shown = ", ".join(sorted(known)[:12]) + (" …" if len(known) > 12 else "")
    strange = {label: n for label, n in counts.items() if label not in known}
    said = ", ".join(f"{label!r} ({n:,})" for label, n in Counter(strange).most_common(5))
    said += " …" if len(strange) > 5 else ""
    if len(strange) == len(counts):
        unnamed = all(re.fullmatch(r"LABEL_\d+", label) for label in known)
        raise UserError(
            f"{records[0]['at']}: none of the labels is known to the model: {said}",
            valid=shown,
            fix='name them in the "id2label" of its config.json, or fine-tune with --labels in the order of its outputs'
            if unnamed
            else "write the labels as the model has them, or name the column with --column label=NAME",
        )
    if strange:
        console.warn(
            f"{sum(strange.values()):,} labels are unknown to the model and count as wrong: {said}; known: {shown}"
        )
    if len(counts) == 1 and len(known) > 1:
        console.warn(f"every record has the label {next(iter(counts))!r}: macro F1, MCC and AUC say little")


def predict(
    predictor: Predictor, given: Any, columns: dict[str, str], console: Console, long: str | None = None
) -> list[dict[str, Any]]:
    """`given`: a file, a text, a record, a list of texts or records, or standard input, line by line."""
    task = predictor.need_task().reading(long)
    if isinstance(given, io.TextIOBase):
        given = lines_asked(predictor, given)
    items: list[Any] = [given] if isinstance(given, str | Path | dict) else list(given)
    if items and all(isinstance(item, str | Path) and _is_file(item) for item in items):
        items = read(predictor, [str(item) for item in items], columns, False, console)
    else:
        if len(items) == 1 and isinstance(items[0], str | Path) and _looks_like_file(str(items[0])):
            raise UserError(f"{items[0]}: no such file", valid="a text, or the name of a file that is there")
        if any(isinstance(item, str) and not item.strip() for item in items):
            raise UserError("an empty text", valid="a text with words in it")
    records = list(asking.records(task, items))
    shown = {"at", "id", *task.needed, *task.roles} - set(task.target)
    with console.bar("predict") as update:
        answers = task.answer(predictor.engine, records, update)
    for what in task.cuts(len(records)):
        console.warn(what)
    return [
        {key: value for key, value in record.items() if key in shown} | answer
        for record, answer in zip(records, answers)
    ]


def lines_asked(predictor: Predictor, lines: Iterable[str]) -> list[Record]:
    """A record for each line that is not blank, with its number; parts of a line have a tab between them."""
    task, out = predictor.need_task(), []
    several = task.takes()[0] > 1
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n").removeprefix("\ufeff")
        if text.strip():
            out.append(asking.ask(task, *(text.split("\t") if several else [text])) | {"at": f"-:{number}"})
    return out


def _looks_like_file(text: str) -> bool:
    return len(text) < 500 and is_table(text) and not any(map(str.isspace, text))


def _is_file(item: Any) -> bool:
    try:
        return Path(str(item)).is_file()
    except (OSError, ValueError):  # a text that is too long, or has a NUL, is no file name
        return False
