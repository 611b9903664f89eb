"""Detect what a file is before it is read: kind, encoding, text column and document boundaries.

Each choice has a reason, which is printed, so that a wrong guess is seen before training.
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

SAMPLE = 1 << 20  # bytes looked at to find columns and documents
LABELLED = 1 << 24  # … of a labelled file, which is read whole anyway
STDIN = "<stdin>"
VALID = "text, csv, tsv, jsonl, parquet; gz, zst, bz2 or xz of these"
RECORDS = 200  # … and rows, where bytes say nothing
HEAD_BYTES = 1 << 16  # bytes looked at to tell binary from text
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
KIND_BY_SUFFIX: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}

SHORT, MANY = 1 << 18, 3  # at least MANY files with a median of at most SHORT bytes: one document per file …
BOOK, LIBRARY = 1 << 21, 20  # … and also at least LIBRARY files with a median of at most BOOK bytes


def probe(path: Path, name: str, settings: DataRecipe, html: bool = False) -> File:
    """Look at the beginning of a text for pre-training. UserError, beginning with its name, when it cannot be used."""
    if is_other(name):
        return _probe_other(path, name, settings.text_column)
    ending = file_suffix(name)
    guess = ending == ".json" or name == STDIN  # may be a record per line
    file, data = begin(path, name, settings.encoding, SAMPLE if ending in KIND_BY_SUFFIX or guess else HEAD_BYTES)
    file.html = html
    if data is None:
        return _probe_parquet(file, settings.text_column)
    if not data.strip():  # no columns to find; the reader will say that it is empty
        return file
    file.kind = KIND_BY_SUFFIX.get(ending, "text")
    if file.kind == "text" and not guess:
        return file
    sample = Beginning(data, file.encoding)
    if file.kind == "parquet":
        raise UserError(f"{name}: not a parquet file, despite its suffix", expected=VALID)
    if guess and sample.text.lstrip().startswith("{") and sample.records():
        file.kind = "jsonl"
    elif ending == ".json":
        hint = f"jq -c '.[]' {name} > {path.stem}.jsonl"
        raise UserError(f"{name}: this is one JSON value, not one record per line", expected=VALID, hint=hint)
    if file.kind != "text":
        _probe_records(file, sample, settings.text_column)
    return file


def probe_labelled(path: Path, name: str, encoding: str, given: Collection[str] = ()) -> tuple[File, Layout]:
    """Look at the beginning of a labelled file, whatever its name. `given`: columns that the user named."""
    if is_other(name):
        return _probe_other(path, name, ""), Layout("table")
    ending = file_suffix(name)
    file, data = begin(path, name, encoding, LABELLED)
    if data is None:
        return _probe_parquet(file, ""), Layout("table")
    sample = Beginning(data, file.encoding, LABELLED)
    if ending == ".parquet":
        raise UserError(f"{name}: not a parquet file, despite its suffix", expected=VALID)

    layout = Layout("text") if ending in CONLL_SUFFIXES else detect_layout(sample.text, ending, given, sample.whole)
    if ending == ".json" and layout.kind == "text" and sample.text.strip():
        layout = Layout("json")  # whose reader says what is wrong with it
    if KIND_BY_SUFFIX.get(ending) == "jsonl" and layout.kind == "text" and sample.text.strip():
        raise UserError(f"{name}: no line is a JSON object", expected='{"text": "…"} on each line')
    if layout.kind == "table":
        file.kind, file.delimiter = "tsv" if layout.separator == "\t" else "csv", layout.separator
        file.quotes, file.columns = layout.quotes, layout.columns
    elif layout.kind == "jsonl":
        file.kind = "jsonl"
    return file, layout


def begin(path: Path, name: str, encoding: str, size: int) -> tuple[File, bytes | None]:
    """A file with its encoding, and its first `size` bytes; None of parquet."""
    try:
        with open(path, "rb") as raw:
            file = File(path, name, path.stat().st_size, encoding=normalize_encoding(encoding))
            if raw.read(4) == b"PAR1":
                return file, None
            raw.seek(0)
            stream = decompress(raw)
            head = read_exactly(stream, HEAD_BYTES)
            if file.encoding == "auto":
                if what := detect_binary(head):
                    codec = guess_utf16(head) if "UTF-16" in what else ""
                    hint = (
                        f"--encoding {codec} (of all text files), or iconv -f {codec.replace('16-', '16')} {name}"
                        if codec
                        else None
                    )
                    raise UserError(f"{name}: not text but {what}", expected=VALID, hint=hint)
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


def is_other(name: str) -> bool:
    """Whether a third party's package reads files that end so; endings that are known here stay ours."""
    ending = Path(name).suffix.lower()
    return ending not in {*KIND_BY_SUFFIX, *COMPRESSED, *CONLL_SUFFIXES, ".json", ".txt", ""} and ending[1:] in FORMATS


class Beginning:
    """The beginning of a file as text, without a last line that may be cut off."""

    def __init__(self, data: bytes, encoding: str, size: int = SAMPLE):
        text = "".join(decode(io.BytesIO(data), encoding, lambda *_: None))
        self.whole = len(data) < size
        self.text = text if self.whole or "\n" not in text else text[: text.rindex("\n")]

    def records(self) -> list[object]:
        """The objects and strings among the lines that are JSON."""
        records: list[object] = []
        for line in self.text.split("\n"):
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
        return [record for record in records if isinstance(record, dict | str)]


def _compression(name: str) -> str:
    return next((ending for ending in COMPRESSED if name.lower().endswith(ending)), "")


# ---------------------------------------------------------------------------------------------------- columns


def _probe_records(file: File, sample: Beginning, column: str) -> None:
    file.mode = "record"
    if file.kind == "jsonl":
        records = sample.records()
        if not records and sample.whole:
            raise UserError(f"{file.name}: no line is a JSON object", expected='{"text": "…"} on each line')
        objects = [record for record in records if isinstance(record, dict)]
        if not objects:  # bare strings, or a first record longer than the sample
            file.column = column
            return
        columns, texts = _columns(objects)
    else:
        lines = sample.text.split("\n")
        file.delimiter = "\t" if file.kind == "tsv" else _delimiter(lines[0])
        file.quotes = file.kind == "csv" or not quotes_are_text(lines)
        rows = parse(lines, file.delimiter, file.quotes, RECORDS)
        if not rows:
            raise UserError(f"{file.name}: there is no header line", expected="text,label in the first line")
        columns = [name.strip() for name in rows[0]]
        texts = {
            name
            for i, name in enumerate(columns)
            if any(len(row) > i and row[i].strip() and not is_number(row[i]) for row in rows[1:])
        }
    file.column, file.reason = choose_column(file.name, columns, texts, column)


def _columns(records: Sequence[dict[str, Any]]) -> tuple[list[str], set[str]]:
    """The columns of records, and those of them that hold text."""
    texts = {key for record in records for key, value in record.items() if isinstance(value, str)}
    return list(dict.fromkeys(key for record in records for key in record)), texts


def _probe_parquet(file: File, column: str) -> File:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.ParquetFile(file.path).schema_arrow
    except pa.ArrowException as error:
        raise UserError(f"{file.name}: cannot be read: {error}") from None
    texts = {field.name for field in schema if _holds_text(field.type)}
    file.kind, file.mode, file.encoding = "parquet", "record", "utf-8"
    file.column, file.reason = choose_column(file.name, schema.names, texts, column)
    return file


def _probe_other(path: Path, name: str, column: str) -> File:
    file = File(path, name, path.stat().st_size, "other", "record", encoding="utf-8")
    try:
        records = [record for _, record in islice(Reading(file, Report()).other(), RECORDS)]
    except read_errors() as error:
        raise UserError(f"{name}: cannot be read: {error}") from None
    columns, texts = _columns(records)
    file.column, file.reason = choose_column(name, columns, texts, column) if columns else (column, "")
    return file


def _holds_text(kind: object) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type  # type: ignore[attr-defined]
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def choose_column(file: str, columns: Sequence[str], texts: set[str], wanted: str) -> tuple[str, str]:
    """(column, reason). The one that was asked for; for an absent "text" the only one that looks like it.

    >>> choose_column("a.csv", ["id", "review"], {"review"}, "text")
    ('review', "there is no column 'text', and 'review' is the only text column")
    """
    if wanted in columns or not wanted:  # none: the whole record is asked for
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
    """The separator of a csv file, by its first line; a comma unless there is none.

    >>> _delimiter("id;text"), _delimiter("text")
    (';', ',')
    """
    return "," if "," in header else max(",;\t|", key=header.count)


# -------------------------------------------------------------------------------------------------- documents


def choose_modes(files: list[File], wanted: str, why: str) -> None:
    """How each text file falls into documents, `why` if it is `wanted` so; records stay records."""
    texts = [file for file in files if file.kind == "text"]
    if wanted == "record" and texts:
        raise UserError(
            f"{texts[0].name}: plain text has no records",
            expected="file, block, line for text; record for csv, tsv, jsonl, parquet",
            hint="--document-boundary auto",
        )
    if wanted != "auto":
        for file in files:
            if file.kind == "text":
                file.mode, file.reason = wanted, why  # type: ignore[assignment]
            elif wanted != "record":
                unheard = f"{file.kind} has records; documents={wanted} is for text only"
                file.reason = f"{file.reason}; {unheard}" if file.reason else unheard
        return
    sizes = [file.size * (3 if _compression(file.name) else 1) for file in texts]
    middle = median(sizes) if sizes else 0
    short = len(texts) >= MANY and middle <= SHORT
    books = len(texts) >= LIBRARY and middle <= BOOK
    for file, size in zip(texts, sizes):
        if (short or books) and size <= BOOK:
            file.mode, file.reason = "file", f"{len(texts)} text files of about {middle / 1000:,.0f} kB"
        else:
            with open(file.path, "rb") as raw:
                sample = Beginning(read_exactly(decompress(raw), SAMPLE), file.encoding)
            file.mode, file.reason = text_mode(sample.text)


_TERMINAL = re.compile(r"[.!?。！？…;；:：][\"'”’)\]」』）]*$")


def text_mode(text: str) -> tuple[Mode, str]:
    """How a text on its own falls into documents, by its blank lines and its lines.

    >>> text_mode("One text.\\nStill it.\\n\\nAnother text.\\n\\nA third.")
    ('paragraph', 'blank lines stand between them')
    >>> text_mode("A sentence.\\nAnother one.\\nA third one.")
    ('line', 'no blank lines, and the lines are sentences or paragraphs')
    """
    lines = [line.strip() for line in text.strip().split("\n")]
    filled = [line for line in lines if line]
    blocks = sum(bool(line) and not before for before, line in zip(["", *lines], lines))
    # One stray blank line in thousands of lines does not make two documents.
    if blocks >= 2 and len(filled) <= blocks * (200 if blocks >= 3 else 20):
        return "paragraph", "blank lines stand between them"
    if len(filled) <= 1:
        return "file", "one line"
    # Wrapped prose: lines of about one width that do not end where sentences do and go on in lower case.
    width = sorted(map(len, filled))[int(len(filled) * 0.95)]
    full = sum(len(line) >= 0.75 * width for line in filled) / len(filled)
    ending = sum(bool(_TERMINAL.search(line)) for line in filled) / len(filled)
    going_on = sum(line[0].islower() for line in filled) / len(filled)
    if width <= 120 and full >= 0.6 and ending < 0.5 and going_on >= 0.3:
        return "file", "no blank lines, and the lines are wrapped prose"
    return "line", "no blank lines, and the lines are sentences or paragraphs"
