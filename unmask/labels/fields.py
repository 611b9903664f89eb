"""Field: one named value of a record. The fields of a task say what its files hold, what it is asked and what it predicts."""

from dataclasses import dataclass
from typing import Literal

Holds = Literal["text", "texts", "label", "number", "grades", "spans", "tags", "answers", "index", "id", "file"]


@dataclass(frozen=True, slots=True)
class Field:
    """
    >>> Field("text", ("review", "body")).caption
    'TEXT'
    """

    name: str  # key in a record
    columns: tuple[str, ...] = ()  # what files usually call it
    holds: Holds = "text"
    use: Literal["input", "target", "other"] = (
        "input"  # read by the model, predicted by it, or only by the file's reader
    )
    required: bool = True
    min_count: int = 1  # texts, where it holds several
    caption: str = ""  # what it is called in examples of commands: "QUESTION"; its name in capitals unless given

    def __post_init__(self) -> None:
        object.__setattr__(self, "caption", self.caption or self.name.upper())
