"""Read multiple-choice records: the choices, and the label as an index.

| choices | label |
|---|---|
| a list; {"text": […], "label": ["A", …]}; a cell with either, as JSON or Python literal | index from 0, letter, or the choice's text |
| columns choice0 choice1 …, option1 …, ending0 …, answerA …, or A B C D; trailing empty cells = fewer choices | the same |

Numeric labels count from 1 if no label is 0 and one equals the number of choices. A warning is logged.
"""

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from unmask.labels.records import Finding, Record, Source, parse_int, parse_text
from unmask.text.columns import normalize_name

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_COLUMN = re.compile(
    r"(?:(choice|option|ending|alternative|answer|solution|sol|opt?|选项|選項)[ _-]?)?(?:([0-9]+)|([a-z]))"
)
LIST_COLUMNS = ("choices", "options", "endings", "candidates", "alternatives")  # usual names of a list column
MIN_LABELS = 5  # labels needed to conclude that they count from 1


def choice_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns with one choice each, in order, or [] unless there are at least two with consecutive numbers.

    >>> choice_columns(["id", "ending1", "ending0", "label"]), choice_columns(["text", "A", "B", "C"]), choice_columns(["a", "c"])
    (['ending0', 'ending1'], ['A', 'B', 'C'], [])
    """
    series: dict[tuple[str, bool], dict[int, str]] = {}
    for name in columns:
        match = _COLUMN.fullmatch(name.strip().lower())
        if match and (match[1] or match[3]):  # a bare number is not a name
            number = int(match[2]) if match[2] else LETTERS.index(match[3])
            series.setdefault((match[1] or "", bool(match[2])), {})[number] = name
    for numbered in series.values():
        first = min(numbered)
        if len(numbered) > 1 and first < 2 and sorted(numbered) == list(range(first, first + len(numbered))):
            return [numbered[n] for n in sorted(numbered)]
    return []


def has_choices(source: Source) -> bool:
    """Return whether a table has choices, in one column or in several."""
    if source.file_format != "table" or not source.rows:
        return False
    first = [source.rows[0][1].get(name) for name in source.columns if normalize_name(name) in LIST_COLUMNS]
    return any(parse_choices(value) is not None for value in first) or bool(choice_columns(source.columns))


def parse_choices(value: Any) -> tuple[list[Any], list[str]] | None:
    """Return (choices, their names in the file), or None if the cell is not a list.

    >>> parse_choices({"text": ["x", "y"], "label": ["A", "B"]}), parse_choices('["x", "y"]'), parse_choices("x, y")
    ((['x', 'y'], ['A', 'B']), (['x', 'y'], []), None)
    """
    if isinstance(value, str) and value[:1] in ("[", "{"):
        for parse in (json.loads, ast.literal_eval):
            try:
                value = parse(value)
                break
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    if isinstance(value, dict) and isinstance(value.get("text"), list | tuple):
        names = value.get("label")
        return list(value["text"]), [str(n) for n in names] if isinstance(names, list | tuple) else []
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, dict) and "text" in item for item in value):
            return [item["text"] for item in value], [str(item.get("label", "")) for item in value]
        return list(value), []
    return None


def check_choices(cells: Sequence[Any], location: str, findings: list[Finding]) -> list[str]:
    """Return the choices as texts. Add findings for too few, empty and equal ones."""
    choices = [parse_text(cell, location, f"choice {n}", findings) for n, cell in enumerate(cells)]
    if len(choices) < 2:
        message = f"{len(choices)} choices instead of at least 2"
        findings.append(Finding(location, message, "add choices, or remove the row", kind="choices"))
    seen: dict[str, int] = {}
    for n, choice in enumerate(choices):
        if choice and seen.setdefault(choice.strip(), n) != n:
            message = f"the choices {seen[choice.strip()]} and {n} are the same: {choice!r:.40}"
            findings.append(Finding(location, message, "make them differ, or remove one", kind="equal choices"))
    return choices


def add_label_indices(
    records: Sequence[Record], labels: Sequence[tuple[Any, list[str]]], findings: list[Finding]
) -> None:
    """Set "label" of each record to an index. `labels`: per record, the value in the file and the names of the choices."""
    numbers = [parse_int(value) for value, names in labels if not names]
    sizes = [len(record["choices"]) for record, (_, names) in zip(records, labels) if not names]
    integers = [n for n in numbers if n is not None]
    from_one = (
        len(integers) == len(numbers) >= MIN_LABELS
        and min(integers) == 1
        and all(n <= size for n, size in zip(integers, sizes))
        and any(n == size for n, size in zip(integers, sizes))
    )
    if from_one:
        message = "labels count from 1: no label is 0, and one is the number of choices"
        hint = "use letters, or numbers from 0, to be unambiguous"
        findings.append(Finding(records[0]["location"], message, hint, error=False))
    for record, (value, names) in zip(records, labels):
        record["label"] = _index(value, names, record, int(from_one), findings)


def _index(value: Any, names: list[str], record: Record, first_number: int, findings: list[Finding]) -> int:
    """Return the index of a label, or 0 and a finding if it does not match a choice."""
    location, choices = record["location"], record["choices"]
    if value is None or value == "" or value != value:
        findings.append(Finding(location, "no label", "fill it in, or remove the row", kind="no label"))
        return 0
    text = str(value).strip()
    number = parse_int(value)
    if text in names:
        return names.index(text)
    by_text = [n for n, choice in enumerate(choices) if choice.strip() == text] if isinstance(value, str) else []
    by_number = number - first_number if number is not None else None
    if by_number is None and len(text) == 1 and text.lower() in LETTERS:
        by_number = LETTERS.index(text.lower())
    in_range = by_number is not None and 0 <= by_number < len(choices)
    if by_text and in_range and by_number not in by_text:
        message = f"the label {text!r} is the text of choice {by_text[0]} and the number of choice {by_number}"
        findings.append(Finding(location, message, "use letters: A is the first choice", kind="label"))
        return 0
    if by_text:
        return by_text[0]
    if not choices:  # reported by `check_choices`
        return 0
    if not in_range:
        letters = f", A to {LETTERS[len(choices) - 1].upper()}" if len(choices) <= len(LETTERS) else ""
        message = f"the label {text!r:.60} is not one of the {len(choices)} choices"
        hint = f"use 0 to {len(choices) - 1}{letters}, or the text of a choice"
        findings.append(Finding(location, message, hint, kind="label"))
        return 0
    return int(by_number or 0)
