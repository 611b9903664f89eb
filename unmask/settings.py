"""Settings as people write them: nested values, YAML, and what is wrong with them in words. `recipe.py` says which there are."""

import re
from collections.abc import Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from unmask.errors import nearest


def merge(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, `more` winning.

    >>> merge({"a": {"x": 1}}, {"a": {"y": 2}})
    {'a': {'x': 1, 'y': 2}}
    """
    out = dict(base)
    for key, value in more.items():
        old = out.get(key)
        out[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def nested(path: str, value: Any) -> dict[str, Any]:
    """
    >>> nested("train.steps", 10)
    {'train': {'steps': 10}}
    """
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


NODES, DEPTH = (
    50_000,
    32,
)  # of one YAML text: a recipe has a few hundred values, three levels deep, and the names of files


class _Loader(yaml.SafeLoader):
    """Plain scalars as in YAML 1.2: PyYAML's 1.1 reads `off` as False, `64:1` as 3841 and `5e-4` as text.

    No anchors and aliases, with which a few lines stand for billions of values; and no text that is too long or too deep.
    """

    nodes = depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.composer.ComposerError(None, None, "anchors and aliases are not allowed", event.start_mark)
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        if self.nodes > NODES or self.depth > DEPTH:
            limit = f"more than {NODES:,} values" if self.nodes > NODES else f"nested more than {DEPTH} levels deep"
            raise yaml.composer.ComposerError(None, None, limit, event.start_mark)
        node = super().compose_node(parent, index)  # type: ignore[no-untyped-call]
        self.depth -= 1
        return node


class Dumper(yaml.SafeDumper):
    """Quotes text that either version of YAML would read as something else, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = node.value.replace("_", "")
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


_Loader.yaml_implicit_resolvers = {}  # none of 1.1's
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
    >>> load("{compile: off, lr: 5e-4, length: 64:1, lowercase: true}")
    {'compile': 'off', 'lr': 0.0005, 'length': '64:1', 'lowercase': True}
    """
    return yaml.load(text, _Loader)


def explain(error: ValidationError, root: type[BaseModel]) -> str:
    """One line per field, by its path as a user writes it."""
    unknown: list[str] = []  # lines
    wrong: dict[str, tuple[list[str], list[str]]] = {}  # path → (messages, values got)
    for problem in error.errors():
        path, model = _field(problem["loc"], root)
        where, kind = ".".join(path), problem["type"]
        if kind == "extra_forbidden":
            section = _field(problem["loc"][:-1], root)[1]
            valid = list(section.model_fields) if section else []
            unknown.append(f"unknown recipe key {where}{nearest(path[-1], valid)}; valid here: {', '.join(valid)}")
            continue
        message, got = problem["msg"].removeprefix("Value error, "), f"{problem['input']!r:.80}"
        if model and kind == "value_error":  # of fields taken together: the message names them
            got = ""
        elif model:
            message = f"a section, with the fields {', '.join(model.model_fields)}"
        messages, values = wrong.setdefault(where, ([], []))
        short = message.removeprefix("Input should be ")
        if message not in messages and short not in messages:
            messages.append(short if messages else message)
        if got and got not in values:
            values.append(got)
    return "\n".join(
        unknown
        + [
            f"recipe key {where}: {' or '.join(messages)}" + (f" (got {', '.join(values)})" if values else "")
            for where, (messages, values) in wrong.items()
        ]
    )


def _field(loc: Sequence[str | int], root: type[BaseModel]) -> tuple[list[str], type[BaseModel] | None]:
    """A field's path, without what pydantic adds below it (kinds of a union, places in a list); its section, if one."""
    path: list[str] = []
    model: type[BaseModel] | None = root
    for part in loc:
        if model is None:
            break
        path.append(str(part))
        field = model.model_fields.get(str(part))
        kind = field.annotation if field else None
        model = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return path, model
