"""`unmask evaluate --bad-rows skip`: skip, count and list the rows of a labeled file that cannot be read or scored.

A record may be made of several rows (the passages of a query, the words of a sentence), so bad rows are removed from the file and
the rest is read again. Problems of a whole file still raise an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from unmask.errors import UserError
from unmask.labels.fields import RecordSpec, label_names, labels_of
from unmask.labels.records import Finding, Record, Source

CHOICES = ("error", "skip")
FILE_KINDS = ("empty", "quotes", "damaged_files")  # kinds of finding that are about a file, not about one of its rows
# Kinds of finding about rows that may be missing from `Source.rows`.
UNREAD_KINDS = ("bad_json", "no object", "ragged_rows", "long_records")
Read = Callable[[Source, list[Finding]], list[Record]]


def check_choice(choice: str) -> None:
    if choice not in CHOICES:
        raise UserError(f"unknown value --bad-rows {choice}", expected=", ".join(CHOICES), hint="--bad-rows skip")


def good_records(
    spec: RecordSpec, source: Source, read: Read, findings: list[Finding]
) -> tuple[list[Record], list[Finding], list[Finding]]:
    """Return (records, remaining findings, errors of the skipped rows). `findings`: from opening the file."""
    read_findings: list[Finding] = []
    records = read(source, read_findings)
    locations = {source.location(line) for line, _ in (*source.rows, *source.lines)} | {
        record["location"] for record in records
    }
    skipped = [f for f in (*findings, *read_findings) if f.error and _is_about_row(f, locations)]
    if not skipped:
        return records, [*findings, *read_findings], []
    bad = {finding.location for finding in skipped}
    second_findings: list[Finding] = []
    reread = read(drop_rows(source, bad, spec.data_format.blocks), second_findings)
    records = [record for record in reread if record["location"] not in bad]
    findings = [*findings, *second_findings]
    remaining = [f for f in findings if not (f.error and f.location in bad and _is_about_row(f, locations))]
    return records, remaining, skipped


def _is_about_row(finding: Finding, locations: set[str]) -> bool:
    return finding.kind not in FILE_KINDS and (finding.location in locations or finding.kind in UNREAD_KINDS)


def drop_rows(source: Source, bad: set[str], blocks: bool) -> Source:
    """Return the file without the rows at these locations; with `blocks`, without the sentences that contain them."""
    rows = [row for row in source.rows if source.location(row[0]) not in bad]
    lines: list[tuple[int, str]] = []
    for _, group in groupby(source.lines, key=lambda line: blocks and bool(line[1].strip())):
        block = list(group)
        hit = {source.location(number) for number, _ in block} & bad
        lines += [] if hit and blocks else [line for line in block if source.location(line[0]) not in bad]
    return replace(source, rows=rows, lines=lines)


def known_labels(
    spec: RecordSpec, labels: Sequence[str], records: Sequence[Record]
) -> tuple[list[Record], list[Finding]]:
    """Return the records whose labels the model has, and a finding for each other record. `labels`: the model's labels."""
    known = set(label_names(spec, labels))
    good, skipped = [], list[Finding]()
    for record in records:
        unknown = next((label for label in labels_of(spec, record) if known and label not in known), None)
        if unknown is None:
            good.append(record)
        else:
            message = f"the label {unknown!r:.60} is not one of the model's labels"
            skipped.append(Finding(record["location"], message, "use a label of the model", kind="unknown label"))
    return good, skipped
