"""Every JSON or YAML file that we did not just write ourselves is read here: model folders, run folders, tokenizers, recipes.

Such a file may be broken or hostile. Only regular files are opened (a FIFO or a device would block or never end), up to a
size, a number of values and a depth, and numbers are finite. Whatever is wrong is a `UserError` that names the file and,
where there is one, the field.

    settings = read_object(folder / "config.json")
    check(folder / "config.json", "num_labels", settings["num_labels"], positive)
"""

import json
import math
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from unmask.errors import UserError

SETTINGS = 16 << 20  # bytes of a JSON file with settings
RECIPE = 2 << 20  # bytes of a YAML file: a recipe of every field has 6 kB, but it may list thousands of files
VALUES = 1_000_000  # in a JSON file, unless the caller knows better
DEPTH = 64  # levels of nesting
LARGEST = 10**40  # transformers writes 10**30 for "no limit"
AGAIN = "copy or download the file again"


def open_regular(path: str | Path) -> BinaryIO:
    """A regular file, opened for reading; UserError for anything else, also where opening it would block."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise _irregular(path)
    return os.fdopen(number, "rb")


def is_there(path: str | Path) -> bool:
    """Also for what is no regular file, or a link to nothing: reading it then says so."""
    return os.path.lexists(path)


def size_of(path: str | Path) -> int:
    """Bytes of a regular file, which a library opens next."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(found.st_mode):
        raise _irregular(path)
    return found.st_size


def replace(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: someone may be looking at the one before it."""
    if isinstance(content, str):
        content = content.encode("utf-8", "replace")  # a lone surrogate in a file name must not lose the report
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)


def _irregular(path: str | Path) -> UserError:
    return UserError(f"cannot read {path}: not a regular file", valid="a file, not a folder, a pipe or a device")


def read_bytes(path: str | Path, most: int = SETTINGS) -> bytes:
    with open_regular(path) as handle:
        try:
            data = handle.read(most + 1)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}", fix=AGAIN) from None
        size = os.fstat(handle.fileno()).st_size
    if len(data) > most:
        raise UserError(f"{path} has {size:,} bytes", valid=f"at most {most:,}")
    return data


def read_text(path: str | Path, most: int = SETTINGS) -> str:
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: {error}", valid="text in UTF-8", fix=AGAIN) from None


def read_json(path: str | Path, most: int = SETTINGS, values: int = VALUES, finite: bool = True) -> Any:
    """`finite`: NaN and Infinity are refused; a log or the results of a run that went wrong may hold them."""
    try:
        return parse_json(read_text(path, most), values, finite)
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot read {path}: {error}", valid="JSON", fix=AGAIN) from None


def read_object(path: str | Path, most: int = SETTINGS, values: int = VALUES, finite: bool = True) -> dict[str, Any]:
    value = read_json(path, most, values, finite)
    if not isinstance(value, dict):
        raise UserError(f"{path} is {shown(value)}", valid="a JSON object: {…}", fix=AGAIN)
    return value


def read_yaml(path: str | Path) -> Any:
    import yaml

    from unmask.settings import load

    text = read_text(path, RECIPE)
    try:
        value = load(text)
        _check_values(value, finite=True)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}", valid="YAML without anchors and aliases") from None
    return value


def check_recipe(text: str) -> None:
    """Refuses a recipe that `read_yaml` would refuse, before a run is written that nothing can open."""
    import yaml

    from unmask.settings import load

    try:
        if (size := len(text.encode())) > RECIPE:
            raise ValueError(f"{size:,} bytes, and at most {RECIPE:,} are read")
        load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(
            f"the recipe of this run would be too large: {error}",
            valid="fewer files or labels by name",
            fix="name the folder of the files, or a pattern in quotes: 'texts/*.txt'",
        ) from None


def parse_json(text: str | bytes, values: int = VALUES, finite: bool = True) -> Any:
    """JSON within limits; ValueError says what is wrong.

    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json('{"a": 1e999}')
    Traceback (most recent call last):
    ValueError: a: inf is not a finite number
    """
    text = text.decode("utf-8") if isinstance(text, bytes) else text
    found = text.count(",") + text.count("[") + text.count("{")
    if found > values:
        raise ValueError(f"it holds about {found:,} values, and at most {values:,} are read")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEPTH} levels deep") from None
    _check_values(value, finite, surrogates="\\ud" in text.lower())
    return value


def _check_values(value: Any, finite: bool, surrogates: bool = False) -> None:
    """ValueError for what is nested too deeply, for numbers that nothing can hold, and for half a surrogate pair."""

    def bad(item: Any) -> str:
        if isinstance(item, float) and finite and not math.isfinite(item):
            return f"{item} is not a finite number"
        if not isinstance(item, str | int | float | list | dict | None):  # YAML's dates, sets and bytes
            return f"a value of the type {type(item).__name__}, which no setting has"
        if type(item) is int and abs(item) > LARGEST:
            return "a number of more than 40 digits"
        if surrogates and isinstance(item, str) and any("\ud800" <= c <= "\udfff" for c in item):
            return "a text with half of a surrogate pair"
        return ""

    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEPTH:
            raise ValueError(f"it is nested more than {DEPTH} levels deep")
        if any(bad(item) for item in level):
            where, why = next((where, bad(item)) for where, item in _leaves(value, "") if bad(item))
            raise ValueError(f"{where}: {why}".removeprefix(": "))
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
                below.extend(item if surrogates else ())
            elif isinstance(item, list):
                below.extend(item)
        level = below


def _leaves(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every value with its path, down to where the depth is allowed."""
    if depth < DEPTH and isinstance(value, dict):
        for key, item in value.items():
            yield where, key
            yield from _leaves(item, f"{where}.{key}".lstrip("."), depth + 1)
    elif depth < DEPTH and isinstance(value, list):
        for place, item in enumerate(value):
            yield from _leaves(item, f"{where}[{place}]", depth + 1)
    else:
        yield where, value


def shown(value: Any) -> str:
    """A value in a message: short, whatever it is.

    >>> shown([1, 2]), shown(None), shown("abc")
    ('a list', 'null', "'abc'")
    """
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


# ------------------------------------------------------------------------------------------------ fields

Rule = tuple[Callable[[Any], bool], str]  # whether a value is valid, and what is, in words


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


WORD: Rule = (lambda v: isinstance(v, str), "a text")
FLAG: Rule = (lambda v: isinstance(v, bool), "true or false")
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
        raise UserError(f"{path}: {field} is {shown(value)}", valid=f"{field}: {rule[1]}", fix=AGAIN)


def check_fields(
    path: str | Path, values: dict[str, Any], rules: dict[str, Rule], needed: tuple[str, ...] = (), within: str = ""
) -> None:
    """Every field that `rules` names, where it is there; and that all `needed` ones are."""
    for name in needed:
        if name not in values:
            raise UserError(f"{path}: {within}{name} is missing", valid=f"{within}{name}: {rules[name][1]}", fix=AGAIN)
    for name, rule in rules.items():
        if name in values:
            check(path, within + name, values[name], rule)
