"""LabelFile: the texts of a file, and a label for each that is saved as soon as it is set (`unmask label`).

Every label rewrites the file atomically, so a kill loses nothing that was set. A file that another program changed is not overwritten.
"""

import codecs
import csv
import hashlib
import io
import math
import os
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unmask.console import CONTROL
from unmask.errors import UserError, command
from unmask.files import read_bytes, remove_leftovers, write_bytes
from unmask.labels.editable_table import CsvTable, EditableTable, JsonlTable
from unmask.labels.records import Finding, open_source
from unmask.text.columns import normalize_name
from unmask.text.decode import decompress, detect_encoding
from unmask.text.detect import choose_column, file_suffix, has_plugin_reader, probe_labeled

MAX_BYTES = 64 << 20  # of a file, which is rewritten for each label
MAX_LABELS = 50
SUPPORTED = "a csv, tsv or jsonl file with a text column, or a txt file with one text per line"
TEXT, LABEL, SUGGESTED, PROBABILITY = "text", "label", "suggested", "probability"  # usual names of the columns


class FileChanged(UserError):
    """Another program changed the file since it was read."""


class LabelFile:
    """An opened file. `texts`, `suggested` and `probabilities` have one entry per text; rows without a text are left out."""

    def __init__(self, path: Path, text_column: str = TEXT, label_column: str = LABEL, labels: Sequence[str] = ()):
        self.path = path.resolve()  # a link stays a link
        self.lock = threading.RLock()
        _check_writable(path)
        remove_leftovers(self.path)
        self._stamp = _stamp(self.path)
        self._data = read_bytes(self.path, MAX_BYTES)
        self.encoding, text = _decode(path, self._data)
        self.table = _open_table(path, text, (text_column, label_column))
        # A legacy encoding is detected by statistics, which labels could change, so such a file is converted with its first label.
        self.converted_from = "" if self.encoding.startswith("utf") else self.encoding
        if self.converted_from:
            self.encoding = "utf-8" if isinstance(self.table, JsonlTable) else "utf-8-sig"  # Excel needs the mark
        self.text_column, self.label_column = self._find_columns(path, text_column, label_column)
        texts = [_cell(self.table.get(row, self.text_column)) for row in range(len(self.table))]
        self.rows = [row for row, cell in enumerate(texts) if cell.strip()]
        if not self.rows:
            raise UserError(f"{path}: the column {self.text_column!r} has no texts", expected=SUPPORTED)
        self.num_empty = len(texts) - len(self.rows)
        self.texts = [texts[row] for row in self.rows]
        self.suggested = self._optional_cells(SUGGESTED)
        self.probabilities = [_probability(cell) for cell in self._optional_cells(PROBABILITY)]
        self.current = [self._read_label(path, row) for row in self.rows]  # "": no label
        self.labels = self._choose_labels(path, labels)
        self.id = hashlib.sha256("\0".join([str(self.path), *self.texts]).encode("utf-8", "replace")).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.rows)

    # ------------------------------------------------------------------------------------------------ labels

    @property
    def num_labeled(self) -> int:
        return sum(map(bool, self.current))

    def next_unlabeled(self, start: int = 0) -> int:
        """Return the first text without a label from `start` on, or the number of texts."""
        return next((index for index in range(start, len(self)) if not self.current[index]), len(self))

    def set_label(self, index: int, label: str) -> None:
        """Save the label of a text; "" removes it. Raise FileChanged if another program changed the file."""
        with self.lock:
            if label == self.current[index]:
                return
            self._check_unchanged()
            if self.adds_column:
                self.table.add_column(self.label_column)
            row = self.rows[index]
            self.table.set(row, self.label_column, label)
            data = self.table.text().encode(self.encoding)
            try:
                write_bytes(self.path, data)
            except OSError as error:
                self.table.set(row, self.label_column, self.current[index])
                raise UserError(
                    f"the label is not saved: cannot write {self.path}: {error.strerror or error}",
                    hint="free some space or change the permissions, then press the key again",
                ) from None
            self._data, self._stamp, self.current[index] = data, _stamp(self.path), label

    def _check_unchanged(self) -> None:
        if _stamp(self.path) == self._stamp:
            return
        with suppress(UserError):  # it was removed
            if read_bytes(self.path, MAX_BYTES) == self._data:
                self._stamp = _stamp(self.path)
                return
        raise FileChanged(
            f"another program changed or removed {self.path.name}; the label is not saved, so that its changes are kept",
            hint="stop this server with Ctrl-C and start it again: it reads the file again",
        )

    # ----------------------------------------------------------------------------------------------- opening

    def _find_columns(self, path: Path, text_column: str, label_column: str) -> tuple[str, str]:
        table = self.table
        sample = range(min(len(table), 200))
        texts = {c for c in table.columns if any(isinstance(v := table.get(n, c), str) and v.strip() for n in sample)}
        texts -= {LABEL, SUGGESTED, PROBABILITY}
        text, _ = choose_column(str(path), table.columns, texts, text_column)
        if label_column not in table.columns and label_column == LABEL:
            label_column = next((c for c in table.columns if normalize_name(c) == LABEL), LABEL)
        if text == label_column:
            raise UserError(f"the column {text!r} cannot hold both texts and labels", hint="pass --label-column NAME")
        return text, label_column

    @property
    def adds_column(self) -> bool:
        """Return whether the first label adds a column to the file."""
        return self.label_column not in self.table.columns

    def _read_label(self, path: Path, row: int) -> str:
        cell = "" if self.adds_column else self.table.get(row, self.label_column)
        if isinstance(cell, list | dict):
            raise UserError(
                f"{path}: the column {self.label_column!r} does not have one label per text: {cell!r:.60}",
                expected="texts with one label",
                hint="pass --label-column NAME for another column, which may be new",
            )
        return _cell(cell).strip()

    def _optional_cells(self, column: str) -> list[str]:
        if column not in self.table.columns or column in (self.text_column, self.label_column):
            return [""] * len(self.rows)
        return [_cell(self.table.get(row, column)).strip() for row in self.rows]

    def _choose_labels(self, path: Path, given: Sequence[str]) -> list[str]:
        counts = Counter(label for label in (*self.current, *self.suggested) if label)
        labels = list(dict.fromkeys(given)) or [label for label, _ in counts.most_common()]
        if not labels:
            raise UserError(
                f"{path} has no labels yet",
                expected="labels to choose from",
                hint=f"{command('unmask label', path)} --labels positive,negative",
            )
        if len(labels) > MAX_LABELS:
            source = "--labels has" if given else f"the column {self.label_column!r} has"
            hint = None if given else "pass --labels a,b,c, or --label-column NAME for another column"
            raise UserError(f"{source} {len(labels)} different labels", expected=f"at most {MAX_LABELS}", hint=hint)
        for label in labels:
            if CONTROL.search(label):
                raise UserError(f"the label {label!r:.60} contains control characters", expected="one line of text")
        return labels


def labels_path(path: Path) -> Path:
    """Return the file that holds the labels: the file itself, or for plain text a csv file next to it, which is written if it is new."""
    if not path.is_file():
        raise UserError(f"{path}: {'this is a folder' if path.is_dir() else 'no such file'}", expected=SUPPORTED)
    if file_suffix(path.name) not in (".txt", ".text", ""):
        return path
    findings: list[Finding] = []
    source = open_source(str(path), findings)
    if source.file_format != "text":  # a table with the suffix .txt
        return path
    _raise_errors(path, findings)
    texts = [line for _, line in source.lines if line.strip()]
    target = path.with_name(f"{path.name}.csv")
    if not target.exists():
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator="\n").writerows([(TEXT, LABEL), *((text, "") for text in texts)])
        try:
            write_bytes(target, out.getvalue().encode())
        except OSError as error:
            raise UserError(f"cannot write {target}: {error.strerror or error}") from None
    elif (table := CsvTable(read_bytes(target, MAX_BYTES).decode("utf-8-sig", "replace"))) and (
        TEXT not in table.columns or [table.get(row, TEXT) for row in range(len(table))] != texts
    ):
        raise UserError(
            f"{target} exists and has other texts than {path}",
            expected=f"the texts of {path.name}",
            hint=f"label it with {command('unmask label', target)}, or move it away to start over",
        )
    return target


def _open_table(path: Path, text: str, columns: tuple[str, str]) -> EditableTable:
    """Return the rows of a csv, tsv or jsonl file. Refuse a file whose rows are ambiguous, as a label could get into a wrong cell."""
    findings: list[Finding] = []
    open_source(str(path), findings, columns=dict(zip((TEXT, LABEL), columns)))
    _raise_errors(path, findings)
    _, layout = probe_labeled(path, str(path), "auto", columns)
    if layout.kind == "jsonl":
        return JsonlTable(text)
    if layout.kind != "table" or has_plugin_reader(path.name):
        raise UserError(f"{path}: this is not a table that can be labeled", expected=SUPPORTED)
    if layout.columns:
        raise UserError(
            f"{path}: the first line looks like data, not like a header: {layout.reason}",
            expected="a first line with column names, such as text,label",
            hint="add a header line, or pass --text-column with the name in the first line",
        )
    return CsvTable(text, layout.separator, layout.quotes)


def _raise_errors(path: Path, findings: Sequence[Finding]) -> None:
    errors = [f for f in findings if f.error and f.kind != "ragged_rows"]  # missing fields are empty cells
    if errors:
        more = f" (and {len(errors) - 1} more problems)" if len(errors) > 1 else ""
        hint = errors[0].hint or f"{command('unmask doctor', path)} lists all problems"
        raise UserError(f"{errors[0].location}: {errors[0].message}{more}", expected=SUPPORTED, hint=hint)


def _decode(path: Path, data: bytes) -> tuple[str, str]:
    """Return the encoding and the text, without a byte order mark. It must be possible to write the text again."""
    raw = io.BytesIO(data)
    if data.startswith(b"PAR1") or decompress(raw) is not raw:
        raise UserError(f"{path}: parquet and compressed files cannot be labeled", expected=SUPPORTED)
    encoding = detect_encoding(data)
    if encoding in ("ascii", "utf-8"):
        encoding = "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"
    try:
        text = data.decode(encoding)
        text.encode(encoding)
    except UnicodeError:
        raise UserError(f"{path}: some bytes are not text in {encoding}", hint="export the file as UTF-8") from None
    return encoding, text


def _check_writable(path: Path) -> None:
    for target in (path, path.resolve().parent):
        if target.exists() and not os.access(target, os.W_OK):
            raise UserError(f"cannot write {target}: permission denied", hint="copy the file to another folder")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced or written; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _cell(value: Any) -> str:
    """Return a cell as text; a missing one is "".

    >>> _cell(None), _cell(float("nan")), _cell(1.0), _cell(True), _cell("a")
    ('', '', '1', 'true', 'a')
    """
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _probability(cell: str) -> float | None:
    """
    >>> _probability("0.75"), _probability(""), _probability("nan"), _probability("7")
    (0.75, None, None, None)
    """
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= 1 else None
