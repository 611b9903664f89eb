"""Verbs of labelled files: finetune, doctor, evaluate, predict, tune."""

import os
import sys
from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import only_resume, recipe_flags
from unmask.cli.options import Json, Model, Out, Quiet, RecipeFile, Resume, Sets, emit, listed, verb
from unmask.console import Console, write


@verb(
    "unmask finetune runs/docs/model --train train.csv --test test.csv",
    "unmask finetune runs/docs/model --task classify --train train.jsonl --column text=review --column label=stars",
    "unmask finetune runs/docs/model --train train.csv --test test.csv --num-seeds 5 --baseline",
    "unmask finetune runs/docs/model --train train.csv --dry-run     # what it would be: nothing is trained",
    "unmask finetune --resume runs/finetune/classify-1               # go on after a kill or Ctrl-C",
)
@recipe_flags("finetune")
def finetune(
    model: Model = "",
    recipe: RecipeFile = None,
    sets: Sets = None,
    out: Out = None,
    resume: Resume = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print columns, labels, lengths, findings, steps, memory and time; train and write nothing.",
        ),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Fine-tune a model on a labelled file: checked, trained, judged, reported."""
    from unmask.cli.show.tables import print_facts, rehearsal_lines, task_results

    console = Console(quiet=quiet or as_json)
    if resume:
        own = {model: model, "--recipe": recipe, "--set": sets, "--out": out, "--dry-run": dry_run}
        only_resume("finetune", resume, own, settings)
        run = unmask.resume(resume, console=console)
    elif dry_run:
        expected = unmask.dry_run_finetune(model, recipe=recipe, overrides=sets or (), console=console, **settings)
        return emit(expected) if as_json else print_facts(rehearsal_lines(expected))
    else:
        run = unmask.finetune(model, recipe=recipe, out=out, overrides=sets or (), console=console, **settings)
    if int(os.environ.get("RANK", "0")):
        return
    results = run.read_json("results.json") | {"model": str(run.model)}  # which may have been moved since
    if (run.path / "report.html").exists():
        results["report"] = str(run.path / "report.html")
    for name, part in (results.get("tasks") or {}).items():
        part["model"] = str(run.model / name)
    return emit(results) if as_json else task_results(results)


@verb(
    "unmask doctor train.csv test.csv --task classify",
    "unmask doctor data.jsonl --task classify --column text=review --model runs/docs/model --json",
)
@recipe_flags("doctor")
def doctor(
    file: Annotated[
        list[str] | None,
        typer.Argument(help="Labelled files; a name with train, dev (valid, val …) or test tells its role."),
    ] = None,
    model: Annotated[str, typer.Option(help="The model to be fine-tuned: texts are measured by its rows.")] = "",
    sets: Sets = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Look for mistakes in labelled files: a line per kind, the most serious last; --json lists all. Exit code 2 = errors."""
    from unmask.cli.show.tables import findings

    found = unmask.doctor(file or (), model=model, overrides=sets or (), **settings)
    emit(found) if as_json else findings(found)
    if found["errors"]:
        raise typer.Exit(2)


@verb(
    "unmask evaluate runs/finetune/classify-1 test.csv",
    "unmask evaluate runs/finetune/classify-1 reviews.csv --column text=review --json",
    "unmask evaluate runs/finetune/classify-1 test.csv --bad skip                   # rows without a label are left out",
    "unmask evaluate runs/docs/model text/ --pairs blimp.jsonl     # a pre-trained model: loss, perplexity, accuracy",
)
@recipe_flags("evaluate")
def evaluate(
    model: Model,
    file: Annotated[
        list[str], typer.Argument(help="Labelled file; for a pre-trained model text: files, folders, sample:NAME.")
    ],
    bad: Annotated[
        str,
        typer.Option(
            help="refuse = rows that cannot be read or scored are errors; skip = leave them out and list them."
        ),
    ] = "error",
    pairs: Annotated[
        str | None, typer.Option(help="Pre-trained model: minimal pairs too, a file as BLiMP's (see score --pairs).")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Pre-trained model: tokens of a row. Default: 128.")] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Pre-trained model: rows read, at most. Default: 2048.")
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Scores of a fine-tuned model on a labelled file, or loss and perplexity of a pre-trained one on any text."""
    from unmask.cli.show.tables import print_facts, scores

    results = unmask.evaluate(
        model,
        file,
        bad_rows=bad,
        minimal_pairs=pairs,
        max_length=max_length,
        max_rows=rows,
        console=Console(quiet=as_json),
        **settings,
    )
    if as_json:
        return emit(results)
    if "task" in results:
        return scores(results)
    from unmask.inference.evaluate_text import lines  # which imports torch

    print_facts(lines(results))


@verb(
    'unmask predict runs/finetune/classify-1 "what a film"',
    "unmask predict runs/finetune/classify-1 new.csv --json",
    "cat lines.txt | unmask predict runs/finetune/classify-1 -",
)
@recipe_flags("predict")
def predict(
    model: Model,
    text: Annotated[
        list[str],
        typer.Argument(help="Texts (of tasks that read two: the parts of one), a file, or - for lines of stdin."),
    ],
    predicate: Annotated[
        str | None, typer.Option(help="The word whose semantic roles are asked for; run#2: its second occurrence.")
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Answers of a fine-tuned model: to a text, to every record of a file, or to every line of standard input."""
    from unmask.cli.show.answers import print_answers

    loaded = unmask.load(model)
    given: Any = list(text)
    if text == ["-"]:
        given = sys.stdin
    elif len(text) > 1 and predicate is None and loaded.require_task().spec.num_inputs[1] != 1:
        given = [tuple(text)]  # parts of one question; else several texts
    answers = unmask.predict(loaded, given, predicate=predicate, console=Console(quiet=as_json), **settings)
    return emit(answers) if as_json else print_answers(answers, loaded.require_task().spec)


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
            model, trials=trials or 20, minutes=minutes, params=listed(search), recipe=recipe, out=out, overrides=sets or (),
            console=console, **settings,
        )  # fmt: skip
    results = run.read_json("results.json")
    if as_json:
        return emit(results)
    task_results(results)
    write(f"\nthe best settings again: {results['command']}")


VERBS = (finetune, doctor, evaluate, predict, tune)
