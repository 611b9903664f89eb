"""The verb that searches settings: tune."""

from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import only_resume, recipe_flags
from unmask.cli.options import Json, Model, Out, Quiet, RecipeFile, Resume, Sets, emit, listed, verb
from unmask.console import Console, write


@verb(
    "unmask tune runs/docs/model --train train.csv --test test.csv --trials 20",
    "unmask tune runs/docs/model --train train.csv --minutes 60 --search lr,epochs,batch",
    "unmask tune --resume runs/tune/classify-1                       # go on after a kill or Ctrl-C",
    "unmask tune --resume runs/tune/classify-1 --trials 40           # or make it longer",
)
@recipe_flags("tune")
def tune(
    model: Model = "",
    trials: Annotated[int | None, typer.Option(min=1, help="Settings to try. Default: 20.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="No trial is begun after so many.")] = None,
    search: Annotated[
        str | None, typer.Option(help="Of lr, epochs, batch, layer_decay, warmup, pooling. Default: all that apply.")
    ] = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    out: Out = None,
    resume: Resume = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Search learning rate, epochs, batch and more around what is given; keep the best model, judged and reported. Needs Optuna."""
    from unmask.api import resume_tune
    from unmask.cli.show.tables import task_results

    console = Console(quiet=quiet or as_json)
    if resume:
        own = {model: model, "--minutes": minutes, "--search": search, "--recipe": recipe, "--set": sets, "--out": out}
        only_resume("tune", resume, own, settings, "but --trials ")
        run = resume_tune(resume, trials=trials, console=console)
    else:
        run = unmask.tune(
            model, trials=trials or 20, budget=minutes, search=listed(search), recipe=recipe, out=out, sets=sets or (),
            console=console, **settings,
        )  # fmt: skip
    results = run.read_json("results.json")
    if as_json:
        return emit(results)
    task_results(results)
    write(f"\nthe best settings again: {results['command']}")


VERBS = (tune,)
