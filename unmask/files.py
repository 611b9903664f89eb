"""Read files that may be broken or hostile, and write files atomically.

All JSON and YAML files of model folders, run folders, tokenizers and recipes are read here. Only regular files are opened (a
FIFO or a device would block). Their size, number of values and depth are limited, and numbers must be finite. Every problem is
a `UserError` that names the file and, if possible, the field (json_checks.py checks fields).

Files and folders are written as `NAME.PID.partial` next to their final path, synced and renamed, so that a kill or a power cut
leaves either the old version or the new one.
"""

import json
import math
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from unmask.errors import UserError

MAX_JSON_BYTES = 16 << 20
MAX_YAML_BYTES = 2 << 20  # a recipe with every field has 6 kB, but may list thousands of files
MAX_VALUES = 1_000_000  # in a JSON file
MAX_DEPTH = 64  # levels of nesting
MAX_INTEGER = 10**40  # transformers writes 10**30 for "no limit"
COPY_AGAIN = "copy or download the file again"


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading, without blocking; raise UserError for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _irregular(path)
    return os.fdopen(descriptor, "rb")


def path_exists(path: str | Path) -> bool:
    """Return whether a path exists. Special files and broken links count, so that reading them raises an error."""
    return os.path.lexists(path)


def file_size(path: str | Path) -> int:
    """Return the size of a file in bytes; raise UserError if it is not a regular file, which a library might wait for."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(status.st_mode):
        raise _irregular(path)
    return status.st_size


def _irregular(path: str | Path) -> UserError:
    return UserError(f"cannot read {path}: not a regular file", expected="a file, not a folder, a pipe or a device")


def read_bytes(path: str | Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    with open_regular(path) as handle:
        try:
            data = handle.read(max_bytes + 1)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}", hint=COPY_AGAIN) from None
        size = os.fstat(handle.fileno()).st_size
    if len(data) > max_bytes:
        raise UserError(f"{path} has {size:,} bytes", expected=f"at most {max_bytes:,}")
    return data


def read_text(path: str | Path, max_bytes: int = MAX_JSON_BYTES) -> str:
    try:
        return read_bytes(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: {error}", expected="text in UTF-8", hint=COPY_AGAIN) from None


def read_json(path: str | Path, max_bytes: int = MAX_JSON_BYTES, values: int = MAX_VALUES, finite: bool = True) -> Any:
    """Read JSON. `finite` rejects NaN and Infinity, which the log or the results of a diverged run may contain."""
    try:
        return parse_json(read_text(path, max_bytes), values, finite)
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot read {path}: {error}", expected="JSON", hint=COPY_AGAIN) from None


def read_object(
    path: str | Path, max_bytes: int = MAX_JSON_BYTES, values: int = MAX_VALUES, finite: bool = True
) -> dict[str, Any]:
    value = read_json(path, max_bytes, values, finite)
    if not isinstance(value, dict):
        raise UserError(f"{path} is {format_value(value)}", expected="a JSON object: {…}", hint=COPY_AGAIN)
    return value


def read_lines(path: str | Path) -> Iterator[Any]:
    """Yield the values of a JSON lines file. Only "\\n" ends a line: texts may contain U+2028 and U+0085."""
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    yield parse_json(line)
            except ValueError as error:
                raise UserError(
                    f"cannot read {path}, line {number}: {error}", expected="JSON lines", hint=COPY_AGAIN
                ) from None


def read_yaml(path: str | Path) -> Any:
    import yaml

    from unmask.settings import load

    text = read_text(path, MAX_YAML_BYTES)
    try:
        value = load(text)
        _check_values(value, finite=True)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}", expected="YAML without anchors and aliases") from None
    return value


def check_recipe(text: str) -> None:
    """Reject a recipe that `read_yaml` would reject, before a run is written that cannot be opened."""
    import yaml

    from unmask.settings import load

    try:
        if (size := len(text.encode())) > MAX_YAML_BYTES:
            raise ValueError(f"it has {size:,} bytes, and the limit is {MAX_YAML_BYTES:,}")
        load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(
            f"the recipe of this run would be too large: {error}",
            expected="fewer files or labels by name",
            hint="name the folder of the files, or a pattern in quotes: 'texts/*.txt'",
        ) from None


def parse_json(text: str | bytes, values: int = MAX_VALUES, finite: bool = True) -> Any:
    """Parse JSON within limits; raise ValueError with the reason.

    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json('{"a": 1e999}')
    Traceback (most recent call last):
    ValueError: a: inf is not a finite number
    """
    text = text.decode("utf-8") if isinstance(text, bytes) else text
    count = text.count(",") + text.count("[") + text.count("{")
    if count > values:
        raise ValueError(f"it has about {count:,} values, and the limit is {values:,}")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    _check_values(value, finite, surrogates="\\ud" in text.lower())
    return value


def _check_values(value: Any, finite: bool, surrogates: bool = False) -> None:
    """Raise ValueError for deep nesting, huge or non-finite numbers, types that are not in JSON, and lone surrogates."""

    def problem(item: Any) -> str:
        if isinstance(item, float) and finite and not math.isfinite(item):
            return f"{item} is not a finite number"
        if not isinstance(item, str | int | float | list | dict | None):  # YAML's dates, sets and bytes
            return f"a value of the type {type(item).__name__}, which is not allowed"
        if type(item) is int and abs(item) > MAX_INTEGER:
            return "a number of more than 40 digits"
        if surrogates and isinstance(item, str) and any("\ud800" <= c <= "\udfff" for c in item):
            return "a text with half of a surrogate pair"
        return ""

    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        if any(problem(item) for item in level):
            field, reason = next((field, problem(item)) for field, item in _leaves(value, "") if problem(item))
            raise ValueError(f"{field}: {reason}".removeprefix(": "))
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
                below.extend(item if surrogates else ())
            elif isinstance(item, list):
                below.extend(item)
        level = below


def _leaves(value: Any, field: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every value with its path, down to the maximum depth."""
    if depth < MAX_DEPTH and isinstance(value, dict):
        for key, item in value.items():
            yield field, key
            yield from _leaves(item, f"{field}.{key}".lstrip("."), depth + 1)
    elif depth < MAX_DEPTH and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{field}[{index}]", depth + 1)
    else:
        yield field, value


def format_value(value: Any) -> str:
    """Format a value for a message, shortened.

    >>> format_value([1, 2]), format_value(None), format_value("abc")
    ('a list', 'null', "'abc'")
    """
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


# ----------------------------------------------------------------------------------------------- writing


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path`, with its permissions, at the end of the block; after an error, `path` is unchanged."""
    partial = _partial(path)
    try:
        with open(partial, "wb") as file:
            if path.is_file():
                partial.chmod(stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    with new_file(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8", "replace"))  # a lone surrogate in a file name must not lose the report


def write_json(path: Path, value: Any, indent: int = 1, sort_keys: bool = False) -> None:
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False, sort_keys=sort_keys) + "\n")


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write JSON lines: one value per line."""
    with new_file(path) as file:
        for value in values:
            file.write((json.dumps(value, ensure_ascii=False) + "\n").encode("utf-8", "replace"))


@contextmanager
def new_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` at the end of the block; after an error, `path` is unchanged.

    Raise OSError if `path` exists and is not empty, unless `replace` is set.
    """
    partial = _partial(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    partial.mkdir()
    try:
        yield partial
        for item in partial.rglob("*"):
            sync(item)
        sync(partial)
        if replace and path.exists():
            old = path.with_name(f"{path.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            os.rename(path, old)
            rename(partial, path)
            shutil.rmtree(old)
        else:
            rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def rename(source: Path, target: Path) -> None:
    """Rename a complete file or folder so that the new name survives a power cut; a folder replaces only an empty one."""
    os.replace(source, target)
    with suppress(OSError):  # an unreadable folder, or a file system that cannot sync folders
        sync(target.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder. It is renamed first, so that a partly removed folder is never mistaken for a complete one."""
    renamed = path.with_name(f"{path.name}.partial-removed-{os.getpid()}")
    os.rename(path, renamed)
    shutil.rmtree(renamed)


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left while they wrote the file or folder `path`."""
    for leftover in path.parent.glob("*.partial"):
        name, _, pid = leftover.stem.rpartition(".")
        if name == path.name and (leftover == _partial(path) or not _alive(pid)):
            with suppress(OSError):  # another process was faster
                leftover.unlink() if leftover.is_file() else remove_folder(leftover)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.partial")


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        pass  # a process of another user
    return True
