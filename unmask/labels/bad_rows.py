"""`unmask evaluate --bad-rows skip`: rows that cannot be read or scored of a labeled file are skipped, counted and listed.

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
NEVER_READ = (
    "bad_json",
    "no object",
    "ragged_rows",
    "long_records",
)  # kinds of rows that may be missing from the file's
Read = Callable[[Source, list[Finding]], list[Record]]


def check_choice(bad: str) -> None:
    if bad not in CHOICES:
        raise UserError(f"--bad-rows {bad}", expected=", ".join(CHOICES), hint="--bad-rows skip")


def good_records(
    spec: RecordSpec, source: Source, read: Read, findings: list[Finding]
) -> tuple[list[Record], list[Finding], list[Finding]]:
    """(records, findings that are left, errors of the rows that were skipped). `findings`: of opening the file."""
    first: list[Finding] = []
    records = read(source, first)
    lines = {source.location(line) for line, _ in (*source.rows, *source.lines)} | {
        record["location"] for record in records
    }
    skipped = [f for f in (*findings, *first) if f.error and _of_a_row(f, lines)]
    if not skipped:
        return records, [*findings, *first], []
    bad = {finding.location for finding in skipped}
    again: list[Finding] = []
    records = [
        record for record in read(without(source, bad, spec.data_format.blocks), again) if record["location"] not in bad
    ]
    left = [f for f in (*findings, *again) if not (f.error and f.location in bad and _of_a_row(f, lines))]
    return records, left, skipped


def _of_a_row(finding: Finding, lines: set[str]) -> bool:
    return finding.kind not in FILE_KINDS and (finding.location in lines or finding.kind in NEVER_READ)


def without(source: Source, bad: set[str], blocks: bool) -> Source:
    """Return the file without the rows at these locations; with `blocks`, without the sentences that contain them."""
    rows = [row for row in source.rows if source.location(row[0]) not in bad]
    lines: list[tuple[int, str]] = []
    for _, several in groupby(source.lines, key=lambda line: blocks and bool(line[1].strip())):
        block = list(several)
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
            what = f"the label {unknown!r:.60} is not one of the model's labels"
            skipped.append(Finding(record["location"], what, "use a label of the model", kind="unknown label"))
    return good, skipped
