"""The verb that searches settings: tune."""

from pathlib import Path
from typing import Annotated

import typer

from unmask.cli.finetuning import Columns, Files, roles
from unmask.cli.options import Json, Quiet, RecipeFile, Sets, emit, examples, friendly, make_console
from unmask.errors import UserError

APART = ("recipe", "sets", "out", "resume", "as_json", "quiet", "model", "trials", "minutes", "search")


@friendly
@examples(
    "unmask tune runs/docs/model --train train.csv --test test.csv --trials 20",
    "unmask tune runs/docs/model --train train.csv --minutes 60 --search lr,epochs,batch",
    "unmask tune --resume runs/tune/classify-1                       # go on after a kill or Ctrl-C",
    "unmask tune --resume runs/tune/classify-1 --trials 40           # or make it longer",
)
def tune(
    model: Annotated[str, typer.Argument(help="Model folder, run folder or hub name.")] = "",
    task: Annotated[str | None, typer.Option(help="As in unmask finetune. Default: as the file looks.")] = None,
    train: Files = None,
    dev: Annotated[list[str] | None, typer.Option(help="To compare by. Default: a tenth of --train.")] = None,
    test: Annotated[list[str] | None, typer.Option(help="To judge the best by, once, at the end.")] = None,
    column: Columns = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Settings to try. Default: 20.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="No trial is begun after so many.")] = None,
    search: Annotated[
        str | None, typer.Option(help="Of lr, epochs, batch, layer_decay, warmup, pooling. Default: all that apply.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Around which epochs are searched. Default: 3.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Budget of each trial in steps; epochs are then not searched.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Around which the batch is searched. Default: 16.")] = None,
    lr: Annotated[float | None, typer.Option(help="Around which the learning rate is searched.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens per row. Default: the model's, up to 512.")] = None,
    freeze: Annotated[str | None, typer.Option(help="encoder = only the head learns.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. Default: the best there is.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything drawn at random.")] = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder. Default: runs/tune/…")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run folder to go on with.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search learning rate, epochs, batch and more; keep the best model, judged and reported. Needs Optuna."""
    given = {name: value for name, value in locals().items() if name not in APART}
    from unmask import api

    console = make_console(quiet, as_json)
    if resume:
        extra = [name for name, value in {**given, "minutes": minutes, "search": search}.items() if value]
        if extra or model:
            raise UserError(
                f"--resume takes everything but --trials from the run; got {', '.join(extra or [model])} beside it",
                fix=f"unmask tune --resume {resume}",
            )
        run = api.resume_tune(resume, trials=trials, console=console)
    else:
        given["columns"] = roles(given.pop("column")) or None
        names = [x.strip() for x in search.split(",")] if search else None
        run = api.tune(
            model, trials=trials or 20, budget=minutes, search=names, recipe=recipe, out=out, sets=sets or (),
            console=console, **given,
        )  # fmt: skip
    results = run.read_json("results.json")
    if as_json:
        return emit(results)
    from unmask.tables import task_results

    task_results(results)
    typer.echo(f"\nthe best settings again: {results['command']}")


VERBS = {"tune": tune}
