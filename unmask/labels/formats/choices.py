"""Choices and labels as files write them.

| choices | label |
|---|---|
| a list; {"text": […], "label": ["A", …]}; a cell with either, as json or as Python writes it | index from 0, letter, or the choice's text |
| columns choice0 choice1 …, option1 …, ending0 …, answerA …, or A B C D; trailing empty cells = fewer choices | the same |

Numbers count from 1 when a file says so: no label is 0, and one is the number of choices. A warning is logged.
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
LIST_COLUMNS = ("choices", "options", "endings", "candidates", "alternatives")  # of a column that holds a list of them
MIN_LABELS = 5  # labels from which it can be seen that they count from 1


def choice_columns(columns: Sequence[str]) -> list[str]:
    """The columns that hold a choice each, in their order; none unless there are two or more without a hole.

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
    """Whether a table's rows hold choices, in one column or in several."""
    if source.file_format != "table" or not source.rows:
        return False
    first = [source.rows[0][1].get(name) for name in source.columns if normalize_name(name) in LIST_COLUMNS]
    return any(parse_choices(value) is not None for value in first) or bool(choice_columns(source.columns))


def parse_choices(value: Any) -> tuple[list[Any], list[str]] | None:
    """(choices, the names that the file gives them); None when the cell holds no list.

    >>> parse_choices({"text": ["x", "y"], "label": ["A", "B"]}), parse_choices('["x", "y"]'), parse_choices("x, y")
    ((['x', 'y'], ['A', 'B']), (['x', 'y'], []), None)
    """
    if isinstance(value, str) and value[:1] in ("[", "{"):
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(value)
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


def check_choices(cells: Sequence[Any], at: str, findings: list[Finding]) -> list[str]:
    """Choices as texts; too few, empty and equal ones are found."""
    choices = [parse_text(cell, at, f"choice {n}", findings) for n, cell in enumerate(cells)]
    if len(choices) < 2:
        findings.append(Finding(at, f"{len(choices)} choices", "give two or more, or remove the row", kind="choices"))
    seen: dict[str, int] = {}
    for n, choice in enumerate(choices):
        if choice and seen.setdefault(choice.strip(), n) != n:
            what = f"the choices {seen[choice.strip()]} and {n} are the same: {choice!r:.40}"
            findings.append(Finding(at, what, "make them differ, or remove one", kind="equal choices"))
    return choices


def add_label_indices(
    records: Sequence[Record], labels: Sequence[tuple[Any, list[str]]], findings: list[Finding]
) -> None:
    """Puts "label", an index, into each record. `labels`: what the file says, and the names that it gives the choices."""
    numbers = [parse_int(value) for value, names in labels if not names]
    sizes = [len(record["choices"]) for record, (_, names) in zip(records, labels) if not names]
    counted = [n for n in numbers if n is not None]
    from_one = (
        len(counted) == len(numbers) >= MIN_LABELS
        and min(counted) == 1
        and all(n <= size for n, size in zip(counted, sizes))
        and any(n == size for n, size in zip(counted, sizes))
    )
    if from_one:
        what = "labels count from 1: no label is 0, and one is the number of choices"
        findings.append(
            Finding(records[0]["location"], what, "use letters, or numbers from 0, to be unambiguous", error=False)
        )
    for record, (value, names) in zip(records, labels):
        record["label"] = _index(value, names, record, int(from_one), findings)


def _index(value: Any, names: list[str], record: Record, first: int, findings: list[Finding]) -> int:
    """0 when it cannot be found, and the reason in `findings`."""
    at, choices = record["location"], record["choices"]
    if value is None or value == "" or value != value:
        findings.append(Finding(at, "no label", "fill it in, or remove the row", kind="no label"))
        return 0
    text = str(value).strip()
    number = parse_int(value)
    if text in names:
        return names.index(text)
    by_text = [n for n, choice in enumerate(choices) if choice.strip() == text] if isinstance(value, str) else []
    by_number = number - first if number is not None else None
    if by_number is None and len(text) == 1 and text.lower() in LETTERS:
        by_number = LETTERS.index(text.lower())
    inside = by_number is not None and 0 <= by_number < len(choices)
    if by_text and inside and by_number not in by_text:
        what = f"the label {text!r} is the text of choice {by_text[0]} and the number of choice {by_number}"
        findings.append(Finding(at, what, "use letters: A is the first", kind="label"))
        return 0
    if by_text:
        return by_text[0]
    if not choices:  # `check_choices` says so
        return 0
    if not inside:
        valid = f"0 to {len(choices) - 1}, {LETTERS[: len(choices)].upper()[:1]} to {LETTERS[: len(choices)].upper()[-1:]}, or the text of a choice"
        findings.append(
            Finding(at, f"the label {text!r:.60} is outside of the {len(choices)} choices", valid, kind="label")
        )
        return 0
    return int(by_number or 0)
