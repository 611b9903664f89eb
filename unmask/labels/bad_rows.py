"""`unmask evaluate --bad skip`: rows that cannot be read or scored are left out of a labelled file, counted and listed.

A record may be made of several rows (the passages of a query, the words of a sentence), so bad rows are taken out of the file and
what is left is read again. What is wrong with a file as a whole is still refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from unmask.errors import UserError
from unmask.labels.fields import RecordSpec, label_names, labels_of
from unmask.labels.records import Finding, Record, Source

CHOICES = ("refuse", "skip")
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
        raise UserError(f"--bad {bad}", expected=", ".join(CHOICES), hint="--bad skip")


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
    """The file without the rows at these places; of words on lines, without the sentences that hold them."""
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
    """Records whose labels the model has, and a finding for each of the others. `labels`: the model's."""
    known = set(label_names(spec, labels))
    good, skipped = [], list[Finding]()
    for record in records:
        strange = next((label for label in labels_of(spec, record) if known and label not in known), None)
        if strange is None:
            good.append(record)
        else:
            what = f"the label {strange!r:.60} is unknown to the model"
            skipped.append(Finding(record["location"], what, "write it as the model has it", kind="unknown label"))
    return good, skipped
