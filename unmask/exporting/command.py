"""unmask export: open the model, export it, and measure both on the user's data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.console import Console
from unmask.errors import UserError
from unmask.inference import labeled_files
from unmask.inference.exported import FORMATS
from unmask.inference.folders import model_folder

MAX_LINES = 500  # lines of a text file that are read for a model without a task


@dataclass(frozen=True)
class ExportOptions:
    """Options of `unmask export`."""

    format: str = "onnx"
    int8: bool = False
    out: str | Path | None = None  # the folder; None = next to the model
    push: str = ""  # a repository on the hub
    dry_run: bool = False


def export(
    model: str | Path, options: ExportOptions, data: Sequence[str], columns: dict[str, str], console: Console
) -> dict[str, Any]:
    check_options(options, data)
    from unmask.exporting import export as exporter

    if options.push:
        exporter.check_repository(options.push)
    folder = model_folder(model, console.say)
    out = Path(options.out) if options.out is not None else default_folder(folder, options.format, options.int8)
    exporter.check_free(out)
    source = exporter.open_source(folder)
    run = _export_static if options.format == "static" else _export_onnx
    result = run(source, out, options, data, columns, console)
    return result | ({"pushed": exporter.push(out, options.push)} if options.push and not options.dry_run else {})


def check_options(options: ExportOptions, data: Sequence[str]) -> None:
    """Raise UserError for options that do not belong together, and for missing packages."""
    if options.format not in FORMATS:
        raise UserError(f"unknown format {options.format}", expected=", ".join(FORMATS))
    if options.format == "static":
        if options.int8:
            raise UserError("--int8 is not available for --format static", hint="remove --int8")
        if not data:
            raise UserError(
                "--format static needs texts: the copy learns what the model predicts for them",
                expected="files with texts like those that you will predict; labels are not needed",
                hint="add --data FILE",
            )
        return
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed", hint="pip install 'unmask[export]'") from None


def _export_onnx(
    source: Any, out: Path, options: ExportOptions, data: Sequence[str], columns: dict[str, str], console: Console
) -> dict[str, Any]:
    from unmask.exporting import export as exporter

    exporter.check_exportable(source.model, source.task)
    if options.dry_run:
        return exporter.plan(source, options.int8, out)
    measure = _measure(source, data, columns, console) if data else None
    return exporter.export(source, out, options.int8, console, measure)


def _export_static(
    source: Any, out: Path, options: ExportOptions, data: Sequence[str], columns: dict[str, str], console: Console
) -> dict[str, Any]:
    from unmask.exporting import static

    texts = static.read_data(static.check_supported(source.task), data, columns, console)
    return static.plan(source, texts, out) if options.dry_run else static.export(source, texts, out, console)


def default_folder(folder: str | Path, format: str, int8: bool) -> Path:
    """Return a folder next to the model; for a model on the hub, a folder in the working directory.

    >>> str(default_folder("runs/a/model", "static", False)), str(default_folder("owner/bert", "onnx", True))
    ('runs/a/model-static', 'bert-onnx-int8')
    """
    path = Path(folder)
    name = f"{path.name}-{format}" + ("-int8" if int8 else "")
    return path.with_name(name) if path.is_dir() or path.parts[0] == "runs" else Path(name)


def _measure(source: Any, data: Sequence[str], columns: dict[str, str], console: Console) -> Any:
    """Return the metric on the user's data: the task's metric, or for a model without a task `masked_accuracy`."""
    from unmask.exporting.checks import masked_accuracy

    if source.task is not None:
        return lambda predictor: labeled_files.evaluate(predictor, data, columns, console)
    if source.model.config.decoder_layers or not {"mlm", "lm"} & set(source.model.heads):
        raise UserError(
            "--data needs a model that is fine-tuned or has an MLM or LM head: there is no metric for this one",
            hint="remove --data",
        )
    lines: list[str] = []
    for path in data:
        try:
            lines += [line for line in Path(path).read_text("utf-8", "replace").splitlines() if line.strip()]
        except OSError as error:
            expected = "a text file with one sentence per line"
            raise UserError(f"cannot read {path}: {error.strerror}", expected=expected) from None
    return masked_accuracy(lines[:MAX_LINES])
