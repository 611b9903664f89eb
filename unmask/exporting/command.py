"""A model, the file that it is measured on, and where the export goes: what `unmask export` puts together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.console import Console
from unmask.errors import UserError
from unmask.inference import labelled_files
from unmask.inference.folders import model_folder

LINES = 500  # of a text file, for a model without a task


@dataclass(frozen=True)
class Wanted:
    """What `unmask export` is asked for."""

    to: str = "onnx"
    int8: bool = False
    out: str | Path | None = None  # the folder; None = beside the model
    push: str = ""  # a name on the hub
    dry_run: bool = False


def export(
    model: str | Path, wanted: Wanted, data: Sequence[str], columns: dict[str, str], console: Console
) -> dict[str, Any]:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed", hint="pip install 'unmask[export]'") from None
    from unmask.exporting import export as gate

    if wanted.to not in gate.FORMATS:
        raise UserError(f"--to {wanted.to}", expected=", ".join(gate.FORMATS))
    if wanted.push:
        gate.check_name(wanted.push)
    folder = model_folder(model, console.say)
    place = Path(wanted.out) if wanted.out is not None else default_place(folder, wanted.int8)
    gate.check_free(place)
    source = gate.open_source(folder)
    if wanted.dry_run:
        return gate.plan(source, wanted.int8, place)
    measure = None if not data else _measure(source, data, columns, console)
    found = gate.export(source, place, wanted.int8, console, measure)
    return found | ({"pushed": gate.push(place, wanted.push)} if wanted.push else {})


def default_place(folder: str | Path, int8: bool) -> Path:
    """Beside the model; of a hub name, here.

    >>> str(default_place("runs/a/model", False)), str(default_place("owner/bert", True))
    ('runs/a/model-onnx', 'bert-onnx-int8')
    """
    ending = "-onnx-int8" if int8 else "-onnx"
    path = Path(folder)
    return path.with_name(path.name + ending) if path.is_dir() or path.parts[0] == "runs" else Path(path.name + ending)


def _measure(source: Any, data: Sequence[str], columns: dict[str, str], console: Console) -> Any:
    """What the file is for: the task's own metric; without a task, words found again."""
    from unmask.exporting.checks import masked_accuracy

    if source.task is not None:
        return lambda predictor: labelled_files.evaluate(predictor, data, columns, console)
    if source.model.config.decoder_layers or not {"mlm", "lm"} & set(source.model.heads):
        raise UserError(
            "--data with a model that is not fine-tuned and fills no mask: there is nothing to measure",
            hint="leave --data out",
        )
    lines: list[str] = []
    for path in data:
        try:
            lines += [line for line in Path(path).read_text("utf-8", "replace").splitlines() if line.strip()]
        except OSError as error:
            raise UserError(
                f"cannot read {path}: {error.strerror}", expected="a text file, a line per sentence"
            ) from None
    return masked_accuracy(lines[:LINES])
