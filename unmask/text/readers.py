"""Read a file into documents: text split by file, paragraph or line; records of csv, tsv, jsonl and parquet.

Memory does not depend on the length of a file or line. Documents with more than 2**20 characters are split, preferably at a blank
line, else at the end of a line, sentence or word, and reported.
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

MAX_DOCUMENT_CHARS = 1 << 20
SPLIT_SEARCH_CHARS = 1 << 16  # before that limit, in which a good position to split is searched
MAX_LINE_CHARS = 1 << 26  # maximum of a JSON or csv line, which must fit into memory
MAX_FIELD_CHARS = 1 << 24  # maximum of a csv field; the csv module needs 4 bytes per character

Kind = Literal["text", "jsonl", "csv", "tsv", "parquet", "other"]  # other: read by a plugin
Mode = Literal["file", "paragraph", "line", "record"]

# A blank line may contain white space.
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
    """Detected properties of a file, before it is read."""

    path: Path
    name: str  # as given by the user, for messages
    size: int  # bytes on disk
    kind: Kind = "text"
    mode: Mode = "file"
    reason: str = ""  # why this mode or column was chosen, for display
    encoding: str = "auto"  # "ascii": only ASCII seen so far, so still undecided
    column: str = ""
    delimiter: str = ","
    quotes: bool = True  # csv fields may be quoted
    columns: tuple[str, ...] = ()  # column names of a csv or tsv file without a header
    html: bool = False  # <br /> is a line break


class Reading:
    """One pass over a file. Problems are added to the report, not raised."""

    def __init__(self, file: File, report: Report):
        self.file, self.report = file, report
        self.bytes_before = report.bytes
        self.splitter = _DocumentSplitter(self)

    def note(self, kind: str, line: int, message: str, count: int = 1) -> None:
        self.report.add(kind, self.file.name, line, message, count)

    def documents(self) -> Iterator[Document]:
        try:
            with open(self.file.path, "rb") as raw:
                if self.file.kind == "text":
                    yield from self._split_text(self._chunks(raw))
                else:
                    column = self.file.column
                    for line, record in self._records(raw, [column]):
                        value = record.get(column, _MISSING) if isinstance(record, dict) else record
                        yield from self._record_documents(value, line)
        except read_errors() as error:
            self._report_damage(error)
        self.report.bytes = self.bytes_before + self.file.size

    def records(self) -> Iterator[tuple[int, Any]]:
        """Yield (line, record) of a file with records. A record is a dict, or any JSON value for jsonl."""
        try:
            with open(self.file.path, "rb") as raw:
                yield from self._records(raw)
        except read_errors() as error:
            self._report_damage(error)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield (number, line) of a text file."""
        with open(self.file.path, "rb") as raw:
            yield from self._lines(self._chunks(raw))

    def document(self, text: str, line: int) -> Document | None:
        """Return a document with the stripped text and the line on which it starts, or None if it is empty."""
        body = text.strip()
        if not body:
            return None
        if text[0].isspace():
            line += text.count("\n", 0, len(text) - len(text.lstrip()))
        return Document(body, self.file.name, line)

    def _chunks(self, raw: BinaryIO) -> Iterator[str]:
        """Yield decoded text up to the end, or up to a damaged part, which is reported."""
        try:
            for chunk in decode(decompress(raw), self.file.encoding, self.note):
                self.report.bytes = self.bytes_before + raw.tell()
                yield chunk
        except read_errors() as error:
            self._report_damage(error)

    def _report_damage(self, error: Exception) -> None:
        self.note("damaged_files", 0, str(error) or type(error).__name__)

    # --------------------------------------------------------------------------------------------------- text

    def _split_text(self, chunks: Iterator[str]) -> Iterator[Document]:
        separator = _SEPARATORS[self.file.mode]
        rest, line = "", 1  # text and first line of the incomplete document
        for chunk in chunks:
            text, done = rest + chunk, 0
            for match in separator.finditer(text) if separator else ():
                end, after = match.span()
                if end - done > MAX_DOCUMENT_CHARS or self.splitter.parts:
                    yield from self.splitter.finish(text[done:end], line)
                elif document := self.document(text[done:end], line):
                    yield document
                line += text.count("\n", done, after)
                done = after
            rest = text[done:]
            if len(rest) > MAX_DOCUMENT_CHARS:
                rest, line = yield from self.splitter.split(rest, line)
        yield from self.splitter.finish(rest, line)

    # ------------------------------------------------------------------------------------------------ records

    def _record_documents(self, value: Any, line: int) -> Iterator[Document]:
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
                yield from self.splitter.finish(text, line)
            else:
                self.note("empty_records", line, f"{self.file.column!r} is empty")

    def _records(self, raw: BinaryIO, columns: list[str] | None = None) -> Iterator[tuple[int, Any]]:
        """Return an iterator of (line, record). `columns`: to read from a parquet file; None = all."""
        if self.file.kind == "other":
            return self.plugin_records()
        if self.file.kind == "parquet":
            return self._parquet(raw, columns)
        lines = self._lines(self._chunks(raw))
        return self._jsonl(lines) if self.file.kind == "jsonl" else self._csv(lines)

    def plugin_records(self) -> Iterator[tuple[int, Any]]:
        try:
            yield from enumerate(FORMATS[self.file.path.suffix[1:].lower()](self.file.path), 1)
        except (ValueError, KeyError) as error:
            raise OSError(f"{type(error).__name__}: {first_line(error)}") from None

    def _lines(self, chunks: Iterator[str]) -> Iterator[tuple[int, str]]:
        """Yield (number, line). Lines above MAX_LINE_CHARS are reported and yielded as ""."""
        number, size = 1, 0
        buffered: list[str] = []  # parts of a line that spans chunks, `size` characters in total
        for chunk in chunks:
            *ended, tail = chunk.split("\n")
            for part in ended:
                if size:
                    size += len(part)
                    part = "".join([*buffered, part])
                    if size > MAX_LINE_CHARS:
                        self._report_long_line(number, size)
                        part = ""
                    buffered, size = [], 0
                yield number, part
                number += 1
            size += len(tail)
            buffered = [*buffered, tail] if size <= MAX_LINE_CHARS else []
        if size > MAX_LINE_CHARS:
            self._report_long_line(number, size)
        elif size:
            yield number, "".join(buffered)

    def _report_long_line(self, line: int, size: int) -> None:
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
        last = 0  # last line read by the parser, which does not read ahead of the record that it returns

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
            # Read pages on demand: a row group may be larger than memory.
            table = pq.ParquetFile(raw, pre_buffer=False, buffer_size=1 << 20)
            total, number = table.metadata.num_rows, 0
            for batch in table.iter_batches(batch_size=64, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
                self.report.bytes = self.bytes_before + self.file.size * number // total
        except pa.ArrowException as error:
            raise OSError(str(error)) from None


class _DocumentSplitter:
    """Splits documents longer than MAX_DOCUMENT_CHARS. A split is reported at the end of the document, when its length is known."""

    def __init__(self, reading: Reading):
        self.reading = reading
        self.parts = self.characters = self.line = 0

    def split(self, text: str, line: int) -> Generator[Document, None, tuple[str, int]]:
        """Yield parts until the rest fits into one document; return the rest and its line."""
        start = 0
        while len(text) - start > MAX_DOCUMENT_CHARS:
            if not self.parts:
                self.line = line
            end = split_position(text, start)
            if document := self.reading.document(text[start:end], line):
                yield document
            self.parts += 1
            self.characters += end - start
            line += text.count("\n", start, end)
            start = end
        return text[start:], line

    def finish(self, text: str, line: int) -> Iterator[Document]:
        """Yield the last parts of the document, and report it if it was split."""
        text, line = yield from self.split(text, line)
        if document := self.reading.document(text, line):
            yield document
        if self.parts:
            size, unit = self.characters + len(text), self.reading.file.mode
            self.reading.note(
                "split_documents", self.line, f"{unit} of {size:,} characters, split into {self.parts + 1} documents"
            )
            self.parts = self.characters = 0


def split_position(text: str, start: int) -> int:
    """Return where to split the text from `start` on: after a blank line, line, sentence or word, or at MAX_DOCUMENT_CHARS."""
    limit = start + MAX_DOCUMENT_CHARS
    for separator in ("\n\n", "\n"):
        if (position := text.rfind(separator, limit - SPLIT_SEARCH_CHARS, limit)) >= 0:
            return position + len(separator)
    ends = [match.end() for match in _SENTENCE_END.finditer(text, limit - SPLIT_SEARCH_CHARS, limit)]
    if ends:
        return ends[-1]
    words = text[limit - SPLIT_SEARCH_CHARS : limit].rsplit(None, 1)
    return limit - len(words[1]) if len(words) == 2 else limit


def csv_rows(lines: Iterable[str], delimiter: str, quotes: bool) -> Iterator[list[str]]:
    # This limit is global; the default of 131,072 is too low for long documents.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    return csv.reader(lines, delimiter=delimiter, quoting=quoting)
