"""Read labeled files into records, each with its file and line. Problems are collected as findings, not raised one by one.

Tables (csv, tsv, jsonl, parquet, a JSON list of objects) have columns; a task names the roles it needs (`text`, `label`) and
`map_columns` finds their columns. Other formats are read from lines or a JSON value: `conll.py`, `squad.py`, `trec.py`.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command
from unmask.text.columns import flatten_objects, normalize_name
from unmask.text.decode import decode, decompress, detect_binary, detect_encoding, read_errors
from unmask.text.detect import HEAD_BYTES, KIND_BY_SUFFIX, file_suffix, has_plugin_reader, probe_labeled
from unmask.text.layout import Layout, lines_with_shifted_values
from unmask.text.readers import Reading
from unmask.text.report import Problem, Report

Record = dict[str, Any]  # keys of the task's fields, and "location": file:line
# Roles for which a number is probably a mistake.
TEXT_ROLES = ("text", "pair", "question", "context", "query", "passage")
WARNING_KINDS = {"repaired_bytes", "repaired_surrogates", "control_characters"}  # kinds of problem that are warnings
HINTS = {  # kind of problem → hint
    "repaired_bytes": "export the file as UTF-8",
    "repaired_surrogates": "export the file as UTF-8",
    "ragged_rows": "add the missing fields, or remove the row",
    "extra_fields": 'quote fields that contain the separator: "so, so"',
    "bad_json": 'write one complete object per line: {"text": "…", "label": "…"}',
    "long_records": "split the record",
    "damaged_files": "copy or download the file again",
}
TABLE_SUFFIXES = (*KIND_BY_SUFFIX, ".json")  # suffixes of files that contain records
MISSING_VALUES = ("", "nan", "none", "null", "n/a", "na", "<na>", "-")  # notations for a missing value
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Finding:
    """A problem in a labeled file.

    >>> print(Finding("a.csv:7", "no label", "fill it in, or remove the row"))
    a.csv:7: no label; fill it in, or remove the row
    """

    location: str  # file:line
    message: str
    hint: str = ""
    error: bool = True  # False: a warning, training continues
    kind: str = ""  # findings of one kind are printed together
    count: int = 1  # number of findings that this one stands for, if others of its kind are not listed

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" + (f"; {self.hint}" if self.hint else "")


@dataclass
class Source:
    """An opened labeled file: a table (`columns`, `rows`), lines of text, or one JSON value."""

    path: str
    file_format: str  # table, text or json
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # line, values
    lines: list[tuple[int, str]] = field(default_factory=list)
    value: Any = None
    layout: Layout = field(default_factory=lambda: Layout("table"))  # detected header, and whether it is ambiguous

    def location(self, line: int) -> str:
        return f"{self.path}:{line}"

    @property
    def names(self) -> set[str]:
        """Return the column names in lower case and in English."""
        return set(map(normalize_name, self.columns))

    @property
    def empty(self) -> bool:
        """Return whether the file has no records."""
        return not self.rows and not self.value and not any(text.strip() for _, text in self.lines)


class _FullReport(Report):
    """A report that keeps the location of every problem, as labeled files are repaired line by line."""

    def add(self, kind: str, source: str, line: int, message: str, count: int = 1) -> None:
        self.counts[kind] += count
        self.problems.append(Problem(kind, source, line, message))


def open_source(
    path: str, findings: list[Finding], encoding: str = "auto", columns: Mapping[str, str] | None = None
) -> Source:
    """Read a file whose layout is detected from its content. Problems are added to `findings`; raises UserError if it cannot be read at all.

    `columns`: role → column name or number, from the user.
    """
    file_path = Path(path).expanduser()
    if not file_path.is_file():
        message = "this is a folder" if file_path.is_dir() else "no such file"
        tables = sorted(p.name for p in file_path.glob("*") if is_table(p.name)) if file_path.is_dir() else []
        hint = f"pass the files in it: {', '.join(tables[:5])}" if tables else None
        raise UserError(f"{path}: {message}", expected="a csv, tsv, jsonl, parquet, json or CoNLL file", hint=hint)
    report, header, chosen_columns = _FullReport(), "", set((columns or {}).values())
    file, layout = probe_labeled(file_path, path, encoding, chosen_columns)
    reading = Reading(file, report)
    if layout.kind == "json":
        source = _read_json(file_path, path, report, findings)
    elif file.kind == "text":
        source = Source(path, "text", lines=list(reading.lines()), layout=layout)
    else:
        rows = _keep_objects(path, reading.records(), findings)
        source = Source(path, "table", list(file.columns) or _columns(rows), rows, layout=layout)
        if file.kind in ("csv", "tsv"):
            line, header, names = _read_header(reading)
            source.columns = source.columns or names
            findings += _csv_findings(reading, source, line, () if file.columns else names)
    if file.kind not in ("csv", "tsv"):
        flatten_objects([row for _, row in source.rows])
        source.columns = _columns(source.rows)
    findings += _layout_findings(source, chosen_columns)
    findings += _reader_findings(source, report)
    if source.empty:
        below_header = f" below its header ({header:.60})" if header else ""
        findings.append(
            Finding(f"{path}:1", f"the file has no rows{below_header}", "pass a file with records", kind="empty")
        )
    return source


def _layout_findings(source: Source, chosen_columns: set[str]) -> list[Finding]:
    """Report ambiguous layouts: a first line that looks like data, or a text that may be a table."""
    reason = source.layout.reason
    if source.layout.ambiguous:
        hint = "if it is a table, add a header line with column names"
        return [Finding(source.location(1), f"{reason}; read as plain text", hint, error=False, kind="layout")]
    if not reason or any(name in source.columns for name in chosen_columns):
        return []
    message = f"the first line looks like data, not like a header: {reason}"
    hint = f"the columns are numbered 1 to {len(source.columns)}: use --column text=N, or add a header line"
    return [Finding(source.location(1), message, hint, error=False, kind="header")]


def _reader_findings(source: Source, report: Report) -> list[Finding]:
    """Turn the reader's problems into findings. Extra fields are only a warning if the values are in the right columns."""
    last_line = max((line for line, _ in (source.rows or source.lines)[-1:]), default=1)
    problems = list(dict.fromkeys(report.problems))
    extra = {problem.line for problem in problems if problem.kind == "extra_fields"}
    shifted = lines_with_shifted_values(source.rows, extra, source.layout.separator) if extra else set()
    findings = []
    for problem in problems:
        message, hint, error = problem.message, HINTS.get(problem.kind, ""), problem.kind not in WARNING_KINDS
        if problem.kind == "damaged_files":
            message = f"damaged or truncated after this line: {message}"
        if problem.kind == "extra_fields" and problem.line not in shifted:
            hint, error = "fields after the last column are ignored", False
        findings.append(
            Finding(source.location(problem.line or last_line), message, hint, error=error, kind=problem.kind)
        )
    return findings


def is_table(name: str) -> bool:
    """Return whether a file name has a suffix of files with records.

    >>> is_table("new.csv"), is_table("new.jsonl.gz"), is_table("what a film")
    (True, True, False)
    """
    return file_suffix(name) in TABLE_SUFFIXES or has_plugin_reader(name)


def _keep_objects(
    path: str, values: Iterable[tuple[int, Any]], findings: list[Finding]
) -> list[tuple[int, dict[str, Any]]]:
    """Return (line, object) pairs; values that are not objects become findings."""
    rows = []
    for line, value in values:
        if isinstance(value, dict):
            rows.append((line, value))
        else:
            message = f"this is a JSON {type(value).__name__}, not an object"
            findings.append(Finding(f"{path}:{line}", message, 'write {"text": …, "label": …}', kind="no object"))
    return rows


def _read_header(reading: Reading) -> tuple[int, str, list[str]]:
    """Return number, text and column names of the first line that is not blank."""
    file = reading.file
    quoting: Any = csv.QUOTE_MINIMAL if file.quotes else csv.QUOTE_NONE
    number, text = next((line for line in Reading(file, Report()).lines() if line[1].strip()), (1, ""))
    return number, text.strip(), next(csv.reader([text], delimiter=file.delimiter, quoting=quoting), [])


def _csv_findings(reading: Reading, source: Source, line: int, names: Sequence[str]) -> list[Finding]:
    """Find mistakes that the csv module ignores: duplicate column names and unclosed quotes."""
    file, findings = reading.file, []
    second_pass = Reading(file, Report())
    for name, count in Counter(name.strip() for name in names).items():
        if count > 1 and name:
            message = f"{count} columns are named {name!r}; only the last one is read"
            findings.append(Finding(source.location(line), message, "rename the columns", kind="columns"))
    if file.quotes and source.rows:
        first, row = source.rows[-1]
        if any("\n" in value for value in row.values() if isinstance(value, str)):
            quotes = [line.count('"') for number, line in second_pass.lines() if number >= first]
            if sum(quotes) % 2:
                message = f"unclosed quote: the {len(quotes)} lines from here to the end are read as one row"
                hint = 'close the quote; inside a field, write quotes twice: "so ""good"""'
                findings.append(Finding(source.location(first), message, hint, kind="quotes"))
    return findings


def _columns(rows: Sequence[tuple[int, dict[str, Any]]]) -> list[str]:
    return list(dict.fromkeys(key for _, row in rows for key in row))


def _read_json(path: Path, name: str, report: Report, findings: list[Finding]) -> Source:
    """Read a JSON file; a list of objects is a table."""

    def add_problem(kind: str, line: int, message: str, count: int) -> None:
        report.add(kind, name, line, message, count)

    try:
        with open(path, "rb") as raw:
            data = decompress(raw).read()
    except read_errors() as error:
        raise UserError(f"{name}: cannot be read: {error}", hint=HINTS["damaged_files"]) from None
    if message := detect_binary(data[:HEAD_BYTES]):
        raise UserError(f"{name}: not text but {message}", expected="JSON in UTF-8", hint="convert it to text")
    text = "".join(decode(io.BytesIO(data), detect_encoding(data[:HEAD_BYTES]), add_problem))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        hint = f"{command('python -m json.tool', Path(name))} shows the position"
        raise UserError(f"{name}:{line}: not JSON: {error}", hint=hint) from None
    if not (isinstance(value, list) and any(isinstance(item, dict) for item in value)):
        return Source(name, "json", value=value)
    rows = _keep_objects(name, zip(_find_item_lines(text), value), findings)
    return Source(name, "table", _columns(rows), rows)


def _find_item_lines(text: str) -> Iterator[int]:
    """Yield the line on which each item of a JSON list starts.

    >>> list(_find_item_lines('[1,\\n [2,\\n 3],\\n\\n 4]'))
    [1, 2, 5]
    """
    decoder, separators = json.JSONDecoder(), re.compile(r"[\s,]*")
    offset, line, counted_to = text.index("[") + 1, 1, 0
    while True:
        offset = separators.match(text, offset).end()  # type: ignore[union-attr]
        if offset >= len(text) or text[offset] == "]":
            return
        line, counted_to = line + text.count("\n", counted_to, offset), offset
        yield line
        _, offset = decoder.raw_decode(text, offset)


def parse_text(value: Any, location: str, role: str, findings: list[Finding]) -> str:
    """Return a cell as text, unchanged; a missing or empty one becomes a finding.

    >>> parse_text(1.0, "", "", []), parse_text(12345678.0, "", "", []), parse_text(0.5, "", "", []), parse_text(True, "", "", [])
    ('1', '12345678', '0.5', 'true')
    """
    if isinstance(value, str) and value.strip():
        if value.isascii() or not _SURROGATES.search(value):
            return value
        message = f"{role} contains half a character (a lone surrogate), replaced by U+FFFD"
        kind = "repaired_surrogates"
        findings.append(Finding(location, message, HINTS[kind], error=False, kind=kind))
        return _SURROGATES.sub("\ufffd", value)  # one for one, so offsets stay valid
    if role in TEXT_ROLES and isinstance(value, int | float) and value == value:
        message = f"{role} is a number ({value!r:.20}), read as text"
        hint = f"use --column {role}=NAME if another column has the {role}"
        findings.append(Finding(location, message, hint, error=False, kind="number"))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value == value:
        return str(int(value)) if value.is_integer() else repr(value)
    message = f"{role} is {type(value).__name__}, not text: {value!r:.40}"
    if value is None or value == "" or value != value:  # NaN: pandas writes it for a missing cell
        message = f"no {role}"
    elif isinstance(value, str):
        message = f"an empty {role}"
    hint = "fill it in, or remove the row"
    if isinstance(value, dict):
        key = next((key for key, nested in value.items() if isinstance(nested, str)), "KEY")
        hint = f"use --column {role}=NAME.{key}, where NAME is the name of this column"
    findings.append(Finding(location, message, hint, kind=f"no {role}"))
    return ""


def parse_int(value: Any) -> int | None:
    """Return a cell as an int, or None if it is not a whole number.

    >>> parse_int("2"), parse_int(1.0), parse_int("B"), parse_int(True), parse_int(0.5)
    (2, 1, None, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
        return int(number) if number == int(number) else None
    except (TypeError, ValueError, OverflowError):
        return None


def table_rows(source: Source, expected: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("file:line", values) of a table; raises UserError if the file is not a table."""
    if source.file_format != "table":
        raise UserError(f"{source.path}: this file is not a table with columns", expected=expected)
    for line, row in source.rows:
        yield source.location(line), row
