"""Detect the layout of a labeled file from its content: lines of text, JSON, or a table.

A table has a separator, and optionally quotes and a header. The suffix .csv or .tsv only says that the file is a table. With any
other suffix, the content decides: nearly all lines have the same number of fields. As prose has commas too, separators other than
tabs also need column names in the first line or a column of labels. Words with tags (CoNLL) and judgments (TREC) are lines of text
here, and are split by their own readers.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from unmask.text.columns import KNOWN_COLUMNS, normalize_name
from unmask.text.readers import csv_rows

CONLL_SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes", ".bmes", ".ner")  # one word per line
SAMPLE_ROWS = 2_000
SEPARATORS = (",", ";", "\t", "|")
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
MIN_REGULAR_TABS = 0.8  # fraction of lines with the most common number of fields, in a table separated by tabs
MIN_REGULAR_OTHER = 0.95  # … by other separators, which also occur in prose
MIN_LABEL_ROWS = 10  # rows needed to recognize a column of labels
MAX_NAME_WORDS, MAX_NAME_CHARS = 4, 12  # a cell with more words or Chinese characters is a text, not a column name
ENTITY_TAG = re.compile(r"O|[BIESLUMW](-\S+)?")
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"(?!")')
_CHINESE = re.compile("[\u4e00-\u9fff]")

Row = list[str]


@dataclass(frozen=True)
class Layout:
    kind: Literal["text", "json", "jsonl", "table"]
    separator: str = ","
    quotes: bool = True
    columns: tuple[str, ...] = ()  # "1", "2", … of a table without a header
    reason: str = ""  # why the first line is data, or why the layout is ambiguous
    ambiguous: bool = False  # read as text, but may be a table


def detect_layout(text: str, suffix: str, chosen_columns: Collection[str] = (), whole: bool = True) -> Layout:
    """Return the layout of a file that starts with `text`. `chosen_columns`: columns named by the user; `whole`: `text` is the whole file.

    >>> detect_layout("text\\tlabel\\nso good\\tpos\\n", ".txt")
    Layout(kind='table', separator='\\t', quotes=True, columns=(), reason='', ambiguous=False)
    >>> detect_layout("Yes, he said, and left.\\nShe stayed, alone.\\n", ".txt").kind
    'text'
    """
    if kind := _json_kind(text, suffix, whole):
        return Layout(kind)
    lines = text.split("\n")
    named = suffix in (".csv", ".tsv")
    if is_conll_or_trec(lines, named):
        return Layout("text")
    unquoted = "\t" in text and quotes_are_text(lines)
    if named:
        separator = _separator(lines, "\t" if suffix == ".tsv" else ",", unquoted)
    else:
        verdicts = {s: _table_verdict(lines, s, unquoted) for s in ("\t", ",", ";", "|") if s in text}
        chosen = next((s for s, verdict in verdicts.items() if verdict == "table"), None)
        if chosen is None:
            unsure = next((s for s, verdict in verdicts.items() if verdict == "unsure"), None)
            name = SEPARATOR_NAMES.get(unsure or "")
            reason = f"most lines have {name}, as in a table, but there is no header line" if unsure else ""
            return Layout("text", reason=reason, ambiguous=unsure is not None)
        separator = chosen
    quotes = separator != "\t" or not unquoted
    rows = parse(lines, separator, quotes)
    reason = missing_header_reason(rows, chosen_columns)
    columns = tuple(str(n + 1) for n in range(_common_width(rows)[0])) if reason else ()
    return Layout("table", separator, quotes, columns, reason)


def parse(lines: Iterable[str], separator: str, quotes: bool, limit: int = SAMPLE_ROWS) -> list[Row]:
    """Return the first rows that are not empty."""
    rows: list[Row] = []
    with suppress(csv.Error):
        rows += islice((row for row in csv_rows((f"{line}\n" for line in lines), separator, quotes) if row), limit)
    return rows


def _common_width(rows: Sequence[Row]) -> tuple[int, float]:
    """Return the most common number of fields, and the fraction of rows that have it."""
    width, count = next(iter(Counter(map(len, rows)).most_common(1)), (0, 0))
    return width, count / max(1, len(rows))


# -------------------------------------------------------------------------------------------------------- json


def _json_kind(text: str, suffix: str, whole: bool) -> Literal["json", "jsonl"] | None:
    """Return "json" for one JSON value, "jsonl" for one object per line, or else None."""
    lines = [line for line in text.split("\n") if line.strip()]
    by_line = suffix in (".jsonl", ".ndjson")
    if text.lstrip()[:1] not in ("{", "["):
        return "jsonl" if by_line and any(isinstance(_parse_json(line), dict) for line in lines) else None
    first = _parse_json(lines[0])
    listed = isinstance(first, list) and not any(isinstance(item, dict) for item in first)
    if by_line and (text.lstrip()[:1] == "{" or listed):
        return "jsonl"
    if isinstance(first, dict) and len(lines) > 1:
        opened = sum(line.lstrip().startswith("{") for line in lines)
        return "jsonl" if 2 * opened > len(lines) else None
    if isinstance(first, dict) and suffix != ".json" and not any(isinstance(v, list | dict) for v in first.values()):
        return "jsonl"  # one record
    if suffix == ".json" or first is not None or (whole and _parse_json(text) is not None):
        return "json"
    start = re.match(r'\s*(\{\s*"|\[\s*[{\["\d])', text)  # of a value that continues after the sample
    return "json" if start and not whole else None


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# ------------------------------------------------------------------------------------------------------ tables


def _separator(lines: Sequence[str], default: str, unquoted: bool = False) -> str:
    """Return the separator of a csv or tsv file: the one with which most rows have as many fields as the first.

    >>> _separator(["id;text", "1;so, so"], ","), _separator(["text"], ","), _separator(["a,b", "c,d"], "\\t")
    (';', ',', ',')
    """
    scores = {}
    for separator in sorted(SEPARATORS, key=lambda s: s != default):  # ties: prefer the usual one
        rows = parse(lines, separator, separator != "\t" or not unquoted)
        if rows and len(rows[0]) > 1:
            known = sum(normalize_name(cell) in KNOWN_COLUMNS for cell in rows[0])
            scores[separator] = sum(len(row) == len(rows[0]) for row in rows) / len(rows) + known
    return max(scores, key=scores.__getitem__, default=default)


def _table_verdict(lines: Sequence[str], separator: str, unquoted: bool) -> Literal["table", "text", "unsure"]:
    """Return whether a file without the suffix of a table is a table."""
    rows = parse(lines, separator, separator != "\t" or not unquoted)
    width, fraction = _common_width(rows)
    if width < 2 or len(rows) < 2:
        return "text"
    regular = [row for row in rows if len(row) == width]
    filled = [sum(bool(row[n].strip()) for row in regular) > len(regular) / 2 for n in range(width)]
    if sum(filled) < 2:  # lines that are only indented
        return "text"
    if separator == "\t":
        return "table" if fraction >= MIN_REGULAR_TABS else "unsure"
    later_cells = [cell for row in regular for cell in row[1:]]
    prose = sum(cell.startswith(" ") for cell in later_cells) > len(later_cells) / 5  # "yes, and no"
    if fraction < MIN_REGULAR_OTHER or prose:
        names = len(rows[0]) == width and sum(normalize_name(cell) in KNOWN_COLUMNS for cell in rows[0]) > 1
        return "table" if names and fraction >= 0.5 else "text"
    if len(rows[0]) == width and all(map(_is_name, rows[0])):
        return "table"
    if len(rows) >= MIN_LABEL_ROWS and any(_has_few_values([row[n] for row in regular]) for n in range(width)):
        return "table"
    return "unsure" if len(rows) >= MIN_LABEL_ROWS else "text"


def _is_name(cell: str) -> bool:
    """Return whether a cell can be a column name."""
    text = cell.strip()
    if not text:
        return True  # name of an index column
    return text[0] not in "\"'" and text[-1] not in ".!?。！？,;" and not is_number(text) and not is_text(text)


def _has_few_values(cells: Sequence[str]) -> bool:
    seen = {cell.strip() for cell in cells}
    return 1 < len(seen) <= len(cells) / 3 and max(map(len, seen)) <= 30


def is_text(cell: str) -> bool:
    """
    >>> is_text("a film that I will not forget"), is_text("user review"), is_text("这部电影真的很好看，推荐大家去看")
    (True, False, True)
    """
    return len(cell.split()) > MAX_NAME_WORDS or len(_CHINESE.findall(cell)) > MAX_NAME_CHARS


def is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def missing_header_reason(rows: Sequence[Row], chosen_columns: Collection[str] = ()) -> str:
    """Return why the first row is data, or "" if it is a header.

    >>> missing_header_reason([["gj04", "1", "So they say."], ["gj04", "0", "They so."]])
    "'1' is a number, like the rest of its column"
    >>> missing_header_reason([["id", "text"], ["1", "a"]]), missing_header_reason([["0", "1"], ["so good", "pos"]])
    ('', '')
    """
    if len(rows) < 2:
        return ""
    first = [cell.strip() for cell in rows[0]]
    columns = [[row[n].strip() for row in rows[1:] if n < len(row)] for n in range(len(first))]
    known = [n for n, cell in enumerate(first) if normalize_name(cell) in KNOWN_COLUMNS]
    if any(cell and cell in chosen_columns and not cell.isdecimal() for cell in first):
        return ""
    if len(known) > 1 or any(first[n] not in columns[n] for n in known):
        return ""
    for cell, others in zip(first, columns):
        numbers = [is_number(other) for other in others if other]
        if is_number(cell) and numbers and all(numbers):
            return f"{cell!r} is a number, like the rest of its column"
        if cell and not is_number(cell) and not is_text(cell) and len(numbers) > 1 and all(numbers):
            return ""
    for cell, others in zip(first, columns):
        if cell and cell in others and len(set(others)) < len(rows) / 2:
            return f"{cell[:40]!r} also occurs further down in its column"
        if is_text(cell):
            return f"{cell[:40]!r} is a text"
    return ""


def quotes_are_text(lines: Sequence[str]) -> bool:
    """Return whether quotes in a table separated by tabs belong to the text.

    They do if text follows a closing quote, or if a quoted field would span lines that are complete rows.
    """
    quoted = [field for line in lines if '"' in line for field in line.split("\t") if field.startswith('"')]
    closed = [(match.end() if (match := _QUOTED.match(field)) else 0, len(field.rstrip())) for field in quoted]
    if any(0 < end < length for end, length in closed):
        return True
    if all(end for end, _ in closed):
        return False
    widths = [line.count("\t") for line in lines]
    common_width = Counter(width for line, width in zip(lines, widths) if line).most_common(1)[0][0]
    num_joined = num_complete = 0
    reader = csv.reader((f"{line}\n" for line in lines), delimiter="\t")
    with suppress(csv.Error):
        previous = 0
        for _ in reader:
            if reader.line_num > previous + 1:
                num_joined += reader.line_num - previous
                num_complete += sum(width == common_width for width in widths[previous : reader.line_num])
            previous = reader.line_num
    return 2 * num_complete > num_joined


def lines_with_shifted_values(rows: Sequence[tuple[int, dict[str, Any]]], lines: set[int], separator: str) -> set[int]:
    """Return which of `lines`, the rows with too many fields, have values in the wrong columns, due to a separator in a text.

    Columns of labels or numbers show it. Without such a column, rows are assumed shifted unless the separator is a tab.
    """
    regular = [row for line, row in rows if line not in lines]
    checks: dict[str, Callable[[str], bool]] = {}
    for name in regular[0] if regular else ():
        values = [str(row.get(name, "")).strip() for row in regular]
        if all(is_number(value) for value in values if value):
            checks[name] = is_number
        elif 3 * len(set(values)) <= len(values):
            checks[name] = set(values).__contains__
    if not checks:
        return set() if separator == "\t" else lines
    suspects = [(line, row) for line, row in rows if line in lines]
    return {line for line, row in suspects if not all(check(str(row[name]).strip()) for name, check in checks.items())}


# ----------------------------------------------------------------------------------------- lines of other formats


def is_conll_or_trec(lines: Sequence[str], named: bool) -> bool:
    """Return whether the lines are words with tags (CoNLL), or judgments or runs of a search (TREC), with tabs between fields.

    `named`: the file has the suffix of a table, in which blank lines mean nothing.
    """
    filled = [line for line in lines[:SAMPLE_ROWS] if line.strip()]
    rows = [line.rstrip("\r").split("\t") for line in filled if line[0] != "#"]
    if not rows or 2 * sum(len(row) > 1 for row in rows) < len(rows):
        return False
    if _has_tags(rows) or _has_numbered_words(rows) or _has_judgments(rows):
        return True
    return not named and _has_sentence_blocks(lines, rows)


def _has_tags(rows: Sequence[Row]) -> bool:
    tagged = [row for row in rows if len(row) > 1]
    if not all(ENTITY_TAG.fullmatch(row[-1].strip()) for row in tagged):
        return False
    return sum(" " in row[0].strip() for row in tagged) <= len(tagged) / 20


def _has_numbered_words(rows: Sequence[Row]) -> bool:
    """Return whether the words are numbered 1, 2, 3 … and empty fields are "_": CoNLL-U, CoNLL-2009."""
    wide = [row for row in rows if len(row) >= 8]
    counted = sum(bool(re.fullmatch(r"\d+([-.]\d+)?", row[0])) for row in wide)
    return bool(wide) and wide[0][0][:1] == "1" and counted > 0.8 * len(rows) and any("_" in row for row in wide)


def _has_sentence_blocks(lines: Sequence[str], rows: Sequence[Row]) -> bool:
    """Return whether the fields are short and without spaces, and a blank line ends each sentence."""
    blanks = sum(not line.strip() for line in "\n".join(lines[:SAMPLE_ROWS]).strip("\n").split("\n"))
    if not blanks or not 1.5 < len(rows) / (blanks + 1) <= 100:
        return False
    texts = sum(any(" " in field.strip() or len(field) > 40 for field in row) for row in rows)
    return texts <= len(rows) / 10


def _has_judgments(rows: Sequence[Row]) -> bool:
    """Return whether the lines are `query 0 passage relevance` or `query Q0 passage rank score name`."""
    sample = rows[:20]
    fitting = [
        r for r in sample if len(r) in (4, 6) and re.fullmatch(r"-?\d+", r[3].strip()) and " " not in r[2].strip()
    ]
    second = {row[1].strip().lower() for row in fitting}
    return 4 * len(fitting) >= 3 * len(sample) and second in ({"0"}, {"q0"})
