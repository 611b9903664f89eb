"""One file to documents: text cut by file, block or line; records of csv, tsv, jsonl and parquet.

Memory is bounded by pieces of 1 MiB, whatever the length of a file or a line: a longer document is cut into
pieces, at a blank line, a line end, a sentence end or white space where one is near, and noted.
"""

import csv
import json
import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from unmask.errors import first_line
from unmask.registry import FORMATS
from unmask.text.decode import clean, decode, decompress, read_errors
from unmask.text.report import Report

MAX_DOCUMENT_CHARS = 1 << 20  # characters of one document
CUT_SEARCH_CHARS = 1 << 16  # characters before that limit in which a good place to cut is looked for
MAX_LINE_CHARS = 1 << 26  # characters of one JSON or csv line, which has to be read whole
MAX_FIELD_CHARS = 1 << 24  # characters of one csv field: the csv module keeps 4 bytes for each

Kind = Literal["text", "jsonl", "csv", "tsv", "parquet", "other"]  # other = a third party reads it
Mode = Literal["file", "paragraph", "line", "record"]

# A blank line may hold white space.
_SEPARATORS = {"file": None, "paragraph": re.compile(r"\n(?:[^\S\n]*\n)+"), "line": re.compile(r"\n")}
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？；…][”’」』）]*")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_MISSING = object()


@dataclass(slots=True)
class Document:
    text: str
    source: str
    line: int  # 1-based line at which it starts; for parquet the number of the record


@dataclass
class File:
    """What was found out about one file before it is read."""

    path: Path
    name: str  # how the user knows it
    size: int  # bytes on disk
    kind: Kind = "text"
    mode: Mode = "file"
    reason: str = ""  # reason for the mode or the column, for people
    encoding: str = "auto"  # "ascii": nothing else seen yet, so still undecided
    column: str = ""
    delimiter: str = ","
    quotes: bool = True  # csv fields may stand in quotes
    columns: tuple[str, ...] = ()  # of a csv or tsv file whose first line is data, and names none
    html: bool = False  # <br /> is a line break


class Reading:
    """One pass over one file. What goes wrong is noted in the report, not raised."""

    def __init__(self, file: File, report: Report):
        self.file, self.report = file, report
        self.before = report.bytes
        self.long = _Long(self)

    def note(self, kind: str, line: int, what: str, count: int = 1) -> None:
        self.report.add(kind, self.file.name, line, what, count)

    def documents(self) -> Iterator[Document]:
        try:
            with open(self.file.path, "rb") as raw:
                if self.file.kind == "text":
                    yield from self._cut(self._chunks(raw))
                else:
                    column = self.file.column
                    for line, record in self._records(raw, [column]):
                        value = record.get(column, _MISSING) if isinstance(record, dict) else record
                        yield from self._record(value, line)
        except read_errors() as error:
            self._damaged(error)
        self.report.bytes = self.before + self.file.size

    def records(self) -> Iterator[tuple[int, Any]]:
        """(line, record) of a file that has records: a dict, or in jsonl any value."""
        try:
            with open(self.file.path, "rb") as raw:
                yield from self._records(raw)
        except read_errors() as error:
            self._damaged(error)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines of a text file."""
        with open(self.file.path, "rb") as raw:
            yield from self._lines(self._chunks(raw))

    def document(self, text: str, line: int) -> Document | None:
        """`text` without white space around it, and the line where that starts; None when nothing is left."""
        body = text.strip()
        if not body:
            return None
        if text[0].isspace():
            line += text.count("\n", 0, len(text) - len(text.lstrip()))
        return Document(body, self.file.name, line)

    def _chunks(self, raw: BinaryIO) -> Iterator[str]:
        """Text up to the end or to damage, which ends it: what was read before is used."""
        try:
            for chunk in decode(decompress(raw), self.file.encoding, self.note):
                self.report.bytes = self.before + raw.tell()
                yield chunk
        except read_errors() as error:
            self._damaged(error)

    def _damaged(self, error: Exception) -> None:
        self.note("damaged_files", 0, str(error) or type(error).__name__)

    # --------------------------------------------------------------------------------------------------- text

    def _cut(self, chunks: Iterator[str]) -> Iterator[Document]:
        separator = _SEPARATORS[self.file.mode]
        rest, line = "", 1  # of the document that has not ended yet
        for chunk in chunks:
            text, done = rest + chunk, 0
            for match in separator.finditer(text) if separator else ():
                end, after = match.span()
                if end - done > MAX_DOCUMENT_CHARS or self.long.pieces:
                    yield from self.long.end(text[done:end], line)
                elif document := self.document(text[done:end], line):
                    yield document
                line += text.count("\n", done, after)
                done = after
            rest = text[done:]
            if len(rest) > MAX_DOCUMENT_CHARS:
                rest, line = yield from self.long.shorten(rest, line)
        yield from self.long.end(rest, line)

    # ------------------------------------------------------------------------------------------------ records

    def _record(self, value: Any, line: int) -> Iterator[Document]:
        if value is _MISSING:
            self.note("missing_values", line, f"no {self.file.column!r}")
        elif value is not None and not isinstance(value, str):
            self.note("not_text", line, f"{self.file.column!r} is {type(value).__name__}, not text: {value!r:.40}")
        else:
            text = (value or "").replace("\r\n", "\n").replace("\r", "\n")
            text = clean(text, line, self.note, "repaired_surrogates", "lone surrogates")
            if self.file.html:
                text = _BREAK.sub("\n", text)
            if text.strip():
                yield from self.long.end(text, line)
            else:
                self.note("empty_records", line, f"{self.file.column!r} is empty")

    def _records(self, raw: BinaryIO, columns: list[str] | None = None) -> Iterator[tuple[int, Any]]:
        """(line, record); of parquet, the `columns` that are wanted."""
        if self.file.kind == "other":
            return self.other()
        if self.file.kind == "parquet":
            return self._parquet(raw, columns)
        lines = self._lines(self._chunks(raw))
        return self._jsonl(lines) if self.file.kind == "jsonl" else self._csv(lines)

    def other(self) -> Iterator[tuple[int, Any]]:
        try:
            yield from enumerate(FORMATS[self.file.path.suffix[1:].lower()](self.file.path), 1)
        except (ValueError, KeyError) as error:
            raise OSError(f"{type(error).__name__}: {first_line(error)}") from None

    def _lines(self, chunks: Iterator[str]) -> Iterator[tuple[int, str]]:
        """Lines with their numbers; one that is too long to be held is left out."""
        number, size = 1, 0
        held: list[str] = []  # parts of a line that goes over chunks; `size` in all
        for chunk in chunks:
            *ended, tail = chunk.split("\n")
            for part in ended:
                if size:
                    size += len(part)
                    part = "".join([*held, part])
                    if size > MAX_LINE_CHARS:
                        self._too_long(number, size)
                        part = ""
                    held, size = [], 0
                yield number, part
                number += 1
            size += len(tail)
            held = [*held, tail] if size <= MAX_LINE_CHARS else []
        if size > MAX_LINE_CHARS:
            self._too_long(number, size)
        elif size:
            yield number, "".join(held)

    def _too_long(self, line: int, size: int) -> None:
        self.note("long_records", line, f"{size:,} characters, above the limit of {MAX_LINE_CHARS:,}")

    def _jsonl(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Any]]:
        for number, line in lines:
            if not line or line.isspace():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                self.note("bad_json", number, f"not JSON: {error}")
                continue
            yield number, record

    def _csv(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Any]]:
        last = 0  # line fed to the parser last, which reads no further than the record it gives back

        def feed() -> Iterator[str]:
            nonlocal last
            for last, line in lines:  # noqa: B007
                yield line + "\n"

        rows = csv_rows(feed(), self.file.delimiter, self.file.quotes)
        header: list[str] | None = list(self.file.columns) or None
        while True:
            line = last + 1
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                self.note("ragged_rows", line, f"skipped up to line {last}: {error}")
                continue
            if not row:
                continue
            if header is None:
                header = [name.strip() for name in row]
                continue
            if len(row) != len(header):
                usual = f"the other rows have {len(header)}" if self.file.columns else f"the header has {len(header)}"
                kind = "extra_fields" if len(row) > len(header) else "ragged_rows"
                self.note(kind, line, f"{len(row)} field{'s' * (len(row) > 1)}, {usual}")
            yield line, dict(zip(header, row))

    def _parquet(self, raw: BinaryIO, columns: list[str] | None) -> Iterator[tuple[int, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # Pages are read as they are needed: a row group may be larger than memory.
            table = pq.ParquetFile(raw, pre_buffer=False, buffer_size=1 << 20)
            total, number = table.metadata.num_rows, 0
            for batch in table.iter_batches(batch_size=64, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
                self.report.bytes = self.before + self.file.size * number // total
        except pa.ArrowException as error:
            raise OSError(str(error)) from None


class _Long:
    """A document longer than LONGEST, given out in pieces; noted when its end, so its length, is known."""

    def __init__(self, reading: Reading):
        self.reading = reading
        self.pieces = self.characters = self.line = 0

    def shorten(self, text: str, line: int) -> Generator[Document, None, tuple[str, int]]:
        """Give out pieces until what is left fits; return it and its line."""
        at = 0
        while len(text) - at > MAX_DOCUMENT_CHARS:
            if not self.pieces:
                self.line = line
            end = cut_point(text, at)
            if document := self.reading.document(text[at:end], line):
                yield document
            self.pieces += 1
            self.characters += end - at
            line += text.count("\n", at, end)
            at = end
        return text[at:], line

    def end(self, text: str, line: int) -> Iterator[Document]:
        """The rest of the document."""
        text, line = yield from self.shorten(text, line)
        if document := self.reading.document(text, line):
            yield document
        if self.pieces:
            size, unit = self.characters + len(text), self.reading.file.mode
            self.reading.note(
                "split_documents", self.line, f"{unit} of {size:,} characters, cut into {self.pieces + 1} pieces"
            )
            self.pieces = self.characters = 0


def cut_point(text: str, start: int) -> int:
    """Where a piece from `start` on ends: after a blank line, a line, a sentence, a word, or LONGEST."""
    limit = start + MAX_DOCUMENT_CHARS
    for separator in ("\n\n", "\n"):
        if (at := text.rfind(separator, limit - CUT_SEARCH_CHARS, limit)) >= 0:
            return at + len(separator)
    ends = [match.end() for match in _SENTENCE_END.finditer(text, limit - CUT_SEARCH_CHARS, limit)]
    if ends:
        return ends[-1]
    words = text[limit - CUT_SEARCH_CHARS : limit].rsplit(None, 1)
    return limit - len(words[1]) if len(words) == 2 else limit


def csv_rows(lines: Iterable[str], delimiter: str, quotes: bool) -> Iterator[list[str]]:
    # A limit of the whole process; 131,072 by default, which a long document passes.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    return csv.reader(lines, delimiter=delimiter, quoting=quoting)
