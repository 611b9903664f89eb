"""Data format of a task: recognizes its labeled files and reads their rows into records.

`DataFormat(Field(…), Field(…))` reads any table by its column names. A task with other files sets a subclass in its spec
(`TaskSpec.data_format`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.labels.fields import Field, assign_columns, required_fields
from unmask.labels.records import Finding, Record, Source, parse_text, table_rows
from unmask.recipe import TaskRecipe


class DataFormat:
    fields: tuple[Field, ...] = ()
    blocks: bool = False  # in a file without columns, a blank line ends a record

    def __init__(self, *fields: Field):
        self.fields = fields or self.fields

    def matches(self, source: Source) -> bool:
        """Return whether a file looks like one of this task."""
        needed = [set(field.columns) for field in self.fields if field.use != "other" and field.required]
        return source.file_format == "table" and bool(needed) and all(source.names & names for names in needed)

    def resolve_auto(self, sources: Sequence[Source], settings: TaskRecipe) -> TaskRecipe:
        """Return the settings with their `auto` values resolved from the training files. Called before records are read."""
        return settings

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        """Return the records of a file, each with its "location". Add problems to `findings`. Labels are read only if `labeled`."""
        needed = required_fields(self.fields, labeled)
        columns = assign_columns(self.fields, source, settings, needed)
        fields = [f for f in self.fields if f.name in columns and (labeled or f.use != "target")]
        records: list[Record] = []
        for location, row in table_rows(source, f"csv, tsv, jsonl or parquet with the columns {' and '.join(needed)}"):
            cells = [(field, row.get(columns[field.name])) for field in fields]
            filled = [(f, cell) for f, cell in cells if f.required or cell not in (None, "")]
            values = {f.key: _value(f, cell, location, findings) for f, cell in filled}
            records.append({"location": location} | values)
        return records


def _value(field: Field, cell: Any, location: str, findings: list[Finding]) -> Any:
    """Convert a cell to the type of its field. Spans and other objects are returned unchanged."""
    items = cell if isinstance(cell, list) else [cell]
    if field.holds == "texts" or (field.holds == "label" and isinstance(cell, list)):
        return [parse_text(item, location, field.name, findings) for item in items]
    if field.holds in ("text", "label", "id"):
        return parse_text(cell, location, field.name, findings)
    if field.holds in ("number", "index"):
        number = parse_number(cell, location, field.name, findings)
        return int(number) if field.holds == "index" else number
    return [parse_number(item, location, field.name, findings) for item in items] if field.holds == "grades" else cell


def parse_number(cell: Any, location: str, name: str, findings: list[Finding], hint: str = "write a number") -> float:
    """Return a cell as a number, or 0 and a finding if it is not one."""
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = np.nan
    if np.isfinite(number):
        return number
    findings.append(Finding(location, f"{name} {cell!r:.40} is not a number", hint, kind=name))
    return 0.0
