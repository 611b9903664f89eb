"""Verbs that pre-train."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import only_resume, recipe_flags
from unmask.cli.options import Json, Quiet, RecipeFile, Sets, emit, verb
from unmask.console import Console, write


@verb(
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
    console = Console(quiet=as_json)
    if resume:
        result = unmask.resume(resume, console=console).results()
    else:
        result = unmask.quickstart(out, minutes=minutes, seed=seed, console=console)
    if as_json:
        emit(result)


@verb(
    "unmask pretrain corpus/ --minutes 5",
    "unmask pretrain reviews.csv --text-column review --preset bert-mini --objective mlm+nsp --epochs 3",
    "unmask pretrain corpus/ --objective mlm --mask-unit word --mask-rate 0.3:0.15 --minutes 5",
    "unmask pretrain sample:python-docs --preset bert-tiny --steps 200 --set train.save_steps=50 --out runs/docs",
    "unmask pretrain corpus/ --from runs/docs/model --steps 500      # go on with another text",
    "unmask pretrain corpus/ --from runs/docs/model --extend-vocab 500 --replay sample:python-docs:0.2 --steps 500",
    "unmask pretrain --resume runs/docs                              # go on after a kill or Ctrl-C",
    "torchrun --nproc-per-node 2 -m unmask pretrain corpus/ --steps 1000 --out runs/two",
)
@recipe_flags("pretrain")
def pretrain(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(help="Paths, folders, globs, '-', sample:NAME, or a prepared store.", metavar="CORPUS..."),
    ] = None,
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
    **settings: Any,
) -> None:
    """Pre-train a model on text: tokenizer, preparation, training, report, all in one."""
    from unmask.cli.show.tables import dry_run_text

    console = Console(quiet=quiet or as_json)
    if resume:
        own = {"CORPUS": corpus, "--recipe": recipe, "--set": sets, "--out": out, "--dry-run": dry_run}
        only_resume("pretrain", resume, own, settings)
        run = unmask.resume(resume, console=console)
    elif dry_run:
        expected = unmask.dry_run(corpus or None, recipe=recipe, overrides=sets or (), **settings)
        return emit(expected) if as_json else write(dry_run_text(expected))
    else:
        run = unmask.pretrain(corpus or None, recipe=recipe, overrides=sets or (), out=out, console=console, **settings)
    if int(os.environ.get("RANK", "0")):
        return  # one of several processes: the first one speaks
    if as_json:
        emit(unmask.info(run.path))
    elif quiet:
        write(str(run.path))
    else:
        write(unmask.info(run.path)["example_command"])


VERBS = (quickstart, pretrain)
