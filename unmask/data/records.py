"""Labelled files → records, each with its file and line; what is wrong with them is found, not raised one by one.

Tables (csv, tsv, jsonl, parquet, a JSON list of objects) have columns; a task names the roles it wants (`text`, `label`) and
`assign` finds the columns that play them. Other forms (CoNLL, SQuAD) are read by `formats.py` from lines or a JSON value.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unmask.data.decode import damage, decompress
from unmask.data.detect import COMPRESSED, probe
from unmask.data.readers import Reading
from unmask.data.report import Report
from unmask.errors import UserError, nearest
from unmask.recipe import DataRecipe

Record = dict[str, Any]  # a task's own keys, and "at": the file and line it came from
UNREADABLE: tuple[type[Exception], ...] = (UnicodeDecodeError, *damage())
HARMLESS = {"repaired_bytes", "repaired_surrogates", "control_characters"}  # kinds of problem that are warnings


@dataclass(frozen=True)
class Finding:
    """Something wrong in a labelled file.

    >>> print(Finding("a.csv:7", "no label", "fill it in, or remove the row"))
    a.csv:7: no label; fill it in, or remove the row
    """

    at: str  # file:line
    what: str
    fix: str = ""
    error: bool = True  # False = a warning: training goes on

    def __str__(self) -> str:
        return f"{self.at}: {self.what}" + (f"; {self.fix}" if self.fix else "")


@dataclass
class Source:
    """One labelled file, opened: a table (`columns`, `rows`), lines of text, or one JSON value."""

    path: str
    form: str  # table, text or json
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # line, values
    lines: list[tuple[int, str]] = field(default_factory=list)
    value: Any = None

    def at(self, line: int) -> str:
        return f"{self.path}:{line}"


def open_source(path: str, findings: list[Finding], encoding: str = "auto") -> Source:
    """Read a whole file. UserError when it cannot be read at all; what is wrong inside goes to `findings`."""
    file_path = Path(path).expanduser()
    if not file_path.is_file():
        what = "a folder" if file_path.is_dir() else "no such file"
        raise UserError(f"{path}: {what}", valid="a csv, tsv, jsonl, parquet, json or CoNLL file")
    if _ending(path) == ".json":
        value = _json_value(file_path, path)
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            rows = list(enumerate(value, 1))
            return Source(path, "table", _columns(rows), rows)
        if value is not None:
            return Source(path, "json", value=value)
    report = Report()
    reading = Reading(probe(file_path, path, DataRecipe(column="", encoding=encoding)), report)
    if reading.file.kind == "text":
        source = Source(path, "text", lines=list(reading.lines()))
    else:
        rows = []
        for line, record in reading.records():
            if isinstance(record, dict):
                rows.append((line, record))
            else:
                found = f"a JSON {type(record).__name__}, not an object"
                findings.append(Finding(f"{path}:{line}", found, 'write {"text": …, "label": …}'))
        source = Source(path, "table", _columns(rows), rows)
    for problem in report.problems:
        findings.append(Finding(f"{path}:{problem.line}", problem.what, error=problem.kind not in HARMLESS))
    if not source.rows and not source.lines:
        findings.append(Finding(f"{path}:1", "the file is empty", "give a file with labels"))
    return source


def _ending(path: str) -> str:
    name = path.lower()
    return Path(next((name.removesuffix(e) for e in COMPRESSED if name.endswith(e)), name)).suffix


def _columns(rows: Sequence[tuple[int, dict[str, Any]]]) -> list[str]:
    return list(dict.fromkeys(key for _, row in rows for key in row))


def _json_value(path: Path, name: str) -> Any:
    """The one value of a .json file; None when it has one on each line."""
    try:
        with open(path, "rb") as raw:
            text = decompress(raw).read().decode("utf-8-sig")
    except UNREADABLE as error:
        raise UserError(f"{name}: cannot be read: {error}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        try:
            json.loads(text.lstrip().split("\n", 1)[0])
        except (ValueError, RecursionError):
            line = getattr(error, "lineno", 1)
            raise UserError(f"{name}:{line}: not JSON: {error}", fix="python -m json.tool shows the place") from None
        return None


def assign(
    columns: Sequence[str],
    roles: Mapping[str, Sequence[str]],
    given: Mapping[str, str],
    needed: Sequence[str],
    where: str,
) -> dict[str, str]:
    """Role → column: the one that the user gave, else the first by which files usually call it.

    >>> roles = {"text": ("text", "sentence"), "label": ("label", "class")}
    >>> assign(["id", "Sentence", "class"], roles, {}, ["text"], "a.csv")
    {'text': 'Sentence', 'label': 'class'}
    """
    unknown = next((role for role in given if role not in roles), None)
    if unknown is not None:
        raise UserError(f"no role {unknown!r}{nearest(unknown, list(roles))}", valid=", ".join(roles))
    found: dict[str, str] = {}
    lower = {name.lower(): name for name in reversed(columns)}
    for role, names in roles.items():
        if role in given:
            if given[role] not in columns:
                raise UserError(
                    f"{where}: no column {given[role]!r}{nearest(given[role], list(columns))}", valid=_shown(columns)
                )
            found[role] = given[role]
        else:
            column = next((lower[name] for name in names if name in lower and lower[name] not in found.values()), None)
            if column is not None:
                found[role] = column
    lacking = next((role for role in needed if role not in found), None)
    if lacking is not None:
        raise UserError(
            f"{where}: no column for {lacking!r}",
            valid=f"{_shown(columns)}; usually called {', '.join(roles[lacking][:6])}",
            fix=f"--column {lacking}=NAME",
        )
    return found


def _shown(columns: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in columns[:20]) or "no columns"


def text_of(value: Any, at: str, role: str, findings: list[Finding]) -> str:
    """A cell as text; what is missing or empty is found."""
    if isinstance(value, str) and value.strip():
        return value.replace("\r\n", "\n")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if isinstance(value, float) and value == value else str(value)
    what = f"no {role}" if value is None or value == "" else f"an empty {role}" if isinstance(value, str) else ""
    findings.append(
        Finding(
            at, what or f"{role} is {type(value).__name__}, not text: {value!r:.40}", "fill it in, or remove the row"
        )
    )
    return ""


def table_rows(source: Source, wanted: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", values) of a table; UserError when the file is of another form."""
    if source.form != "table":
        raise UserError(f"{source.path}: not a table with columns", valid=wanted)
    for line, row in source.rows:
        yield source.at(line), row
