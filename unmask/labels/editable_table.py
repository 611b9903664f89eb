"""Tables whose cells can be changed: the other rows keep their characters, and the other cells of a changed row keep their values.

`Reading` (text/readers.py) cleans the text and drops what does not fit a column, so a file cannot be written again from its records.
These tables keep the characters of every row instead, and format only the rows that change.
"""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, Protocol

from unmask.text.columns import flatten_objects
from unmask.text.readers import csv_rows


class EditableTable(Protocol):
    columns: list[str]

    def __len__(self) -> int: ...
    def get(self, row: int, column: str) -> Any: ...
    def set(self, row: int, column: str, value: str) -> None:
        """Change a cell; "" is an empty one."""

    def add_column(self, name: str) -> None: ...
    def text(self) -> str:
        """Return the text of the whole file."""


class CsvTable:
    """A table with a header line.

    >>> table = CsvTable('id,text,label\\r\\n1,"so, so",\\r\\n"2",fine,pos\\r\\n')
    >>> table.set(0, "label", "neg")
    >>> table.text()
    'id,text,label\\r\\n1,"so, so",neg\\r\\n"2",fine,pos\\r\\n'
    """

    def __init__(self, text: str, delimiter: str = ",", quotes: bool = True):
        self.delimiter, self.quotes = delimiter, quotes
        self.parts: list[str] = []  # characters of the rows, and of the blank lines between them
        self.rows: list[list[str]] = []
        self.part_of_row: list[int] = []
        for part, row in self._split(text):
            self.parts.append(part)
            if row:
                self.rows.append(row)
                self.part_of_row.append(len(self.parts) - 1)
        self.columns = [name.strip() for name in self.rows[0]] if self.rows else []

    def __len__(self) -> int:
        return max(0, len(self.rows) - 1)

    def _split(self, text: str) -> Iterator[tuple[str, list[str]]]:
        """Yield the characters and the fields of each row."""
        lines: list[str] = []

        def feed() -> Iterator[str]:
            for line in io.StringIO(text, newline=""):  # lines end in \n, \r\n or \r, which is kept
                lines.append(line)
                yield line

        for row in csv_rows(feed(), self.delimiter, self.quotes):  # the parser does not read ahead of the row
            yield "".join(lines), row
            lines.clear()

    def get(self, row: int, column: str) -> str:
        fields, at = self.rows[row + 1], self.columns.index(column)
        return fields[at] if at < len(fields) else ""

    def set(self, row: int, column: str, value: str) -> None:
        fields, at = self.rows[row + 1], self.columns.index(column)
        fields += [""] * (at + 1 - len(fields))
        fields[at] = value
        self._format(row + 1)

    def add_column(self, name: str) -> None:
        width = len(self.columns)
        self.columns.append(name)
        for number, fields in enumerate(self.rows):
            fields += [""] * (width - len(fields))
            fields.insert(width, "" if number else name)  # extra fields stay behind the last column
            self._format(number)

    def _format(self, number: int) -> None:
        fields, part = self.rows[number], self.part_of_row[number]
        end = self.parts[part][len(self.parts[part].rstrip("\r\n")) :]
        if self.quotes:
            out = io.StringIO(newline="")
            csv.writer(out, delimiter=self.delimiter, lineterminator="\r\n").writerow(fields)
            line = out.getvalue().removesuffix("\r\n")
        else:
            line = self.delimiter.join(fields)
        self.parts[part] = line + end

    def text(self) -> str:
        return "".join(self.parts)


class JsonlTable:
    """One object per line. A value inside an object can be read as a column (`review.text`).

    >>> table = JsonlTable('{"text": "so so"}\\n\\n{"text": "fine", "label": "pos"}\\n')
    >>> table.set(0, "label", "neg")
    >>> table.text()
    '{"text": "so so", "label": "neg"}\\n\\n{"text": "fine", "label": "pos"}\\n'
    """

    def __init__(self, text: str):
        self.lines = text.split("\n")  # a text may contain U+2028, which str.splitlines would split
        self.line_of_row = [n for n, line in enumerate(self.lines) if line.strip()]
        self.flat: list[dict[str, Any]] = [json.loads(self.lines[n]) for n in self.line_of_row]
        flatten_objects(self.flat)
        self.columns = list(dict.fromkeys(key for row in self.flat for key in row))

    def __len__(self) -> int:
        return len(self.line_of_row)

    def get(self, row: int, column: str) -> Any:
        return self.flat[row].get(column)

    def set(self, row: int, column: str, value: str) -> None:
        number = self.line_of_row[row]
        line = self.lines[number]
        changed = json.loads(line) | {column: value or None}
        ascii_only = (line.isascii() and "\\u" in line) or "\\ud" in line.lower()  # half a surrogate pair has no UTF-8
        end = "\r" if line.endswith("\r") else ""
        self.lines[number] = json.dumps(changed, ensure_ascii=ascii_only) + end
        self.flat[row][column] = value or None

    def add_column(self, name: str) -> None:
        self.columns.append(name)  # an object gets the key when it gets a value

    def text(self) -> str:
        return "\n".join(self.lines)
