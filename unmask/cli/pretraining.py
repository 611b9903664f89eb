"""Verbs that pre-train."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from unmask.cli.options import (
    Json,
    MaskUnit,
    Quiet,
    RecipeFile,
    Sets,
    emit,
    examples,
    friendly,
    make_console,
    text_options,
)
from unmask.console import write
from unmask.errors import UserError, command


@friendly
@examples(
    "unmask quickstart",
    "unmask quickstart --minutes 1 --out runs/first",
    "unmask quickstart --resume runs/first                           # go on after a kill or Ctrl-C",
)
def quickstart(
    minutes: Annotated[float, typer.Option(help="Minutes of pre-training.")] = 5.0,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    seed: int = 0,
    resume: Annotated[Path | None, typer.Option(help="Run folder to continue.")] = None,
    as_json: Json = False,
) -> None:
    """Movie reviews → tokenizer → pre-trained model → classifier, against TF-IDF. About 15 minutes on two cores."""
    from unmask import api

    console = make_console(False, as_json)
    if resume:
        result = api.resume(resume, console=console).results()
    else:
        result = api.quickstart(out, minutes=minutes, seed=seed, console=console)
    if as_json:
        emit(result)


@friendly
@examples(
    "unmask pretrain corpus/ --minutes 5",
    "unmask pretrain reviews.csv --column review --preset bert-mini --objective mlm+nsp --epochs 3",
    "unmask pretrain corpus/ --objective mlm --mask-unit word --mask-rate 0.3:0.15 --minutes 5",
    "unmask pretrain sample:python-docs --preset bert-tiny --steps 200 --set train.checkpoint_every=50 --out runs/docs",
    "unmask pretrain corpus/ --from runs/docs/model --steps 500      # go on with another text",
    "unmask pretrain corpus/ --from runs/docs/model --extend-vocab 500 --mix sample:python-docs:0.2 --steps 500",
    "unmask pretrain --resume runs/docs                              # go on after a kill or Ctrl-C",
    "torchrun --nproc-per-node 2 -m unmask pretrain corpus/ --steps 1000 --out runs/two",
)
@text_options(after="lr")
def pretrain(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(help="Paths, folders, globs, '-', sample:NAME, or a prepared store.", metavar="CORPUS..."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="bert-tiny … bert-large, modernbert-mini … Default: modernbert-mini.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="mlm, mlm+nsp, mlm+sop, rtd, clm, span … Default: the family's own.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="Model folder or hub name to continue from.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Budget in minutes (measured once, then frozen as steps).")
    ] = None,
    tokens: Annotated[float | None, typer.Option(help="Budget in tokens.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps. Default: 1000.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Budget in passes over the text.")] = None,
    batch: Annotated[int | None, typer.Option(help="Rows per update.")] = None,
    length: Annotated[str | None, typer.Option(help="Tokens per row, or a schedule: 128:0.9,512:0.1.")] = None,
    mask_rate: Annotated[str | None, typer.Option(help="Share of tokens chosen, or START:END.")] = None,
    mask_unit: MaskUnit = None,
    lr: Annotated[float | None, typer.Option(help="AdamW's learning rate.")] = None,
    extend_vocab: Annotated[
        int | None, typer.Option(min=1, help="With --from: words of the corpus to add to the model's tokenizer.")
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="PATH:0.2 = a fifth of the rows from another text, against forgetting; repeatable."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. Default: the best there is.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32 or bf16. Default: bf16 where the device is fast at it.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything drawn at random.")] = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder, never overwritten. Default: runs/pretrain/…")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Run folder to continue, bit for bit.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print recipe, parameters, memory, steps and time; train nothing.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **text: Any,
) -> None:
    """Pre-train a model on text: tokenizer, preparation, training, report, all in one."""
    given = [name for name, value in locals().items() if value and name not in ("resume", "as_json", "quiet", "text")]
    given += [name for name, value in text.items() if value is not None]
    from unmask import api

    console = make_console(quiet, as_json)
    if resume:
        if given:
            raise UserError(
                f"--resume takes everything from the run; got {', '.join(given)} beside it",
                fix=command("unmask pretrain --resume", resume),
            )
        run = api.resume(resume, console=console)
    else:
        made = api.make_recipe(
            corpus or None, recipe, sets or (), preset=preset, objective=objective, start=start, minutes=minutes,
            tokens=tokens, steps=steps, epochs=epochs, batch=batch, length=length, mask_rate=mask_rate,
            mask_unit=mask_unit, lr=lr, extend_vocab=extend_vocab, mix=mix or None, device=device, precision=precision,
            seed=seed, **text,
        )  # fmt: skip
        if dry_run:
            expected = api.dry_run(recipe=made)
            if as_json:
                return emit(expected)
            from unmask.cli.show.tables import dry_run_text

            return write(dry_run_text(expected))
        run = api.pretrain(recipe=made, out=out, console=console)
    if int(os.environ.get("RANK", "0")):
        return  # one of several processes: the first one speaks
    if as_json:
        emit(api.info(run.path))
    elif quiet:
        write(str(run.path))
    else:
        write(api.info(run.path)["use"])


VERBS = {"quickstart": quickstart, "pretrain": pretrain}
