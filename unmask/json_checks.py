"""Check the fields of JSON files; an invalid one raises a `UserError` that names the file and the field.

settings = read_object(folder / "config.json")
check(folder / "config.json", "num_labels", settings["num_labels"], POSITIVE)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import COPY_AGAIN, format_value

Rule = tuple[Callable[[Any], bool], str]  # a predicate for valid values, and its description


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


STRING: Rule = (lambda v: isinstance(v, str), "a text")
BOOLEAN: Rule = (lambda v: isinstance(v, bool), "true or false")
COUNT: Rule = (lambda v: _is_int(v) and 0 <= v < 2**53, "a whole number, 0 or more")
POSITIVE: Rule = (lambda v: _is_int(v) and 0 < v < 2**53, "a whole number above 0")
NUMBER: Rule = (_is_number, "a number")
ABOVE_ZERO: Rule = (lambda v: _is_number(v) and v > 0, "a number above 0")
OBJECT: Rule = (lambda v: isinstance(v, dict), "an object: {…}")


def one_of(*names: str) -> Rule:
    return (lambda v: isinstance(v, str) and v in names), ", ".join(names)


def list_of(rule: Rule) -> Rule:
    return (lambda v: isinstance(v, list) and all(map(rule[0], v))), f"a list, each item {rule[1]}"


def or_null(rule: Rule) -> Rule:
    return (lambda v: v is None or rule[0](v)), f"{rule[1]}, or null"


def check(path: str | Path, field: str, value: Any, rule: Rule) -> None:
    if not rule[0](value):
        raise UserError(f"{path}: {field} is {format_value(value)}", expected=f"{field}: {rule[1]}", hint=COPY_AGAIN)


def check_fields(
    path: str | Path, values: dict[str, Any], rules: dict[str, Rule], required: tuple[str, ...] = (), prefix: str = ""
) -> None:
    """Check that all `required` fields are present, and that the present ones follow their rules."""
    for name in required:
        if name not in values:
            raise UserError(
                f"{path}: {prefix}{name} is missing", expected=f"{prefix}{name}: {rules[name][1]}", hint=COPY_AGAIN
            )
    for name, rule in rules.items():
        if name in values:
            check(path, prefix + name, values[name], rule)
