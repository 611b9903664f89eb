"""Columns whose names say nothing: what each looks like by its content, and the flags that would name them.

Nothing is taken silently: a user reads the proposal and passes it on.
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

LOOKED_AT = 2_000  # rows
LETTERS = 8  # characters of a text on average, at least
LABELS = 50  # different labels, at most
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(\b|T)|\d{4}年\d")
FILLED = 0.9  # share of the cells of a column that have something in them


@dataclass(frozen=True)
class Look:
    """What a column looks like."""

    column: str
    kind: Literal["text", "label", "score", "other"]
    size: float  # characters on average
    values: tuple[str, ...]  # the different ones, of a label

    def __str__(self) -> str:
        """
        >>> print(Look("2", "label", 1, ("0", "1")))
        column 2 looks like a label (2 values: 0, 1)
        """
        if self.kind == "label":
            listed = ", ".join(value[:20] for value in self.values[:4]) + (", …" if len(self.values) > 4 else "")
            return f"column {self.column[:40]} looks like a label ({len(self.values)} values: {listed})"
        looks = {"text": f"text ({self.size:.0f} characters on average)", "score": "a score", "other": "neither"}
        return f"column {self.column[:40]} looks like {looks[self.kind]}"


def looks(source: Source) -> list[Look]:
    return [look(name, [row.get(name) for _, row in source.rows[:LOOKED_AT]]) for name in source.columns]


def look(column: str, cells: Sequence[Any]) -> Look:
    """
    >>> look("a", ["so good"] * 3 + ["no good at all", "fine for a film"]).kind, look("b", ["1", "0", "1", "1"]).kind
    ('text', 'label')
    >>> look("c", ["0.5", "1.25", "4", "3.3"]).kind, look("d", ["1", "2", "3", "4"]).kind
    ('score', 'other')
    >>> look("e", ["2017/1/27", "2016/12/2", "2017/1/27", "2016/12/2"]).kind
    'other'
    """
    plain = [cell for cell in cells if isinstance(cell, str | int | float)]
    filled = [str(cell).strip() for cell in plain if str(cell).strip()]
    if not filled or len(filled) < FILLED * len(cells):
        return Look(column, "other", 0, ())
    size, different = sum(map(len, filled)) / len(filled), sorted(set(filled))
    numbers = all(map(is_number, filled))
    if all(map(DATE.match, filled)):
        return Look(column, "other", size, ())
    if numbers and len(different) > len(filled) / 2 and any(float(cell) % 1 for cell in filled):
        return Look(column, "score", size, ())
    if 1 < len(different) <= min(LABELS, len(filled) / 2) and max(map(len, different)) <= 40:
        return Look(column, "label", size, tuple(different))
    chinese = any(map(has_chinese, filled[:50]))
    wordy = size >= LETTERS and sum(" " in cell for cell in filled) > len(filled) / 2
    text = not numbers and 2 * len(different) > len(filled) and (wordy or (chinese and size >= LETTERS / 2))
    return Look(column, "text" if text else "other", size, ())


@dataclass(frozen=True)
class Wanted:
    """What a task reads that begins with one text: names of its fields."""

    task: str
    text: str
    second: str  # another text; "" where there is none
    target: str
    holds: str  # what the target is
    required: bool  # whether a record has to have it
    labels: tuple[str, ...]  # all that it may be, if the task fixes them


def wanted(spec: RecordSpec) -> Wanted | None:
    """None for a task that reads anything else."""
    needed = [field for field in spec.fields if field.use == "input" and field.required]
    target = next((field for field in spec.fields if field.use == "target"), None)
    if len(needed) != 1 or needed[0].holds != "text" or target is None:
        return None
    second = next((f.name for f in spec.fields if f.use == "input" and f.holds == "text" and not f.required), "")
    return Wanted(spec.name, needed[0].name, second, target.name, target.holds, target.required, target.labels)


def flags(
    specs: Iterable[RecordSpec], seen: Sequence[Look], given: Mapping[str, str], columns: Sequence[str]
) -> list[str]:
    """`--task … --column …` that would read the table, likeliest first; none where its content says too little."""
    known = sorted(filter(None, map(wanted, specs)), key=lambda w: not w.required)
    taken = {find_column(columns, name): role for role, name in given.items()}
    free = [look for look in seen if look.column not in taken]
    texts = sorted((look for look in free if look.kind == "text"), key=lambda look: -look.size)
    labels = sorted((look for look in free if look.kind == "label"), key=lambda look: len(look.values))
    scores = [look for look in free if look.kind == "score"]
    text = [taken_as(taken, "text")] if "text" in given else [look.column for look in texts[:1]]
    label = [taken_as(taken, "label")] if "label" in given else [look.column for look in labels[:1]]
    others = [look for look in texts if look.column not in text]
    values = {value for look in seen if look.column in label for value in look.values}
    labelled = [
        w for w in known if w.holds == "label" and w.required and (not w.labels or (values and values <= {*w.labels}))
    ]
    if text and label:
        pair = [] if len(others) != 1 or 3 * others[0].size < texts[0].size else [others[0].column]
        both = [*text, *pair]
        ordered = sorted(both, key=list(columns).index) if "text" not in given else both
        return [written(w.task, dict(zip((w.text, w.second), ordered)) | {w.target: label[0]}) for w in labelled]
    if text and others and scores:
        two = sorted([text[0], others[0].column], key=list(columns).index)
        compared = [w for w in known if w.holds == "number" and w.second]
        return [written(w.task, {w.text: two[0], w.second: two[1], w.target: scores[0].column}) for w in compared]
    if text and scores:
        return [written(w.task, {w.text: text[0], w.target: scores[0].column}) for w in labelled]
    if text and others and not given:
        made = [(w, w.target if w.holds == "text" else "" if w.required else w.second) for w in known]
        return [written(w.task, {w.text: text[0], role: others[0].column}) for w, role in made if role]
    return []


def taken_as(taken: Mapping[str | None, str], role: str) -> str:
    return next(str(column) for column, taken_role in taken.items() if taken_role == role)


def written(task: str, columns: Mapping[str, str]) -> str:
    """
    >>> written("mine", {"text": "user review", "label": "2"})
    "--task mine --column 'text=user review' --column label=2"
    """
    return " ".join([f"--task {task}", *(f"--column {quote(f'{role}={name}')}" for role, name in columns.items())])
