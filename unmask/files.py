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

SETTINGS = 16 << 20  # maximum bytes of a JSON file with settings
RECIPE = 2 << 20  # maximum bytes of a YAML file; a recipe with every field has 6 kB, but may list thousands of files
VALUES = 1_000_000  # default maximum of values in a JSON file
DEPTH = 64  # maximum levels of nesting
LARGEST = 10**40  # maximum integer; transformers writes 10**30 for "no limit"
AGAIN = "copy or download the file again"


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading, without blocking; raise UserError for anything else."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise _irregular(path)
    return os.fdopen(number, "rb")


def is_there(path: str | Path) -> bool:
    """Whether a path exists. Special files and broken links count, so that reading them raises an error."""
    return os.path.lexists(path)


def size_of(path: str | Path) -> int:
    """Return the bytes of a regular file, before a library opens it."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(found.st_mode):
        raise _irregular(path)
    return found.st_size


def _irregular(path: str | Path) -> UserError:
    return UserError(f"cannot read {path}: not a regular file", expected="a file, not a folder, a pipe or a device")


def read_bytes(path: str | Path, max_bytes: int = SETTINGS) -> bytes:
    with open_regular(path) as handle:
        try:
            data = handle.read(max_bytes + 1)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}", hint=AGAIN) from None
        size = os.fstat(handle.fileno()).st_size
    if len(data) > max_bytes:
        raise UserError(f"{path} has {size:,} bytes", expected=f"at most {max_bytes:,}")
    return data


def read_text(path: str | Path, max_bytes: int = SETTINGS) -> str:
    try:
        return read_bytes(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: {error}", expected="text in UTF-8", hint=AGAIN) from None


def read_json(path: str | Path, max_bytes: int = SETTINGS, values: int = VALUES, finite: bool = True) -> Any:
    """Read JSON. `finite` rejects NaN and Infinity, which the log or the results of a diverged run may contain."""
    try:
        return parse_json(read_text(path, max_bytes), values, finite)
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"cannot read {path}: {error}", expected="JSON", hint=AGAIN) from None


def read_object(
    path: str | Path, max_bytes: int = SETTINGS, values: int = VALUES, finite: bool = True
) -> dict[str, Any]:
    value = read_json(path, max_bytes, values, finite)
    if not isinstance(value, dict):
        raise UserError(f"{path} is {shown(value)}", expected="a JSON object: {…}", hint=AGAIN)
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
                    f"cannot read {path}, line {number}: {error}", expected="JSON lines", hint=AGAIN
                ) from None


def read_yaml(path: str | Path) -> Any:
    import yaml

    from unmask.settings import load

    text = read_text(path, RECIPE)
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
        if (size := len(text.encode())) > RECIPE:
            raise ValueError(f"{size:,} bytes, and at most {RECIPE:,} are read")
        load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(
            f"the recipe of this run would be too large: {error}",
            expected="fewer files or labels by name",
            hint="name the folder of the files, or a pattern in quotes: 'texts/*.txt'",
        ) from None


def parse_json(text: str | bytes, values: int = VALUES, finite: bool = True) -> Any:
    """Parse JSON within limits; raise ValueError with the reason.

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
    """Raise ValueError for deep nesting, huge or non-finite numbers, types that JSON lacks, and lone surrogates."""

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
    """Yield every value with its path, down to the maximum depth."""
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
    """Format a value for a message, shortened.

    >>> shown([1, 2]), shown(None), shown("abc")
    ('a list', 'null', "'abc'")
    """
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


# ----------------------------------------------------------------------------------------------- writing


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` at the end of the block; after an error, `path` is unchanged."""
    partial = _partial(path)
    try:
        with open(partial, "wb") as file:
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
    for left in path.parent.glob("*.partial"):  # left by killed processes
        name, _, pid = left.stem.rpartition(".")
        if name == path.name and (left == partial or not _alive(pid)):
            with suppress(OSError):  # another process was faster
                remove_folder(left)
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
    doomed = path.with_name(f"{path.name}.partial-removed-{os.getpid()}")
    os.rename(path, doomed)
    shutil.rmtree(doomed)


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
