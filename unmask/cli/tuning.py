"""The verb that searches settings: tune."""

from typing import Annotated

import typer

from unmask.cli import options as o
from unmask.cli.options import Json, Quiet, RecipeFile, Sets, emit, examples, friendly, make_console
from unmask.console import write
from unmask.errors import UserError, command

APART = ("recipe", "sets", "out", "resume", "as_json", "quiet", "model", "trials", "minutes", "search")


@friendly
@examples(
    "unmask tune runs/docs/model --train train.csv --test test.csv --trials 20",
    "unmask tune runs/docs/model --train train.csv --minutes 60 --search lr,epochs,batch",
    "unmask tune --resume runs/tune/classify-1                       # go on after a kill or Ctrl-C",
    "unmask tune --resume runs/tune/classify-1 --trials 40           # or make it longer",
)
def tune(
    model: o.Start = "",
    task: o.TaskName = None,
    train: o.Files = None,
    dev: o.Dev = None,
    test: o.Test = None,
    column: o.Columns = None,
    labels: o.Labels = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Settings to try. Default: 20.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="No trial is begun after so many.")] = None,
    search: Annotated[
        str | None, typer.Option(help="Of lr, epochs, batch, layer_decay, warmup, pooling. Default: all that apply.")
    ] = None,
    epochs: o.Epochs = None,
    steps: o.Steps = None,
    batch: o.Batch = None,
    lr: o.Rate = None,
    length: o.Length = None,
    long: o.Long = None,
    freeze: o.Freeze = None,
    device: o.Device = None,
    precision: o.Precision = None,
    seed: o.Seed = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    out: o.Out = None,
    resume: o.Resume = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search learning rate, epochs, batch and more around what is given; keep the best model, judged and reported. Needs Optuna."""
    given = {name: value for name, value in locals().items() if name not in APART}
    from unmask import api

    console = make_console(quiet, as_json)
    if resume:
        extra = [name for name, value in {**given, "minutes": minutes, "search": search}.items() if value]
        if extra or model:
            raise UserError(
                f"--resume takes everything but --trials from the run; got {', '.join(extra or [model])} beside it",
                fix=command("unmask tune --resume", resume),
            )
        run = api.resume_tune(resume, trials=trials, console=console)
    else:
        given["columns"] = o.roles(given.pop("column")) or None
        given["labels"] = o.listed(labels)
        run = api.tune(
            model, trials=trials or 20, budget=minutes, search=o.listed(search), recipe=recipe, out=out, sets=sets or (),
            console=console, **given,
        )  # fmt: skip
    results = run.read_json("results.json")
    if as_json:
        return emit(results)
    from unmask.cli.show.tables import task_results

    task_results(results)
    write(f"\nthe best settings again: {results['command']}")


VERBS = {"tune": tune}
