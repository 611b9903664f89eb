"""Detect kind, encoding, text column and document boundaries of a file before it is read.

The reason for each choice is printed, so that a wrong guess is noticed before training.
"""

import io
import json
import re
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from unmask.errors import UserError, nearest
from unmask.recipe import DataRecipe
from unmask.registry import FORMATS
from unmask.text.columns import TEXT_COLUMNS, list_columns, normalize_name
from unmask.text.decode import (
    decode,
    decompress,
    detect_binary,
    detect_encoding,
    guess_utf16,
    normalize_encoding,
    read_errors,
    read_exactly,
)
from unmask.text.layout import CONLL_SUFFIXES, Layout, detect_layout, is_number, parse, quotes_are_text
from unmask.text.readers import File, Kind, Mode, Reading
from unmask.text.report import Report

SAMPLE_BYTES = 1 << 20  # read to detect columns and document boundaries
LABELED_SAMPLE_BYTES = 1 << 24  # the same for a labeled file, which must fit into memory
STDIN = "<stdin>"
SUPPORTED = "text, csv, tsv, jsonl, parquet; gz, zst, bz2 or xz of these"
SAMPLE_RECORDS = 200  # read to detect the text column
HEAD_BYTES = 1 << 16  # read to distinguish binary files from text
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
KIND_BY_SUFFIX: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}

# One document per file: at least 3 files with a median of at most 256 KiB, or at least 20 with a median of at most 2 MiB.
SHORT_BYTES, MIN_SHORT_FILES = 1 << 18, 3
BOOK_BYTES, MIN_BOOKS = 1 << 21, 20


def probe(path: Path, name: str, settings: DataRecipe, html: bool = False) -> File:
    """Detect the format of a file for pre-training from its first bytes. Raise UserError, starting with its name, if it cannot be used."""
    if has_plugin_reader(name):
        return _probe_plugin(path, name, settings.text_column)
    suffix = file_suffix(name)
    guess = suffix == ".json" or name == STDIN  # may have one record per line
    size = SAMPLE_BYTES if suffix in KIND_BY_SUFFIX or guess else HEAD_BYTES
    file, data = read_head(path, name, settings.encoding, size)
    file.html = html
    if data is None:
        return _probe_parquet(file, settings.text_column)
    if not data.strip():  # the reader reports that it is empty
        return file
    file.kind = KIND_BY_SUFFIX.get(suffix, "text")
    if file.kind == "text" and not guess:
        return file
    sample = FileHead(data, file.encoding)
    if file.kind == "parquet":
        raise UserError(f"{name}: not a parquet file, despite its suffix", expected=SUPPORTED)
    if guess and sample.text.lstrip().startswith("{") and sample.records():
        file.kind = "jsonl"
    elif suffix == ".json":
        hint = f"jq -c '.[]' {name} > {path.stem}.jsonl"
        raise UserError(f"{name}: this is one JSON value, not one record per line", expected=SUPPORTED, hint=hint)
    if file.kind != "text":
        _probe_records(file, sample, settings.text_column)
    return file


def probe_labeled(path: Path, name: str, encoding: str, chosen_columns: Collection[str] = ()) -> tuple[File, Layout]:
    """Detect the format of a labeled file from its first bytes. `chosen_columns`: columns named by the user."""
    if has_plugin_reader(name):
        return _probe_plugin(path, name, ""), Layout("table")
    suffix = file_suffix(name)
    file, data = read_head(path, name, encoding, LABELED_SAMPLE_BYTES)
    if data is None:
        return _probe_parquet(file, ""), Layout("table")
    sample = FileHead(data, file.encoding, LABELED_SAMPLE_BYTES)
    if suffix == ".parquet":
        raise UserError(f"{name}: not a parquet file, despite its suffix", expected=SUPPORTED)

    layout = (
        Layout("text") if suffix in CONLL_SUFFIXES else detect_layout(sample.text, suffix, chosen_columns, sample.whole)
    )
    if suffix == ".json" and layout.kind == "text" and sample.text.strip():
        layout = Layout("json")  # its reader reports the error
    if KIND_BY_SUFFIX.get(suffix) == "jsonl" and layout.kind == "text" and sample.text.strip():
        raise UserError(f"{name}: no line is a JSON object", expected='{"text": "…"} on each line')
    if layout.kind == "table":
        file.kind, file.delimiter = "tsv" if layout.separator == "\t" else "csv", layout.separator
        file.quotes, file.columns = layout.quotes, layout.columns
    elif layout.kind == "jsonl":
        file.kind = "jsonl"
    return file, layout


def read_head(path: Path, name: str, encoding: str, size: int) -> tuple[File, bytes | None]:
    """Return a file with its encoding, and its first `size` bytes, decompressed, or None for parquet."""
    try:
        with open(path, "rb") as raw:
            file = File(path, name, path.stat().st_size, encoding=normalize_encoding(encoding))
            if raw.read(4) == b"PAR1":
                return file, None
            raw.seek(0)
            stream = decompress(raw)
            head = read_exactly(stream, HEAD_BYTES)
            if file.encoding == "auto":
                if reason := detect_binary(head):
                    codec = guess_utf16(head) if "UTF-16" in reason else ""
                    iconv = f"iconv -f {codec.replace('16-', '16')} {name}"
                    hint = (
                        f"pass --encoding {codec} (applies to all text files), or run {iconv}"
                        if codec
                        else "convert it to text"
                    )
                    raise UserError(f"{name}: not text but {reason}", expected=SUPPORTED, hint=hint)
                file.encoding = detect_encoding(head)
            return file, head + read_exactly(stream, size - HEAD_BYTES) if len(head) == HEAD_BYTES else head
    except read_errors() as error:
        raise UserError(f"{name}: cannot be read: {error}") from None


def file_suffix(name: str) -> str:
    """
    >>> file_suffix("data/Train.CSV.gz")
    '.csv'
    """
    return Path(name.lower().removesuffix(_compression(name))).suffix


def has_plugin_reader(name: str) -> bool:
    """Return whether an installed plugin reads files with this suffix. Built-in suffixes have precedence."""
    suffix = Path(name).suffix.lower()
    return suffix not in {*KIND_BY_SUFFIX, *COMPRESSED, *CONLL_SUFFIXES, ".json", ".txt", ""} and suffix[1:] in FORMATS


class FileHead:
    """The start of a file as text, without the last line if it may be incomplete."""

    def __init__(self, data: bytes, encoding: str, size: int = SAMPLE_BYTES):
        text = "".join(decode(io.BytesIO(data), encoding, lambda *_: None))
        self.whole = len(data) < size
        self.text = text if self.whole or "\n" not in text else text[: text.rindex("\n")]

    def records(self) -> list[object]:
        """Return the JSON objects and strings among the lines."""
        records: list[object] = []
        for line in self.text.split("\n"):
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
        return [record for record in records if isinstance(record, dict | str)]


def _compression(name: str) -> str:
    return next((suffix for suffix in COMPRESSED if name.lower().endswith(suffix)), "")


# ---------------------------------------------------------------------------------------------------- columns


def _probe_records(file: File, sample: FileHead, column: str) -> None:
    file.mode = "record"
    if file.kind == "jsonl":
        records = sample.records()
        if not records and sample.whole:
            raise UserError(f"{file.name}: no line is a JSON object", expected='{"text": "…"} on each line')
        objects = [record for record in records if isinstance(record, dict)]
        if not objects:  # bare strings, or a first record longer than the sample
            file.column = column
            return
        columns, texts = _text_columns(objects)
    else:
        lines = sample.text.split("\n")
        file.delimiter = "\t" if file.kind == "tsv" else _delimiter(lines[0])
        file.quotes = file.kind == "csv" or not quotes_are_text(lines)
        rows = parse(lines, file.delimiter, file.quotes, SAMPLE_RECORDS)
        if not rows:
            expected = "a first line with column names, such as text,label"
            raise UserError(f"{file.name}: there is no header line", expected=expected)
        columns = [name.strip() for name in rows[0]]
        texts = {
            name
            for i, name in enumerate(columns)
            if any(len(row) > i and row[i].strip() and not is_number(row[i]) for row in rows[1:])
        }
    file.column, file.reason = choose_column(file.name, columns, texts, column)


def _text_columns(records: Sequence[dict[str, Any]]) -> tuple[list[str], set[str]]:
    """Return the columns of records, and the set of those that contain text."""
    texts = {key for record in records for key, value in record.items() if isinstance(value, str)}
    return list(dict.fromkeys(key for record in records for key in record)), texts


def _probe_parquet(file: File, column: str) -> File:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.ParquetFile(file.path).schema_arrow
    except pa.ArrowException as error:
        raise UserError(f"{file.name}: cannot be read: {error}") from None
    texts = {field.name for field in schema if _is_text_type(field.type)}
    file.kind, file.mode, file.encoding = "parquet", "record", "utf-8"
    file.column, file.reason = choose_column(file.name, schema.names, texts, column)
    return file


def _probe_plugin(path: Path, name: str, column: str) -> File:
    file = File(path, name, path.stat().st_size, "other", "record", encoding="utf-8")
    try:
        records = [record for _, record in islice(Reading(file, Report()).plugin_records(), SAMPLE_RECORDS)]
    except read_errors() as error:
        raise UserError(f"{name}: cannot be read: {error}") from None
    columns, texts = _text_columns(records)
    file.column, file.reason = choose_column(name, columns, texts, column) if columns else (column, "")
    return file


def _is_text_type(kind: object) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type  # type: ignore[attr-defined]
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def choose_column(file: str, columns: Sequence[str], texts: set[str], wanted: str) -> tuple[str, str]:
    """Return (column, reason): the wanted column or, if "text" does not exist, the only text column.

    >>> choose_column("a.csv", ["id", "review"], {"review"}, "text")
    ('review', "there is no column 'text', and 'review' is the only text column")
    """
    if wanted in columns or not wanted:  # "": the whole record is the text
        return wanted, ""
    if wanted == "text":
        known = [name for name in columns if normalize_name(name) in TEXT_COLUMNS]
        guess = known if len(known) == 1 else [name for name in columns if name in texts]
        if len(guess) == 1:
            return guess[0], f"there is no column 'text', and {guess[0]!r} is the only text column"
    raise UserError(
        f"{file}: no column {wanted!r}{nearest(wanted, list(columns))}",
        expected=list_columns(columns) + " (from the header line)" * file.endswith(("csv", "tsv")),
        hint="pass --text-column NAME",
    )


def _delimiter(header: str) -> str:
    """Return the separator of a csv file, given its first line: a comma if there is one, else the most frequent candidate.

    >>> _delimiter("id;text"), _delimiter("text")
    (';', ',')
    """
    return "," if "," in header else max(",;\t|", key=header.count)


# -------------------------------------------------------------------------------------------------- documents


def choose_modes(files: list[File], wanted: str, reason: str) -> None:
    """Set the document boundary of each text file. `wanted`: "auto" or a mode; `reason`: stored if it is not "auto"."""
    texts = [file for file in files if file.kind == "text"]
    if wanted == "record" and texts:
        raise UserError(
            f"{texts[0].name}: plain text has no records",
            expected="file, paragraph, line for text; record for csv, tsv, jsonl, parquet",
            hint="pass --document-boundary auto",
        )
    if wanted != "auto":
        for file in files:
            if file.kind == "text":
                file.mode, file.reason = wanted, reason  # type: ignore[assignment]
            elif wanted != "record":
                ignored = f"{file.kind} has records; --document-boundary {wanted} is only for text"
                file.reason = f"{file.reason}; {ignored}" if file.reason else ignored
        return
    sizes = [file.size * (3 if _compression(file.name) else 1) for file in texts]
    median_size = median(sizes) if sizes else 0
    many_short = len(texts) >= MIN_SHORT_FILES and median_size <= SHORT_BYTES
    books = len(texts) >= MIN_BOOKS and median_size <= BOOK_BYTES
    for file, size in zip(texts, sizes):
        if (many_short or books) and size <= BOOK_BYTES:
            file.mode, file.reason = "file", f"{len(texts)} text files of about {median_size / 1000:,.0f} kB"
        else:
            with open(file.path, "rb") as raw:
                sample = FileHead(read_exactly(decompress(raw), SAMPLE_BYTES), file.encoding)
            file.mode, file.reason = text_mode(sample.text)


_TERMINAL = re.compile(r"[.!?。！？…;；:：][\"'”’)\]」』）]*$")


def text_mode(text: str) -> tuple[Mode, str]:
    """Return (mode, reason): the document boundary in a text, detected from its blank lines and its lines.

    >>> text_mode("One text.\\nStill it.\\n\\nAnother text.\\n\\nA third.")
    ('paragraph', 'blank lines separate them')
    >>> text_mode("A sentence.\\nAnother one.\\nA third one.")
    ('line', 'no blank lines, and the lines are sentences or paragraphs')
    """
    lines = [line.strip() for line in text.strip().split("\n")]
    filled = [line for line in lines if line]
    blocks = sum(bool(line) and not before for before, line in zip(["", *lines], lines))
    # One stray blank line in thousands of lines does not make two documents.
    if blocks >= 2 and len(filled) <= blocks * (200 if blocks >= 3 else 20):
        return "paragraph", "blank lines separate them"
    if len(filled) <= 1:
        return "file", "one line"
    # Wrapped prose: lines of similar width that mostly end inside a sentence and continue in lower case.
    width = sorted(map(len, filled))[int(len(filled) * 0.95)]
    full_lines = sum(len(line) >= 0.75 * width for line in filled) / len(filled)
    sentence_ends = sum(bool(_TERMINAL.search(line)) for line in filled) / len(filled)
    lower_starts = sum(line[0].islower() for line in filled) / len(filled)
    if width <= 120 and full_lines >= 0.6 and sentence_ends < 0.5 and lower_starts >= 0.3:
        return "file", "no blank lines, and the lines are wrapped prose"
    return "line", "no blank lines, and the lines are sentences or paragraphs"
