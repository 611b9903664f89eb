"""DataFormat: the labeled files of a task, before any model: which files are such, and how their rows become records.

`DataFormat(Field(…), Field(…))` reads any table by the names of its columns. A task whose files need more than that gives a subclass, held in
its spec (`TaskSpec.form`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.labels.fields import Field, assign_columns, required_fields
from unmask.labels.records import Finding, Record, Source, parse_text, table_rows
from unmask.recipe import TaskRecipe


class DataFormat:
    fields: tuple[Field, ...] = ()
    blocks: bool = False  # whether the lines up to a blank one are one record, in a file without columns

    def __init__(self, *fields: Field):
        self.fields = fields or self.fields

    def matches(self, source: Source) -> bool:
        """Whether a file looks like one of this task's."""
        needed = [set(field.columns) for field in self.fields if field.use != "other" and field.required]
        return source.file_format == "table" and bool(needed) and all(source.names & names for names in needed)

    def resolve_auto(self, sources: Sequence[Source], settings: TaskRecipe) -> TaskRecipe:
        """The settings with what the training files decide where they say `auto`, before a file is read."""
        return settings

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        """A file's records, each with "at"; what is wrong goes to `findings`. Without `labeled`, labels are not read."""
        needed = required_fields(self.fields, labeled)
        columns = assign_columns(self.fields, source, settings, needed)
        fields = [f for f in self.fields if f.name in columns and (labeled or f.use != "target")]
        records: list[Record] = []
        for at, row in table_rows(source, f"csv, tsv, jsonl or parquet with the columns {' and '.join(needed)}"):
            cells = [(field, row.get(columns[field.name])) for field in fields]
            given = [(f, cell) for f, cell in cells if f.required or cell not in (None, "")]
            records.append({"location": at} | {f.key: _value(f, cell, at, findings) for f, cell in given})
        return records


def _value(field: Field, cell: Any, at: str, findings: list[Finding]) -> Any:
    """A cell as what its field holds; lists, spans and other objects as the file has them."""
    several = cell if isinstance(cell, list) else [cell]
    if field.holds == "texts" or (field.holds == "label" and isinstance(cell, list)):
        return [parse_text(each, at, field.name, findings) for each in several]
    if field.holds in ("text", "label", "id"):
        return parse_text(cell, at, field.name, findings)
    if field.holds in ("number", "index"):
        number = parse_number(cell, at, field.name, findings)
        return int(number) if field.holds == "index" else number
    return [parse_number(each, at, field.name, findings) for each in several] if field.holds == "grades" else cell


def parse_number(cell: Any, at: str, name: str, findings: list[Finding], hint: str = "write a number") -> float:
    """A cell as a number; 0, and a finding of the field's name, where it is none."""
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = np.nan
    if np.isfinite(number):
        return number
    findings.append(Finding(at, f"{name} {cell!r:.40} is not a number", hint, kind=name))
    return 0.0
