"""Settings: how to declare them, read them from YAML and explain validation errors. `recipe.py` declares them.

A field made by `setting` is the single source of a setting. The flags of the command line (`cli/flags.py`), the keywords of the
Python functions (`runs/keywords.py`), `--set`, YAML and `docs/recipe.md` are generated from it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from unmask.errors import nearest
from unmask.renamed import KEYS

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]  # 0 has a special meaning, given in the field's help
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
PositiveFraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
BelowOne = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]  # 4 is "4"


class Section(BaseModel):
    """A group of settings. An unknown key is an error that names the nearest valid one."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, validate_default=True)
    panel: ClassVar[str] = ""  # the panel of `--help` that lists the flags of its fields

    @classmethod
    def section(cls, name: str) -> "type[Section] | None":
        """Return the class of the section under a key, or None."""
        field = cls.model_fields.get(name)
        kind = field.annotation if field else None
        return kind if isinstance(kind, type) and issubclass(kind, Section) else None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the section. pydantic would silently keep an unknown field of `update`."""
        unknown = [name for name in update or {} if name not in type(self).model_fields and not self.section(name)]
        assert not unknown, f"{type(self).__name__} has no fields {unknown}"
        return super().model_copy(update=update, deep=deep)


def setting(default: Any, help: str, commands: Sequence[str] = (), **options: Any) -> Any:
    """Declare a field of a section: its default, its help text and the commands that have a flag for it.

    `options` are the other fields of `Setting`:

    - `keyword`: name in Python and on the command line, if the field's name is ambiguous (`tokenizer.type` is `tokenizer_type`)
    - `flag`: name of the flag, if it differs from the keyword
    - `switch`: (value, help) of a flag without an argument
    - `commas`: the flag takes one comma-separated list instead of being repeated
    - `shown`: default that `--help` prints, if the stored one means "automatic"
    - `metavar`, `panel`: for `--help`
    """
    return Field(default, description=help, json_schema_extra={"commands": list(commands), **options})


@dataclass(frozen=True)
class Setting:
    """A field with everything that flags, keywords and documentation need."""

    path: str  # "mlm.mask_rate"
    field: FieldInfo
    keyword: str
    commands: Sequence[str] = ()
    flag: str = ""
    switch: tuple[Any, str] | None = None
    commas: bool = False
    panel: str = ""
    shown: str = ""
    metavar: str = ""

    @property
    def help(self) -> str:
        return self.field.description or ""

    @property
    def kinds(self) -> tuple[Any, ...]:
        """Return its types without bounds: (float, NoneType)."""
        return _kinds(self.field.annotation)

    @property
    def stands_for(self) -> str:
        """Return the meaning of a default such as 0 or `auto`, if the help does not explain it."""
        default = self.field.default
        return self.shown if default in (0, "auto", "", []) and f"{default}: " not in self.help else ""

    @property
    def option(self) -> str:
        """Return its flag: `--mask-rate`."""
        return self.flag or f"--{self.keyword.replace('_', '-')}"


def _kinds(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(kind for part in get_args(annotation) for kind in _kinds(part))
    return (annotation,)


def settings_of(root: type[Section], path: str = "") -> list[Setting]:
    """List the fields of a section and of its subsections, in order of declaration."""
    settings: list[Setting] = []
    for name, field in root.model_fields.items():
        if inner := root.section(name):
            settings += settings_of(inner, f"{path}{name}.")
        else:
            options: Any = field.json_schema_extra or {}
            settings.append(Setting(path + name, field, **({"keyword": name, "panel": root.panel} | options)))
    return settings


def deep_merge(base: dict[str, Any], updates: dict[str, Any]) -> dict[str, Any]:
    """Merge nested dictionaries; `updates` takes precedence.

    >>> deep_merge({"a": {"x": 1}}, {"a": {"y": 2}})
    {'a': {'x': 1, 'y': 2}}
    """
    out = dict(base)
    for key, value in updates.items():
        old = out.get(key)
        out[key] = deep_merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def nested(path: str, value: Any) -> dict[str, Any]:
    """
    >>> nested("train.steps", 10)
    {'train': {'steps': 10}}
    """
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


# Limits of one YAML text. A recipe has a few hundred values, three levels deep, and file names.
MAX_NODES, MAX_DEPTH = 50_000, 32


class _Loader(yaml.SafeLoader):
    """Plain scalars as in YAML 1.2: PyYAML's 1.1 reads `off` as False, `64:1` as 3841 and `5e-4` as text.

    Anchors and aliases are rejected, because a few lines can expand to billions of values; so is text that is too long or too deep.
    """

    nodes = depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.composer.ComposerError(None, None, "anchors and aliases are not allowed", event.start_mark)
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        if self.nodes > MAX_NODES or self.depth > MAX_DEPTH:
            deep = self.depth > MAX_DEPTH
            limit = f"nested more than {MAX_DEPTH} levels deep" if deep else f"more than {MAX_NODES:,} values"
            raise yaml.composer.ComposerError(None, None, limit, event.start_mark)
        node = super().compose_node(parent, index)  # type: ignore[no-untyped-call]
        self.depth -= 1
        return node


class Dumper(yaml.SafeDumper):
    """Quote text that either YAML version would read as another type, and write no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = node.value.replace("_", "")
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


_Loader.yaml_implicit_resolvers = {}  # drop those of YAML 1.1
for _name, _pattern, _first in [
    ("null", r"null|Null|NULL|~|", [*"nN~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+", [*"-+0123456789"]),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
    ("merge", r"<<", ["<"]),
]:
    for _class in (_Loader, Dumper):  # the first match wins: int before float
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", _int)


def load(text: str) -> Any:
    """
    >>> load("{compile: off, lr: 5e-4, max_length: 64:1, lowercase: true}")
    {'compile': 'off', 'lr': 0.0005, 'max_length': '64:1', 'lowercase': True}
    """
    return yaml.load(text, _Loader)


def format_validation_error(error: ValidationError, root: type[Section]) -> str:
    """Return one line per invalid field, with its path as a user writes it."""
    unknown: list[str] = []  # lines
    invalid: dict[str, tuple[list[str], list[str]]] = {}  # path → (messages, values)
    for problem in error.errors():
        path, model = _field(problem["loc"], root)
        key, kind = ".".join(path), problem["type"]
        if kind == "extra_forbidden":
            section = _field(problem["loc"][:-1], root)[1]
            valid = list(section.model_fields) if section else []
            similar = nearest(path[-1], valid)
            if new := KEYS.get(_table_path(path)):
                unknown.append(f"recipe key {key} was renamed to {new}")
            else:
                known = similar or f"; expected one of {', '.join(valid)}"
                unknown.append(f"unknown recipe key {key}{known}")
            continue
        message, value = (
            problem["msg"].removeprefix("Value error, ").replace("Input should", "must", 1),
            f"{problem['input']!r:.80}",
        )
        if model and kind == "value_error":  # concerns several fields, and the message names them
            value = ""
        elif model:
            message = f"must be a section with the fields {', '.join(model.model_fields)}"
        messages, values = invalid.setdefault(key, ([], []))
        short = message.removeprefix("must be ")
        if message not in messages and short not in messages:
            messages.append(short if messages else message)
        if value and value not in values:
            values.append(value)
    return "\n".join(
        unknown
        + [
            f"recipe key {key}: {' or '.join(messages)}" + (f" (got {', '.join(values)})" if values else "")
            for key, (messages, values) in invalid.items()
        ]
    )


def _field(loc: Sequence[str | int], root: type[Section]) -> tuple[list[str], type[Section] | None]:
    """Split a location into the path of a field, without pydantic's additions (union members, list indices), and its section."""
    path: list[str] = []
    section: type[Section] | None = root
    for part in loc:
        if section is None:
            break
        path.append(str(part))
        section = section.section(str(part))
    return path, section


def _table_path(path: Sequence[str]) -> str:
    """Return the path of a field in the table of renamed keys, in which `tasks.NAME` is `task`."""
    return ".".join(("task", *path[2:]) if path[0] == "tasks" else path)
