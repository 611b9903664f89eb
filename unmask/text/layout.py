"""The layout of a labelled file, found in its content and not in its name: lines of text, JSON, or a table.

A table is a layout with a separator, with or without quotes around fields, with or without a line of column names. A name
that ends in .csv or .tsv says that the file is a table, no more. Any other name needs evidence in the content: the same
number of fields on nearly every line, and, as prose has commas, names in the first line or a column of labels. Words
with tags (CoNLL) and judgements (TREC) are lines of text here; their own readers split them.
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

CONLL_SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes", ".bmes", ".ner")  # a word per line
ROWS = 2_000  # rows looked at
SEPARATORS = (",", ";", "\t", "|")
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
REGULAR = 0.8  # share of lines with the usual number of fields, of a table with tabs
STRICT = 0.95  # … with other separators, which prose has too
FEW = 10  # rows from which a column of labels can be seen
WORDS, CHARACTERS = 4, 12  # a longer cell (words; Chinese characters) is a text and no name
ENTITY_TAG = re.compile(r"O|[BIESLUMW](-\S+)?")  # a tag of an entity
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"(?!")')
_CHINESE = re.compile("[\u4e00-\u9fff]")

Row = list[str]


@dataclass(frozen=True)
class Layout:
    kind: Literal["text", "json", "jsonl", "table"]
    separator: str = ","
    quotes: bool = True
    columns: tuple[str, ...] = ()  # "1", "2", … of a table without a line of names
    reason: str = ""  # why the first line is data; why it is not plain whether this is a table
    ambiguous: bool = False  # it may be a table, and is read as text


def detect_layout(text: str, ending: str, given: Collection[str] = (), whole: bool = True) -> Layout:
    """The layout of a file that begins with `text`. `given`: columns that the user named; `whole`: nothing follows.

    >>> detect_layout("text\\tlabel\\nso good\\tpos\\n", ".txt")
    Layout(kind='table', separator='\\t', quotes=True, columns=(), reason='', ambiguous=False)
    >>> detect_layout("Yes, he said, and left.\\nShe stayed, alone.\\n", ".txt").kind
    'text'
    """
    if kind := _json(text, ending, whole):
        return Layout(kind)
    lines = text.split("\n")
    named = ending in (".csv", ".tsv")
    if words_or_judgements(lines, named):
        return Layout("text")
    bare = "\t" in text and quotes_are_text(lines)
    if named:
        separator = _separator(lines, "\t" if ending == ".tsv" else ",", bare)
    else:
        verdicts = {s: _evidence(lines, s, bare) for s in ("\t", ",", ";", "|") if s in text}
        chosen = next((s for s, verdict in verdicts.items() if verdict == "table"), None)
        if chosen is None:
            unsure = next((s for s, verdict in verdicts.items() if verdict == "unsure"), None)
            why = f"most lines have {NAMES[unsure]}, as a table has, but no line names columns" if unsure else ""
            return Layout("text", reason=why, ambiguous=unsure is not None)
        separator = chosen
    quotes = separator != "\t" or not bare
    rows = parse(lines, separator, quotes)
    why = no_header(rows, given)
    numbers = tuple(str(n + 1) for n in range(_usual(rows)[0])) if why else ()
    return Layout("table", separator, quotes, numbers, why)


def parse(lines: Iterable[str], separator: str, quotes: bool, most: int = ROWS) -> list[Row]:
    """The first rows that are not empty."""
    rows: list[Row] = []
    with suppress(csv.Error):
        rows += islice((row for row in csv_rows((f"{line}\n" for line in lines), separator, quotes) if row), most)
    return rows


def _usual(rows: Sequence[Row]) -> tuple[int, float]:
    """The most frequent number of fields, and the share of the rows that have it."""
    width, count = next(iter(Counter(map(len, rows)).most_common(1)), (0, 0))
    return width, count / max(1, len(rows))


# -------------------------------------------------------------------------------------------------------- json


def _json(text: str, ending: str, whole: bool) -> Literal["json", "jsonl"] | None:
    """One JSON value, or an object on each line."""
    lines = [line for line in text.split("\n") if line.strip()]
    by_line = ending in (".jsonl", ".ndjson")
    if text.lstrip()[:1] not in ("{", "["):
        return "jsonl" if by_line and any(isinstance(_value(line), dict) for line in lines) else None
    first = _value(lines[0])
    listed = isinstance(first, list) and not any(isinstance(item, dict) for item in first)
    if by_line and (text.lstrip()[:1] == "{" or listed):
        return "jsonl"
    if isinstance(first, dict) and len(lines) > 1:
        opened = sum(line.lstrip().startswith("{") for line in lines)
        return "jsonl" if 2 * opened > len(lines) else None
    if isinstance(first, dict) and ending != ".json" and not any(isinstance(v, list | dict) for v in first.values()):
        return "jsonl"  # one record
    if ending == ".json" or first is not None or (whole and _value(text) is not None):
        return "json"
    begins = re.match(r'\s*(\{\s*"|\[\s*[{\["\d])', text)  # goes on after what was looked at
    return "json" if begins and not whole else None


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# ------------------------------------------------------------------------------------------------------ tables


def _separator(lines: Sequence[str], usual: str, bare: bool = False) -> str:
    """The separator of a file that is called a table: the one by which most rows are as wide as the first.

    >>> _separator(["id;text", "1;so, so"], ","), _separator(["text"], ","), _separator(["a,b", "c,d"], "\\t")
    (';', ',', ',')
    """
    shares = {}
    for separator in sorted(SEPARATORS, key=lambda s: s != usual):  # of equal ones the usual one
        rows = parse(lines, separator, separator != "\t" or not bare)
        if rows and len(rows[0]) > 1:
            known = sum(normalize_name(cell) in KNOWN_COLUMNS for cell in rows[0])
            shares[separator] = sum(len(row) == len(rows[0]) for row in rows) / len(rows) + known
    return max(shares, key=shares.__getitem__, default=usual)


def _evidence(lines: Sequence[str], separator: str, bare: bool) -> Literal["table", "text", "unsure"]:
    """Whether lines with any other name are a table."""
    rows = parse(lines, separator, separator != "\t" or not bare)
    width, share = _usual(rows)
    if width < 2 or len(rows) < 2:
        return "text"
    usual = [row for row in rows if len(row) == width]
    filled = [sum(bool(row[n].strip()) for row in usual) > len(usual) / 2 for n in range(width)]
    if sum(filled) < 2:  # lines that begin with a tab
        return "text"
    if separator == "\t":
        return "table" if share >= REGULAR else "unsure"
    apart = [cell for row in usual for cell in row[1:]]
    if share < STRICT or sum(cell.startswith(" ") for cell in apart) > len(apart) / 5:  # a blank follows: prose
        names = len(rows[0]) == width and sum(normalize_name(cell) in KNOWN_COLUMNS for cell in rows[0]) > 1
        return "table" if names and share >= 0.5 else "text"
    if len(rows[0]) == width and all(map(_is_name, rows[0])):
        return "table"
    if len(rows) >= FEW and any(_few_values([row[n] for row in usual]) for n in range(width)):
        return "table"
    return "unsure" if len(rows) >= FEW else "text"


def _is_name(cell: str) -> bool:
    """Whether a cell can be the name of a column."""
    text = cell.strip()
    if not text:
        return True  # of an index
    return text[0] not in "\"'" and text[-1] not in ".!?。！？,;" and not is_number(text) and not is_text(text)


def _few_values(cells: Sequence[str]) -> bool:
    seen = {cell.strip() for cell in cells}
    return 1 < len(seen) <= len(cells) / 3 and max(map(len, seen)) <= 30


def is_text(cell: str) -> bool:
    """
    >>> is_text("a film that I will not forget"), is_text("user review"), is_text("这部电影真的很好看，推荐大家去看")
    (True, False, True)
    """
    return len(cell.split()) > WORDS or len(_CHINESE.findall(cell)) > CHARACTERS


def is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def no_header(rows: Sequence[Row], given: Collection[str] = ()) -> str:
    """Why the first row is data; "" where it names the columns.

    >>> no_header([["gj04", "1", "So they say."], ["gj04", "0", "They so."]])
    "'1' is a number, as are the others of its column"
    >>> no_header([["id", "text"], ["1", "a"]]), no_header([["0", "1"], ["so good", "pos"]])
    ('', '')
    """
    if len(rows) < 2:
        return ""
    first = [cell.strip() for cell in rows[0]]
    below = [[row[n].strip() for row in rows[1:] if n < len(row)] for n in range(len(first))]
    known = [n for n, cell in enumerate(first) if normalize_name(cell) in KNOWN_COLUMNS]
    if any(cell and cell in given and not cell.isdecimal() for cell in first):
        return ""
    if len(known) > 1 or any(first[n] not in below[n] for n in known):
        return ""
    for cell, others in zip(first, below):
        numbers = [is_number(other) for other in others if other]
        if is_number(cell) and numbers and all(numbers):
            return f"{cell!r} is a number, as are the others of its column"
        if cell and not is_number(cell) and not is_text(cell) and len(numbers) > 1 and all(numbers):
            return ""
    for cell, others in zip(first, below):
        if cell and cell in others and len(set(others)) < len(rows) / 2:
            return f"{cell[:40]!r} is a value of its own column"
        if is_text(cell):
            return f"{cell[:40]!r} is a text"
    return ""


def quotes_are_text(lines: Sequence[str]) -> bool:
    """Whether quotes in a table with tabs belong to the text.

    They do where text follows a closing quote, and where a quoted field would run over lines that are whole rows themselves.
    """
    opened = [field for line in lines if '"' in line for field in line.split("\t") if field.startswith('"')]
    closed = [(match.end() if (match := _QUOTED.match(field)) else 0, len(field.rstrip())) for field in opened]
    if any(0 < end < length for end, length in closed):
        return True
    if all(end for end, _ in closed):
        return False
    widths = [line.count("\t") for line in lines]
    usual = Counter(width for line, width in zip(lines, widths) if line).most_common(1)[0][0]
    joined = whole = 0
    reader = csv.reader((f"{line}\n" for line in lines), delimiter="\t")
    with suppress(csv.Error):
        before = 0
        for _ in reader:
            if reader.line_num > before + 1:
                joined += reader.line_num - before
                whole += sum(width == usual for width in widths[before : reader.line_num])
            before = reader.line_num
    return 2 * whole > joined


def shifted(rows: Sequence[tuple[int, dict[str, Any]]], lines: set[int], separator: str) -> set[int]:
    """Which of the rows with too many fields have a separator inside a field, so that values are in the wrong columns.

    Columns of few values (labels) and of numbers tell; without such a column, a tab is taken to end a field, a comma not.
    """
    good = [row for line, row in rows if line not in lines]
    typical: dict[str, Callable[[str], bool]] = {}
    for name in good[0] if good else ():
        values = [str(row.get(name, "")).strip() for row in good]
        if all(is_number(value) for value in values if value):
            typical[name] = is_number
        elif 3 * len(set(values)) <= len(values):
            typical[name] = set(values).__contains__
    if not typical:
        return set() if separator == "\t" else lines
    odd = [(line, row) for line, row in rows if line in lines]
    return {line for line, row in odd if not all(fits(str(row[name]).strip()) for name, fits in typical.items())}


# ----------------------------------------------------------------------------------------- other forms of lines


def words_or_judgements(lines: Sequence[str], named: bool) -> bool:
    """Whether lines hold a word each (CoNLL), or judgements and runs of a search (TREC), with tabs between fields.

    `named`: the file is called a table, in which blank lines say nothing."""
    filled = [line for line in lines[:ROWS] if line.strip()]
    rows = [line.rstrip("\r").split("\t") for line in filled if line[0] != "#"]
    if not rows or 2 * sum(len(row) > 1 for row in rows) < len(rows):
        return False
    return _tags(rows) or _numbered(rows) or _judgements(rows) or (not named and _blocks(lines, rows))


def _tags(rows: Sequence[Row]) -> bool:
    several = [row for row in rows if len(row) > 1]
    if not all(ENTITY_TAG.fullmatch(row[-1].strip()) for row in several):
        return False
    return sum(" " in row[0].strip() for row in several) <= len(several) / 20


def _numbered(rows: Sequence[Row]) -> bool:
    """Words counted 1, 2, 3 … with "_" where a field is empty: CoNLL-U, CoNLL-2009."""
    wide = [row for row in rows if len(row) >= 8]
    counted = sum(bool(re.fullmatch(r"\d+([-.]\d+)?", row[0])) for row in wide)
    return bool(wide) and wide[0][0][:1] == "1" and counted > 0.8 * len(rows) and any("_" in row for row in wide)


def _blocks(lines: Sequence[str], rows: Sequence[Row]) -> bool:
    """Short fields without blanks in them, and a blank line after each sentence."""
    blanks = sum(not line.strip() for line in "\n".join(lines[:ROWS]).strip("\n").split("\n"))
    if not blanks or not 1.5 < len(rows) / (blanks + 1) <= 100:
        return False
    texts = sum(any(" " in field.strip() or len(field) > 40 for field in row) for row in rows)
    return texts <= len(rows) / 10


def _judgements(rows: Sequence[Row]) -> bool:
    """`query 0 passage relevance`, or `query Q0 passage rank score name`."""
    looked_at = rows[:20]
    fitting = [
        r for r in looked_at if len(r) in (4, 6) and re.fullmatch(r"-?\d+", r[3].strip()) and " " not in r[2].strip()
    ]
    second = {row[1].strip().lower() for row in fitting}
    return 4 * len(fitting) >= 3 * len(looked_at) and second in ({"0"}, {"q0"})
