"""Fields of a task: the named values of its records, and which of them the model reads and predicts.

The data doctor, the dev split and `unmask predict` derive everything that they need from the fields, with the functions below.
The functions take a task's spec (`unmask/tasks/spec.py`) and use the part of it that `RecordSpec` declares.
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

# "place": a word of the text, or its character offsets [start, end).
Holds = Literal[
    "text", "texts", "place", "label", "number", "grades", "spans", "tags", "answers", "index", "id", "file"
]


@dataclass(frozen=True, slots=True)
class Field:
    """
    >>> Field("text", ("review", "body")).caption
    'TEXT'
    """

    name: str  # role in --column ROLE=NAME
    columns: tuple[str, ...] = ()  # usual column names
    holds: Holds = "text"
    use: Literal["input", "target", "other"] = (
        "input"  # read by the model, predicted by it, or used only by the reader of the file
    )
    required: bool = True
    min_count: int = 1  # texts, if it holds several
    caption: str = ""  # placeholder in example commands, such as "QUESTION"; default: the name in capitals
    key: str = ""  # key of the value in a record; default: the name
    or_file: bool = False  # --column may name a file instead of a column
    labels: tuple[str, ...] = ()  # the valid labels, if the task fixes them: doctor and finetune reject others

    def __post_init__(self) -> None:
        object.__setattr__(self, "caption", self.caption or self.name.upper())
        object.__setattr__(self, "key", self.key or self.name)


class RecordSpec(Protocol):
    """The part of a task's spec that describes its records."""

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
    """Return field name → usual column names."""
    return {field.name: field.columns for field in fields}


def required_fields(fields: Sequence[Field], labeled: bool = True) -> tuple[str, ...]:
    """Return the names of the required inputs and, if `labeled`, of the required targets.

    >>> required_fields((Field("label", use="target"), Field("text"), Field("pair", required=False)))
    ('text', 'label')
    """
    uses = ("input", "target") if labeled else ("input",)
    return tuple(field.name for use in uses for field in fields if field.use == use and field.required)


def required_targets(fields: Sequence[Field]) -> tuple[str, ...]:
    """Return the names of the required targets."""
    return tuple(field.name for field in fields if field.use == "target" and field.required)


def file_fields(fields: Sequence[Field]) -> tuple[str, ...]:
    """Return the names of the fields for which --column may name a file."""
    return tuple(field.name for field in fields if field.or_file or field.holds == "file")


def assign_columns(
    fields: Sequence[Field], source: Source, settings: TaskRecipe, needed: Sequence[str] = ()
) -> dict[str, str]:
    """Return field name → column: the user's choice, or else a usual name. Raise UserError if a field in `needed` has no column."""
    return map_columns(source.columns, usual_columns(fields), settings.columns, needed, source.path)


def detected_columns(fields: Sequence[Field], source: Source, settings: TaskRecipe) -> dict[str, str]:
    """Return field name → column for display, or {} if the columns cannot be assigned."""
    try:
        return assign_columns(fields, source, settings) if source.file_format == "table" else {}
    except UserError:  # `DataFormat.read` raises it with more detail
        return {}


# --------------------------------------------------------------------------------------------------- values of a record


def inputs_of(spec: RecordSpec, record: Record) -> tuple[str, ...]:
    """Return all inputs of a record, required ones first. Records with equal inputs should have the same label."""
    fields = sorted(spec.fields, key=lambda field: not (field.use == "input" and field.required))
    keys = [field.key for field in fields if field.use != "target" and field.holds not in ("id", "file")]
    values = [record[key] for key in keys if key in record]
    return tuple(str(text) for value in values for text in (value if isinstance(value, list) else [value]))


def group_key(spec: RecordSpec, record: Record) -> tuple[str, ...]:
    """Return the group of a record: its `group_by` field, or else its inputs. A dev split keeps a group on one side."""
    return (record[spec.group_by],) if spec.group_by in record else inputs_of(spec, record)


def rows_of(spec: RecordSpec, record: Record) -> list[tuple[str, ...]]:
    """Return the texts of each row that the model reads for a record."""
    texts = inputs_of(spec, record)
    list_field = next((f for f in spec.fields if f.use == "input" and f.holds == "texts"), None)
    if spec.output == "vector":
        return [(text,) for text in texts]
    if not spec.grouped or list_field is None:
        return [texts]
    shared = [record[f.key] for f in spec.fields if f.use == "input" and f is not list_field and f.key in record]
    return [(*shared, text) for text in record[list_field.key]]


def has_word_labels(spec: RecordSpec) -> bool:
    """Return whether the labels belong to words, not to records."""
    return any(field.holds in ("spans", "tags") for field in spec.fields)


def _target_values(spec: RecordSpec, record: Record) -> dict[str, Any]:
    return {field.holds: record[field.key] for field in spec.fields if field.use == "target" and field.key in record}


def labels_of(spec: RecordSpec, record: Record) -> list[str]:
    """Return the class labels of a record, or [] if its target is a number, an index or free text."""
    targets = _target_values(spec, record)
    if has_word_labels(spec):
        labels = [label for _, _, label in schemes.span_tuples(targets.get("spans", ()))] or targets.get("tags", ())
        return [label for label in labels if label != schemes.OUTSIDE]
    label = targets.get("label")
    return [item for item in (label if isinstance(label, list) else [label]) if isinstance(item, str)]


def fixed_labels(spec: RecordSpec) -> tuple[str, ...]:
    """Return the labels that the task fixes, or () if they come from the training records."""
    return next((field.labels for field in spec.fields if field.labels), ())


def label_names(spec: RecordSpec, labels: Sequence[str]) -> list[str]:
    """Return the labels that the task fixes, or else `labels`, in the form of `labels_of`: B-loc becomes loc."""
    labels = fixed_labels(spec) or labels
    if not has_word_labels(spec):
        return list(labels)
    return [schemes.parse_tag(name)[1] for name in labels if name != schemes.OUTSIDE]


def target_key(spec: RecordSpec, record: Record) -> str | None:
    """Return the target as text, to compare records with equal inputs, or None if several targets may be right."""
    targets = _target_values(spec, record)
    if "spans" in targets:
        return schemes.format_spans(record[spec.inputs[0].key], schemes.span_tuples(targets["spans"]))
    if has_word_labels(spec):
        return " ".join(targets.get("tags", ()))
    if "answers" in targets:
        return " / ".join(sorted({answer["text"] for answer in targets["answers"]})) or "no answer"
    value = next((targets[holds] for holds in ("label", "index", "number") if holds in targets), None)
    return None if value is None else str(sorted(value, key=str) if isinstance(value, list) else value)
