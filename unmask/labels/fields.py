"""Field: one named value of a record. The fields of a task say what its files hold, what its model reads and what it predicts.

What the data doctor, the split into training and dev set, and `unmask predict` want to know of a record follows from the fields, by the
functions below. They take a task's spec (`unmask/tasks/spec.py`), of which they read what `RecordSpec` names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from unmask.errors import UserError
from unmask.labels.formats import schemes
from unmask.labels.records import Record, Source
from unmask.recipe import TaskRecipe
from unmask.text.columns import map_columns

if TYPE_CHECKING:
    from unmask.labels.data_format import DataFormat

# "place": a word of the text, or its characters [start, end).
Holds = Literal[
    "text", "texts", "place", "label", "number", "grades", "spans", "tags", "answers", "index", "id", "file"
]


@dataclass(frozen=True, slots=True)
class Field:
    """
    >>> Field("text", ("review", "body")).caption
    'TEXT'
    """

    name: str  # what --column calls it
    columns: tuple[str, ...] = ()  # what files usually call it
    holds: Holds = "text"
    use: Literal["input", "target", "other"] = "input"  # read by the model, predicted by it, or for the file's reader
    required: bool = True
    min_count: int = 1  # texts, where it holds several
    caption: str = ""  # what it is called in examples of commands: "QUESTION"; its name in capitals unless given
    key: str = ""  # in a record; its name unless given
    or_file: bool = False  # --column may name a file instead of a column
    labels: tuple[str, ...] = ()  # the valid labels, if the task fixes them: doctor and finetune reject others

    def __post_init__(self) -> None:
        object.__setattr__(self, "caption", self.caption or self.name.upper())
        object.__setattr__(self, "key", self.key or self.name)


class RecordSpec(Protocol):
    """What a task's spec says of its records."""

    @property
    def name(self) -> str: ...
    @property
    def data_format(self) -> DataFormat: ...
    @property
    def fields(self) -> tuple[Field, ...]: ...
    @property
    def inputs(self) -> tuple[Field, ...]: ...
    @property
    def output(self) -> str: ...
    @property
    def grouped(self) -> bool: ...
    @property
    def group_by(self) -> str: ...
    @property
    def hints(self) -> Mapping[str, str]: ...


# ------------------------------------------------------------------------------------------------- columns of a file


def usual_columns(fields: Sequence[Field]) -> dict[str, tuple[str, ...]]:
    """Name of a field → what files usually call its column."""
    return {field.name: field.columns for field in fields}


def required_fields(fields: Sequence[Field], labeled: bool = True) -> tuple[str, ...]:
    """Fields without which there is no record: the inputs, then, with `labeled`, the targets.

    >>> required_fields((Field("label", use="target"), Field("text"), Field("pair", required=False)))
    ('text', 'label')
    """
    uses = ("input", "target") if labeled else ("input",)
    return tuple(field.name for use in uses for field in fields if field.use == use and field.required)


def required_targets(fields: Sequence[Field]) -> tuple[str, ...]:
    """Fields without which a record has no label."""
    return tuple(field.name for field in fields if field.use == "target" and field.required)


def file_fields(fields: Sequence[Field]) -> tuple[str, ...]:
    """Fields for which --column may name a file."""
    return tuple(field.name for field in fields if field.or_file or field.holds == "file")


def assign_columns(
    fields: Sequence[Field], source: Source, settings: TaskRecipe, needed: Sequence[str] = ()
) -> dict[str, str]:
    """Name of a field → column of a table: the user's choice, else by what files usually call it. UserError where one of `needed` has none."""
    return map_columns(source.columns, usual_columns(fields), settings.columns, needed, source.path)


def detected_columns(fields: Sequence[Field], source: Source, settings: TaskRecipe) -> dict[str, str]:
    """Name of a field → column of a table, to be shown."""
    try:
        return assign_columns(fields, source, settings) if source.file_format == "table" else {}
    except UserError:  # `DataFormat.read` says it better
        return {}


# --------------------------------------------------------------------------------------------------- of one record


def inputs_of(spec: RecordSpec, record: Record) -> tuple[str, ...]:
    """Everything that a record asks: two that are equal here should have the same label."""
    fields = sorted(spec.fields, key=lambda field: not (field.use == "input" and field.required))
    keys = [field.key for field in fields if field.use != "target" and field.holds not in ("id", "file")]
    values = [record[key] for key in keys if key in record]
    return tuple(str(text) for value in values for text in (value if isinstance(value, list) else [value]))


def group_key(spec: RecordSpec, record: Record) -> tuple[str, ...]:
    """Records that are equal here stand on one side when a dev set is taken: those of the same text, or that ask the same."""
    return (record[spec.group_by],) if spec.group_by in record else inputs_of(spec, record)


def rows_of(spec: RecordSpec, record: Record) -> list[tuple[str, ...]]:
    """The texts of a record that share a row of the model: for what is longer than one."""
    texts = inputs_of(spec, record)
    several = next((f for f in spec.fields if f.use == "input" and f.holds == "texts"), None)
    if spec.output == "vector":
        return [(text,) for text in texts]
    if not spec.grouped or several is None:
        return [texts]
    beside = [record[f.key] for f in spec.fields if f.use == "input" and f is not several and f.key in record]
    return [(*beside, text) for text in record[several.key]]


def has_word_labels(spec: RecordSpec) -> bool:
    """Whether its labels are of words, not of records."""
    return any(field.holds in ("spans", "tags") for field in spec.fields)


def _held(spec: RecordSpec, record: Record) -> dict[str, Any]:
    return {field.holds: record[field.key] for field in spec.fields if field.use == "target" and field.key in record}


def labels_of(spec: RecordSpec, record: Record) -> list[str]:
    """The labels of a fixed set that a record holds; none where its target is a number, an index or free text."""
    held = _held(spec, record)
    if has_word_labels(spec):
        found = [label for _, _, label in schemes.span_tuples(held.get("spans", ()))] or held.get("tags", ())
        return [label for label in found if label != schemes.OUTSIDE]
    label = held.get("label")
    return [each for each in (label if isinstance(label, list) else [label]) if isinstance(each, str)]


def fixed_labels(spec: RecordSpec) -> tuple[str, ...]:
    """The labels that a task has in every file; none where they come from the training records."""
    return next((field.labels for field in spec.fields if field.labels), ())


def label_names(spec: RecordSpec, labels: Sequence[str]) -> list[str]:
    """The labels that the task fixes, else a model's or those of `task.labels`, by the names that `labels_of` has for them: B-loc is loc."""
    labels = fixed_labels(spec) or labels
    if not has_word_labels(spec):
        return list(labels)
    return [schemes.parse_tag(name)[1] for name in labels if name != schemes.OUTSIDE]


def target_key(spec: RecordSpec, record: Record) -> str | None:
    """What has to be equal in records that ask the same; None where several answers may be right."""
    held = _held(spec, record)
    if "spans" in held:
        return schemes.format_spans(record[spec.inputs[0].key], schemes.span_tuples(held["spans"]))
    if has_word_labels(spec):
        return " ".join(held.get("tags", ()))
    if "answers" in held:
        return " / ".join(sorted({answer["text"] for answer in held["answers"]})) or "no answer"
    value = next((held[holds] for holds in ("label", "index", "number") if holds in held), None)
    return None if value is None else str(sorted(value, key=str) if isinstance(value, list) else value)
