"""Propose --task and --column for a table with unknown column names, from the content of its columns.

The proposal is only printed: the user decides whether to pass it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from unmask.errors import quote
from unmask.labels.fields import RecordSpec
from unmask.labels.records import Source
from unmask.text.columns import find_column
from unmask.text.layout import is_number
from unmask.text.segmentation import has_chinese

SAMPLE_ROWS = 2_000  # rows used to guess the kind of a column
MIN_TEXT_CHARS = 8  # mean length of a text column
MAX_LABELS = 50  # different values of a label column
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(\b|T)|\d{4}年\d")
MIN_FILLED = 0.9  # fraction of the cells of a column that are not empty


@dataclass(frozen=True)
class ColumnGuess:
    """Kind of a column, guessed from its content."""

    column: str
    kind: Literal["text", "label", "score", "other"]
    size: float  # mean number of characters
    values: tuple[str, ...]  # different values, of a label column

    def __str__(self) -> str:
        """
        >>> print(ColumnGuess("2", "label", 1, ("0", "1")))
        column 2 looks like a label (2 values: 0, 1)
        """
        if self.kind == "label":
            listed = ", ".join(value[:20] for value in self.values[:4]) + (", …" if len(self.values) > 4 else "")
            return f"column {self.column[:40]} looks like a label ({len(self.values)} values: {listed})"
        kinds = {"text": f"text ({self.size:.0f} characters on average)", "score": "a score", "other": "neither"}
        return f"column {self.column[:40]} looks like {kinds[self.kind]}"


def guess_columns(source: Source) -> list[ColumnGuess]:
    return [guess_column(name, [row.get(name) for _, row in source.rows[:SAMPLE_ROWS]]) for name in source.columns]


def guess_column(column: str, cells: Sequence[Any]) -> ColumnGuess:
    """
    >>> guess_column("a", ["so good"] * 3 + ["no good at all", "fine for a film"]).kind
    'text'
    >>> guess_column("b", ["1", "0", "1", "1"]).kind, guess_column("c", ["0.5", "1.25", "4", "3.3"]).kind
    ('label', 'score')
    >>> guess_column("d", ["1", "2", "3", "4"]).kind, guess_column("e", ["2017/1/27", "2016/12/2"] * 2).kind
    ('other', 'other')
    """
    scalars = [cell for cell in cells if isinstance(cell, str | int | float)]
    filled = [str(cell).strip() for cell in scalars if str(cell).strip()]
    if not filled or len(filled) < MIN_FILLED * len(cells):
        return ColumnGuess(column, "other", 0, ())
    size, different = sum(map(len, filled)) / len(filled), sorted(set(filled))
    numbers = all(map(is_number, filled))
    if all(map(DATE.match, filled)):
        return ColumnGuess(column, "other", size, ())
    if numbers and len(different) > len(filled) / 2 and any(float(cell) % 1 for cell in filled):
        return ColumnGuess(column, "score", size, ())
    if 1 < len(different) <= min(MAX_LABELS, len(filled) / 2) and max(map(len, different)) <= 40:
        return ColumnGuess(column, "label", size, tuple(different))
    chinese = any(map(has_chinese, filled[:50]))
    has_words = size >= MIN_TEXT_CHARS and sum(" " in cell for cell in filled) > len(filled) / 2
    text = not numbers and 2 * len(different) > len(filled) and (has_words or (chinese and size >= MIN_TEXT_CHARS / 2))
    return ColumnGuess(column, "text" if text else "other", size, ())


@dataclass(frozen=True)
class TextFields:
    """Names of the fields of a task that reads one text and optionally a second one."""

    task: str
    text: str
    second: str  # "" if the task reads one text
    target: str
    holds: str  # type of the target
    required: bool  # whether the target is required
    labels: tuple[str, ...]  # if the task fixes them


def text_fields(spec: RecordSpec) -> TextFields | None:
    """Return the fields of a task, or None if it does not read exactly one required text."""
    needed = [field for field in spec.fields if field.use == "input" and field.required]
    target = next((field for field in spec.fields if field.use == "target"), None)
    if len(needed) != 1 or needed[0].holds != "text" or target is None:
        return None
    second = next((f.name for f in spec.fields if f.use == "input" and f.holds == "text" and not f.required), "")
    return TextFields(spec.name, needed[0].name, second, target.name, target.holds, target.required, target.labels)


def propose_flags(
    specs: Iterable[RecordSpec],
    guesses: Sequence[ColumnGuess],
    chosen_columns: Mapping[str, str],
    columns: Sequence[str],
) -> list[str]:
    """Return `--task … --column …` of each task that could read the table, most likely first; [] if its content is unclear."""
    tasks = sorted(filter(None, map(text_fields, specs)), key=lambda t: not t.required)
    columns_by_role = {role: find_column(columns, name) for role, name in chosen_columns.items()}
    free = [guess for guess in guesses if guess.column not in columns_by_role.values()]
    texts = sorted((guess for guess in free if guess.kind == "text"), key=lambda guess: -guess.size)
    labels = sorted((guess for guess in free if guess.kind == "label"), key=lambda guess: len(guess.values))
    scores = [guess.column for guess in free if guess.kind == "score"]
    text = [str(columns_by_role["text"])] if "text" in chosen_columns else [guess.column for guess in texts[:1]]
    label = [str(columns_by_role["label"])] if "label" in chosen_columns else [guess.column for guess in labels[:1]]
    others = [guess for guess in texts if guess.column not in text]
    values = {value for guess in guesses if guess.column in label for value in guess.values}
    classifiers = [
        t for t in tasks if t.holds == "label" and t.required and (not t.labels or (values and values <= {*t.labels}))
    ]
    if text and label:
        pair = [] if len(others) != 1 or 3 * others[0].size < texts[0].size else [others[0].column]
        text_columns = [*text, *pair]
        ordered = sorted(text_columns, key=list(columns).index) if "text" not in chosen_columns else text_columns
        return [
            format_flags(t.task, dict(zip((t.text, t.second), ordered)) | {t.target: label[0]}) for t in classifiers
        ]
    if text and others and scores:
        first, second = sorted([text[0], others[0].column], key=list(columns).index)
        pair_tasks = [t for t in tasks if t.holds == "number" and t.second]
        return [format_flags(t.task, {t.text: first, t.second: second, t.target: scores[0]}) for t in pair_tasks]
    if text and scores:
        return [format_flags(t.task, {t.text: text[0], t.target: scores[0]}) for t in classifiers]
    if text and others and not chosen_columns:
        roles = [(t, t.target if t.holds == "text" else "" if t.required else t.second) for t in tasks]
        return [format_flags(t.task, {t.text: text[0], role: others[0].column}) for t, role in roles if role]
    return []


def format_flags(task: str, columns: Mapping[str, str]) -> str:
    """
    >>> format_flags("mine", {"text": "user review", "label": "2"})
    "--task mine --column 'text=user review' --column label=2"
    """
    return " ".join([f"--task {task}", *(f"--column {quote(f'{role}={name}')}" for role, name in columns.items())])
