"""Form: what the labelled files of a task hold, before any model: which files are such, how rows become records, what a record asks.

A task (`tasks/`) is a form, a loss, and answers. The data doctor, the split into training and dev set, and `unmask predict` need the form alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from unmask.errors import UserError
from unmask.labels.fields import Field
from unmask.labels.records import Finding, Record, Source
from unmask.recipe import TaskRecipe
from unmask.text.columns import assign


class Form:
    fields: ClassVar[tuple[Field, ...]] = ()
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # of `fields`: role → what files usually call its column
    needed: ClassVar[tuple[str, ...]] = ()  # of `fields`: roles without which there is no record
    target: ClassVar[tuple[str, ...]] = ()  # of `fields`: roles without which a record has no label
    blocks: ClassVar[bool] = False  # whether the lines up to a blank one are one record, in a file without columns

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "fields" in vars(cls):
            cls.roles = {f.name: f.columns for f in cls.fields}
            cls.needed = tuple(f.name for f in cls.fields if f.use == "input" and f.required)
            cls.target = tuple(f.name for f in cls.fields if f.use == "target" and f.required)

    @classmethod
    def recognises(cls, source: Source) -> bool:
        """Whether a file looks like one of this task's."""
        return False

    @classmethod
    def settle(cls, sources: Sequence[Source], settings: TaskRecipe) -> TaskRecipe:
        """The settings with what the training files decide where they say `auto`, before a file is read."""
        return settings

    @classmethod
    def columns(cls, source: Source, settings: TaskRecipe) -> dict[str, str]:
        """Role → column of a table: what was taken for what, to be shown."""
        if source.form != "table" or not cls.roles:
            return {}
        try:
            return assign(source.columns, cls.roles, settings.columns, (), source.path)
        except UserError:  # `read` says it better
            return {}

    @classmethod
    def read(cls, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True) -> list[Record]:
        """A file's records, each with "at"; what is wrong goes to `findings`. Without `labelled`, labels are not read."""
        raise NotImplementedError(f"{cls.__name__}.read")

    @classmethod
    def ask(cls, *parts: Any) -> Record:
        """What a person types → a record without a label."""
        return dict(zip(cls.needed, parts, strict=True))

    @classmethod
    def asked(cls, record: Record) -> tuple[str, ...]:
        """Everything that a record asks: two that are equal here should have the same answer (for the data doctor)."""
        roles = [*cls.needed, *(role for role in cls.roles if role not in cls.needed and role not in cls.target)]
        values = [record[role] for role in roles if role in record and role != "id"]
        return tuple(str(text) for value in values for text in (value if isinstance(value, list) else [value]))

    @classmethod
    def together(cls, record: Record) -> list[tuple[str, ...]]:
        """The texts of a record that share a row: for what is longer than one."""
        return [cls.asked(record)]

    @classmethod
    def inseparable(cls, record: Record) -> tuple[str, ...]:
        """Records that are equal here stand on one side when a dev set is taken: those that ask the same, or of the same text."""
        return cls.asked(record)

    @classmethod
    def labels_in(cls, record: Record) -> list[str]:
        """The labels of a fixed set that a record holds; none where answers are numbers or written freely."""
        label = record.get("label")
        several = label if isinstance(label, list) else [label]
        return [each for each in several if isinstance(each, str)]

    @classmethod
    def kinds(cls, labels: Sequence[str]) -> list[str]:
        """Labels that a user gave (`task.labels`), by the names that `labels_in` has for them."""
        return list(labels)

    @classmethod
    def answered(cls, record: Record) -> str | None:
        """What has to be equal in records that ask the same; None where several answers may be right."""
        answer = record.get("label")
        return None if answer is None else str(sorted(answer, key=str) if isinstance(answer, list) else answer)
