"""export.json: the file that makes a folder an export, and names its format."""

from pathlib import Path

from unmask.errors import UserError, quote
from unmask.files import format_value, read_object

FILE, VERSION = "export.json", 1
FORMATS = ("onnx", "static")  # each is run by the engine of that name


def export_format(folder: str | Path) -> str:
    """Return the format of an export, or "" if the folder is not an export.

    >>> export_format("no-such-folder")
    ''
    """
    file = Path(folder) / FILE
    if not file.is_file():
        return ""
    name = read_object(file).get("format", "onnx")
    if name not in FORMATS:
        raise UserError(f"{file}: the format is {format_value(name)}", expected=", ".join(FORMATS))
    return str(name)


def check_format(source: str | Path, folder: Path, expected: str) -> None:
    """Raise UserError if the folder is not an export in this format."""
    found = export_format(folder)
    if found == expected:
        return
    kind = {"onnx": "an ONNX export", "static": "a static copy"}
    if found:
        raise UserError(f"{source} is {kind[found]}, not {kind[expected]}", hint=f'use backend="{found}"')
    raise UserError(
        f"{source} is not an exported model: it has no {FILE}",
        expected="a folder written by unmask export",
        hint=f"unmask export {quote(Path(source))} --format {expected}",
    )
