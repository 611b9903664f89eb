"""Input texts of a Predictor: one or a list, or files of texts."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.labels.records import Finding, is_table, open_source, parse_text, table_rows
from unmask.text.columns import TEXT_COLUMNS, map_columns

ROLES: Mapping[str, Sequence[str]] = {
    "text": TEXT_COLUMNS,
    "sense": ("sense", "label", "class", "category", "group"),
}


def is_batch(text: Any) -> bool:
    """Return whether `text` is a collection of texts or records, not a single one."""
    return isinstance(text, Iterable) and not isinstance(text, str | bytes | dict)


def as_texts(text: str | Iterable[str]) -> list[str]:
    """Return a list of texts. Raise UserError if an item is not a str."""
    if isinstance(text, bytes | Mapping) or not isinstance(text, Iterable):
        raise UserError(f"{text!r:.80} is {type(text).__name__}, not text", expected="a str or a list of str")
    texts = [text] if isinstance(text, str) else list(text)
    for item in texts:
        if not isinstance(item, str):
            raise UserError(f"{item!r:.80} is not text", expected="a str or a list of str")
    # A lone surrogate (from a shell argument that is not UTF-8) can be neither encoded nor printed.
    return [re.sub("[\ud800-\udfff]", "\ufffd", item) for item in texts]


def texts_in(value: Any) -> Iterator[str]:
    """Yield every str in a text, list or record.

    >>> list(texts_in({"query": "a", "passages": ["b", "c"], "n": 1}))
    ['a', 'b', 'c']
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts_in(part)


def describe_item(texts: list[str], number: int, noun: str = "text") -> str:
    """Return how error messages call the text with this index: "the text" or "text 2 of 5"."""
    return f"the {noun}" if len(texts) == 1 else f"{noun} {number + 1} of {len(texts)}"


def shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def named_files(items: Sequence[Any]) -> list[str]:
    """Return the paths if all items are files, or [] if they are texts. Raise UserError for the name of one missing file."""
    if items and all(isinstance(item, str | Path) and _is_file(item) for item in items):
        return [str(Path(item).expanduser()) for item in items]
    if len(items) == 1 and isinstance(items[0], str | Path) and _looks_like_file(str(items[0])):
        raise UserError(f"{items[0]}: no such file", expected="a text, or the path of an existing file")
    return []


def read_texts_or_files(items: list[str], column: str = "") -> tuple[list[str], list[str]]:
    """Return texts, and the sense or label of each, or [] unless all files have such a column.

    `items` are the texts, files (lines of a text file, or a column of a table), or `-` for the lines of standard input.
    """
    if items == ["-"]:
        return [line.rstrip("\r\n") for line in sys.stdin if line.strip()], []
    if not (files := named_files(items)):
        return as_texts(items), []
    contents = [_read_texts(file, column) for file in files]
    senses = [sense for _, senses in contents for sense in senses] if all(senses for _, senses in contents) else []
    return [text for texts, _ in contents for text in texts], senses


def _read_texts(file: str, column: str) -> tuple[list[str], list[str]]:
    findings: list[Finding] = []
    columns = {"text": column} if column else {}
    source = open_source(file, findings, columns=columns)
    if error := next((f for f in findings if f.error), None):
        raise UserError(str(error))
    if source.file_format == "text":
        return as_texts(line for _, line in source.lines if line.strip()), []
    names = map_columns(source.columns, ROLES, columns, ("text",), source.path)
    rows = list(table_rows(source, "a text file, or a csv, tsv, jsonl or parquet file with a column `text`"))
    texts = [parse_text(row.get(names["text"]), location, "text", findings) for location, row in rows]
    if error := next((f for f in findings if f.error), None):
        raise UserError(str(error))
    return texts, [str(row.get(names["sense"])) for _, row in rows] if "sense" in names else []


def _looks_like_file(text: str) -> bool:
    has_suffix = is_table(text) or text.lower().endswith(".txt")
    return len(text) < 500 and has_suffix and not any(map(str.isspace, text))


def _is_file(item: str | Path) -> bool:
    try:
        return Path(item).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # too long, or with a NUL character: not a file name
        return False
