"""The verb that writes a model for other programs."""

from pathlib import Path
from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import recipe_flags
from unmask.cli.options import Json, Model, emit, verb
from unmask.console import Console, write


@verb(
    "unmask export runs/finetune/classify-1 --to onnx",
    "unmask export runs/finetune/classify-1 --to onnx --int8 --data test.csv -o classifier-int8",
    "unmask export runs/docs/model --to onnx --dry-run --json",
)
@recipe_flags("export")
def export(
    model: Model,
    to: Annotated[str, typer.Option(help="The format: onnx.")] = "onnx",
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights in 8 bits: smaller and faster, a little less exact.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder, never overwritten. Default: beside the model, MODEL-onnx."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Labelled file (text for a model without a task): the metric may fall by 0.5 points at most."
        ),
    ] = None,
    push: Annotated[str, typer.Option(help="Upload it to the Hugging Face hub under this name.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be written.")] = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Write a model as ONNX graphs that answer without torch. They are compared with the model first; what differs is refused."""
    from unmask.cli.show.export import lines

    found = unmask.export(
        model, to=to, int8=int8, out=out, data=data or (), push=push, dry_run=dry_run,
        console=Console(quiet=as_json), **settings,
    )  # fmt: skip
    return emit(found) if as_json else write(*lines(found))


VERBS = (export,)
