"""The records of a user's files, as a fine-tuned model reads them, and its scores on labeled ones."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from unmask.console import Console
from unmask.errors import UserError
from unmask.inference.predictor import Predictor
from unmask.labels import bad_rows
from unmask.labels.detect_task import with_column_proposals
from unmask.labels.fields import (
    detected_columns,
    file_fields,
    label_names,
    labels_of,
    required_fields,
    required_targets,
)
from unmask.labels.findings import as_rows, by_kind
from unmask.labels.record_sets import log_warnings, raise_errors
from unmask.labels.records import Finding, Record, Source, open_source
from unmask.tasks import inputs
from unmask.tasks.task import Task
from unmask.text.detect import file_suffix
from unmask.text.layout import CONLL_SUFFIXES

SKIP = "--bad-rows skip leaves out these rows and lists them"


def read(
    task: Task,
    paths: Sequence[str],
    columns: dict[str, str],
    labeled: bool,
    console: Console,
    skip: bool | None = None,
) -> tuple[list[Record], list[Finding]]:
    """The records of files, and the errors of the rows that were skipped; unless `skip`, what is wrong with one is an error.

    Without `labeled`, labels are not looked at. `skip`: None for a verb without --bad-rows.
    """
    findings: list[Finding] = []
    records: list[Record] = []
    skipped: list[Finding] = []
    for path in paths:
        own: list[Finding] = []
        source = open_source(path, own, columns=task.settings.columns | columns)
        given = kept_columns(task.settings.columns, source, file_fields(task.SPEC.fields)) | columns
        read_one = partial(_read_one, task, given, labeled)
        if skip and not source.empty:
            good, own, bad = bad_rows.good_records(task.SPEC, source, read_one, own)
            records, skipped = records + good, skipped + bad
        elif not source.empty:
            records += read_one(source, own)
        findings += own if labeled else _without_label(own, source, task, given)
    rows = not any(f.error and f.kind in (*bad_rows.FILE_KINDS, "not of the task") for f in findings)
    raise_errors(findings, hint=SKIP if skip is False and rows else None)
    log_warnings(findings, console)
    return records, skipped


def kept_columns(trained: dict[str, str], source: Source, may_be_files: Sequence[str]) -> dict[str, str]:
    """The columns named for the training file that this file has too. Numbers count only where no line names columns, and
    only together: a file with fewer columns has them in other places."""
    if source.file_format != "table":
        return trained
    numbers = [name for role, name in trained.items() if name.isdecimal() and role not in may_be_files]
    moved = any(name not in source.columns for name in numbers)
    there = [name for name in source.columns if not (moved and name in numbers)]
    return {role: name for role, name in trained.items() if name in there or role in may_be_files}


def _read_one(
    task: Task, given: dict[str, str], labeled: bool, source: Source, findings: list[Finding]
) -> list[Record]:
    if not labeled:  # a label's column was named for the training file, and this one may have none
        labels = required_targets(task.SPEC.fields)
        given = {role: name for role, name in given.items() if role not in labels or name in source.columns}
        lines = (
            source.file_format == "text"
            and len(required_fields(task.SPEC.fields, labeled=False)) == 1
            and file_suffix(source.path) not in CONLL_SUFFIXES
        )
        if lines and not task.SPEC.data_format.matches(source):  # a text on each line
            spec = task.spec  # which is made at each access
            return [
                inputs.make_record(spec, text) | {"location": source.location(line)}
                for line, text in source.lines
                if text.strip()
            ]
    settings = task.settings.model_copy(update={"columns": given})
    names = {source.location(line): row["id"] for line, row in source.rows if row.get("id") not in (None, "")}
    try:
        found = task.SPEC.data_format.read(source, settings, findings, labeled)
    except UserError as error:
        raise with_column_proposals(error, source, task.SPEC, settings) from None
    return [{"id": names[record["location"]]} | record if record["location"] in names else record for record in found]


def _without_label(findings: list[Finding], source: Source, task: Task, given: dict[str, str]) -> list[Finding]:
    """A row that ends before its label has everything that an answer needs: no error then."""
    if not any(finding.kind == "ragged_rows" for finding in findings):
        return findings
    columns = detected_columns(task.SPEC.fields, source, task.settings.model_copy(update={"columns": given}))
    labels = {name for role, name in columns.items() if role in required_targets(task.SPEC.fields)}
    absent = {source.location(line): set(source.columns) - set(row) for line, row in source.rows}
    short = {at for at, names in absent.items() if names and names <= labels}
    return [replace(f, error=False) if f.kind == "ragged_rows" and f.location in short else f for f in findings]


def evaluate(
    predictor: Predictor, paths: Sequence[str], columns: dict[str, str], console: Console, bad: str = "error"
) -> dict[str, Any]:
    """Scores on labeled files. `bad`: "refuse" rows that cannot be read or scored, or "skip" them and list them."""
    bad_rows.check_choice(bad)
    task = predictor.require_task().with_overflow(None)
    records, skipped = read(task, paths, columns, True, console, skip=bad == "skip")
    if bad == "skip":
        known, strange = bad_rows.known_labels(task.SPEC, task.spec.labels, records)
        if known or not records:
            records, skipped = known, skipped + strange
        if not records:
            raise_errors(skipped)
    check_labels(task, records, console)
    predictor.warn_if_unknown(inputs.input_texts(task.SPEC, records))
    with console.bar("evaluate") as update:
        answers = task.predict(predictor.engine, records, update)
    for what in task.windowing.truncation_notes(len(records)):
        console.warn(what)
    answers = task.extend_predictions(predictor.engine, answers, records)
    return {
        "task": task.name,
        "metric": task.spec.metric(records),
        "records": len(records),
        **(_skipped(skipped, console) if bad == "skip" else {}),
        **task.score(answers, records),
        "details": task.details(answers, records),
    }


def _skipped(skipped: Sequence[Finding], console: Console) -> dict[str, Any]:
    """How many rows were left out, and each of them with its reason."""
    for group in by_kind(skipped):
        console.warn(f"skipped: {group}")
    return {"skipped": len({finding.location for finding in skipped}), "skipped_rows": as_rows(skipped)}


def check_labels(task: Task, records: Sequence[Record], console: Console) -> None:
    """Labels that the model does not know are wrong whatever it answers: a score over nothing else says nothing."""
    known = set(label_names(task.SPEC, task.spec.labels))
    counts = Counter(label for record in records for label in labels_of(task.SPEC, record))
    if not known or not counts:
        return
    shown = ", ".join(sorted(known)[:12]) + (" …" if len(known) > 12 else "")
    strange = {label: n for label, n in counts.items() if label not in known}
    said = ", ".join(f"{label!r} ({n:,})" for label, n in Counter(strange).most_common(5))
    said += " …" if len(strange) > 5 else ""
    if len(strange) == len(counts):
        unnamed = all(re.fullmatch(r"LABEL_\d+", label) for label in known)
        raise UserError(
            f"{records[0]['location']}: none of the labels is known to the model: {said}",
            expected=shown,
            hint='name them in the "id2label" of its config.json, or fine-tune with --labels in the order of its outputs'
            if unnamed
            else "write the labels as the model has them, or name the column with --column label=NAME",
        )
    if strange:
        console.warn(
            f"{sum(strange.values()):,} labels are unknown to the model and count as wrong: {said}; known: {shown}"
        )
    if len(counts) == 1 and len(known) > 1:
        console.warn(f"every record has the label {next(iter(counts))!r}: macro F1, MCC and AUC say little")
