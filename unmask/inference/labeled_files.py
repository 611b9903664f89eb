"""Records of a user's files for a fine-tuned model, and its scores on labeled files."""

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

SKIP_HINT = "add --bad-rows skip to skip and list these rows"


def read_records(
    task: Task,
    paths: Sequence[str],
    columns: dict[str, str],
    labeled: bool,
    console: Console,
    skip: bool | None = None,
) -> tuple[list[Record], list[Finding]]:
    """Read the records of files. Return them, and the errors of skipped rows.

    Raise UserError if a row has an error, unless `skip`. `skip` is None for a command without --bad-rows. Labels are ignored unless
    `labeled`.
    """
    findings: list[Finding] = []
    records: list[Record] = []
    skipped: list[Finding] = []
    for path in paths:
        file_findings: list[Finding] = []
        source = open_source(path, file_findings, columns=task.settings.columns | columns)
        file_columns = applicable_columns(task.settings.columns, source, file_fields(task.SPEC.fields)) | columns
        read_file = partial(_read_file, task, file_columns, labeled)
        if skip and not source.empty:
            good, file_findings, bad = bad_rows.good_records(task.SPEC, source, read_file, file_findings)
            records, skipped = records + good, skipped + bad
        elif not source.empty:
            records += read_file(source, file_findings)
        findings += file_findings if labeled else _allow_unlabeled(file_findings, source, task, file_columns)
    can_skip = not any(f.error and f.kind in (*bad_rows.FILE_KINDS, "not of the task") for f in findings)
    raise_errors(findings, hint=SKIP_HINT if skip is False and can_skip else None)
    log_warnings(findings, console)
    return records, skipped


def applicable_columns(trained: dict[str, str], source: Source, file_roles: Sequence[str]) -> dict[str, str]:
    """Return the columns of the training file that this file has too. Column numbers apply only if it has all of them: in a file
    with fewer columns they would be other columns."""
    if source.file_format != "table":
        return trained
    numbers = [name for role, name in trained.items() if name.isdecimal() and role not in file_roles]
    use_numbers = all(name in source.columns for name in numbers)
    names = [name for name in source.columns if use_numbers or name not in numbers]
    return {role: name for role, name in trained.items() if name in names or role in file_roles}


def _read_file(
    task: Task, columns: dict[str, str], labeled: bool, source: Source, findings: list[Finding]
) -> list[Record]:
    if not labeled:  # the label columns of the training file may be missing
        labels = required_targets(task.SPEC.fields)
        columns = {role: name for role, name in columns.items() if role not in labels or name in source.columns}
        is_text_file = (
            source.file_format == "text"
            and len(required_fields(task.SPEC.fields, labeled=False)) == 1
            and file_suffix(source.path) not in CONLL_SUFFIXES
        )
        if is_text_file and not task.SPEC.data_format.matches(source):  # one text per line
            spec = task.spec  # a property that builds a new object
            return [
                inputs.make_record(spec, text) | {"location": source.location(line)}
                for line, text in source.lines
                if text.strip()
            ]
    settings = task.settings.model_copy(update={"columns": columns})
    ids = {source.location(line): row["id"] for line, row in source.rows if row.get("id") not in (None, "")}
    try:
        records = task.SPEC.data_format.read(source, settings, findings, labeled)
    except UserError as error:
        raise with_column_proposals(error, source, task.SPEC, settings) from None
    return [{"id": ids[record["location"]]} | record if record["location"] in ids else record for record in records]


def _allow_unlabeled(findings: list[Finding], source: Source, task: Task, columns: dict[str, str]) -> list[Finding]:
    """Turn the error of a row that lacks only its label into a warning: the label is not needed for a prediction."""
    if not any(finding.kind == "ragged_rows" for finding in findings):
        return findings
    detected = detected_columns(task.SPEC.fields, source, task.settings.model_copy(update={"columns": columns}))
    labels = {name for role, name in detected.items() if role in required_targets(task.SPEC.fields)}
    missing = {source.location(line): set(source.columns) - set(row) for line, row in source.rows}
    unlabeled = {location for location, names in missing.items() if names and names <= labels}
    return [replace(f, error=False) if f.kind == "ragged_rows" and f.location in unlabeled else f for f in findings]


def evaluate(
    predictor: Predictor, paths: Sequence[str], columns: dict[str, str], console: Console, bad: str = "error"
) -> dict[str, Any]:
    """Return the scores on labeled files. `bad`: "error" to reject rows that cannot be read or scored, "skip" to skip and list them."""
    bad_rows.check_choice(bad)
    task = predictor.require_task().with_overflow(None)
    records, skipped = read_records(task, paths, columns, True, console, skip=bad == "skip")
    if bad == "skip":
        known, unknown = bad_rows.known_labels(task.SPEC, task.spec.labels, records)
        if known or not records:
            records, skipped = known, skipped + unknown
        if not records:
            raise_errors(skipped)
    check_labels(task, records, console)
    predictor.warn_if_unknown(inputs.input_texts(task.SPEC, records))
    with console.bar("evaluate") as update:
        predictions = task.predict(predictor.engine, records, update)
    for note in task.windowing.truncation_notes(len(records)):
        console.warn(note)
    predictions = task.extend_predictions(predictor.engine, predictions, records)
    return {
        "task": task.name,
        "metric": task.spec.metric(records),
        "records": len(records),
        **(_report_skipped(skipped, console) if bad == "skip" else {}),
        **task.score(predictions, records),
        "details": task.details(predictions, records),
    }


def _report_skipped(skipped: Sequence[Finding], console: Console) -> dict[str, Any]:
    """Print the skipped rows by their errors. Return their number, and each row with its error."""
    for group in by_kind(skipped):
        console.warn(f"skipped: {group}")
    return {"skipped": len({finding.location for finding in skipped}), "skipped_rows": as_rows(skipped)}


def check_labels(task: Task, records: Sequence[Record], console: Console) -> None:
    """Raise UserError if the model knows none of the labels. Warn if it does not know some, or if all records have one label."""
    known = set(label_names(task.SPEC, task.spec.labels))
    counts = Counter(label for record in records for label in labels_of(task.SPEC, record))
    if not known or not counts:
        return
    known_names = ", ".join(sorted(known)[:12]) + (" …" if len(known) > 12 else "")
    unknown = Counter({label: n for label, n in counts.items() if label not in known})
    unknown_names = ", ".join(f"{label!r} ({n:,})" for label, n in unknown.most_common(5))
    unknown_names += " …" if len(unknown) > 5 else ""
    if len(unknown) == len(counts):
        has_default_names = all(re.fullmatch(r"LABEL_\d+", label) for label in known)
        raise UserError(
            f"{records[0]['location']}: none of the labels is known to the model: {unknown_names}",
            expected=known_names,
            hint='set the names in "id2label" in config.json, or fine-tune with --labels in the order of the outputs'
            if has_default_names
            else "spell the labels as the model does, or choose the label column with --column label=NAME",
        )
    if unknown:
        console.warn(
            f"{unknown.total():,} labels are unknown to the model and count as wrong: {unknown_names}; known: {known_names}"
        )
    if len(counts) == 1 and len(known) > 1:
        console.warn(f"every record has the label {next(iter(counts))!r}: macro F1, MCC and AUC are not meaningful")
