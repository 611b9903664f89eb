"""Verbs of labelled files: finetune, evaluate, predict."""

import os
import sys
from typing import Annotated, Any

import typer

from unmask.cli import options as o
from unmask.cli.options import Json, Model, Quiet, RecipeFile, Sets, emit, examples, friendly, make_console
from unmask.errors import UserError, command

APART = (
    "recipe",
    "sets",
    "out",
    "resume",
    "dry_run",
    "as_json",
    "quiet",
    "model",
)  # flags that are no keywords of the recipe


@friendly
@examples(
    "unmask finetune runs/docs/model --train train.csv --test test.csv",
    "unmask finetune runs/docs/model --task classify --train train.jsonl --column text=review --column label=stars",
    "unmask finetune runs/docs/model --train train.csv --test test.csv --seeds 5 --baseline",
    "unmask finetune runs/docs/model --train train.csv --dry-run     # what it would be: nothing is trained",
    "unmask finetune --resume runs/finetune/classify-1               # go on after a kill or Ctrl-C",
)
def finetune(
    model: o.Start = "",
    task: o.TaskName = None,
    train: o.Files = None,
    dev: o.Dev = None,
    test: o.Test = None,
    column: o.Columns = None,
    labels: o.Labels = None,
    epochs: o.Epochs = None,
    steps: o.Steps = None,
    batch: o.Batch = None,
    lr: o.Rate = None,
    length: o.Length = None,
    long: o.Long = None,
    pooling: Annotated[str | None, typer.Option(help="mean or cls. Default: the model's own.")] = None,
    freeze: o.Freeze = None,
    aux: Annotated[str | None, typer.Option(help="mlm:0.1 = MLM on the same text as a second loss.")] = None,
    augment: Annotated[
        str | None, typer.Option(help="mlm:0.5 = half as many rows again, rewritten by the model.")
    ] = None,
    teacher: Annotated[str | None, typer.Option(help="A model fine-tuned for the task, to learn from.")] = None,
    patience: Annotated[int | None, typer.Option(help="Evaluations without a better one that end training.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Train from so many seeds: mean ± sd, the median model is kept.")
    ] = None,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline", help="Also what counted words (TF-IDF, BM25 …) reach, and the model without pre-training."
        ),
    ] = False,
    device: o.Device = None,
    precision: o.Precision = None,
    seed: o.Seed = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    out: o.Out = None,
    resume: o.Resume = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print columns, labels, lengths, findings, steps, memory and time; train and write nothing.",
        ),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune a model on a labelled file: checked, trained, judged, reported."""
    given = {name: value for name, value in locals().items() if name not in APART}
    from unmask import api

    console = make_console(quiet, as_json)
    if resume:
        extra = [f"--{name.replace('_', '-')}" for name, value in (given | {"dry_run": dry_run}).items() if value]
        if extra or model:
            raise UserError(
                f"--resume takes everything from the run; got {', '.join(extra or [model])} beside it",
                fix=command("unmask finetune --resume", resume),
            )
        run = api.resume_finetune(resume, console=console)
    else:
        given["baseline"] = baseline or None
        given["columns"] = o.roles(given.pop("column")) or None
        given["labels"] = o.listed(labels)
        if dry_run:
            expected = api.dry_run_finetune(model, recipe=recipe, sets=sets or (), console=console, **given)
            if as_json:
                return emit(expected)
            from unmask.cli.show.tables import rehearsal

            return rehearsal(expected)
        run = api.finetune(model, recipe=recipe, out=out, sets=sets or (), console=console, **given)
    if int(os.environ.get("RANK", "0")):
        return
    results = run.read_json("results.json") | {"model": str(run.model)}  # which may have been moved since
    if (run.path / "report.html").exists():
        results["report"] = str(run.path / "report.html")
    for name, part in (results.get("tasks") or {}).items():
        part["model"] = str(run.model / name)
    if as_json:
        return emit(results)
    from unmask.cli.show.tables import task_results

    task_results(results)


@friendly
@examples(
    "unmask doctor train.csv test.csv --task classify",
    "unmask doctor data.jsonl --task classify --column text=review --model runs/docs/model --json",
)
def doctor(
    file: Annotated[
        list[str] | None,
        typer.Argument(help="Labelled files; a name with train, dev (valid, val …) or test tells its role."),
    ] = None,
    task: Annotated[str, typer.Option(help="What the files are for. Default: as they look.")] = "auto",
    train: o.Files = None,
    dev: o.Files = None,
    test: o.Files = None,
    model: Annotated[str, typer.Option(help="The model to be fine-tuned: texts are measured by its rows.")] = "",
    column: o.Columns = None,
    labels: o.Labels = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Look for mistakes in labelled files: a line per kind, the most serious last; --json lists all. Exit code 2 = errors."""
    from unmask import api

    found = api.doctor(
        file or (),
        task=task,
        train=train or (),
        dev=dev or (),
        test=test or (),
        model=model,
        columns=o.roles(column),
        labels=o.listed(labels),
        sets=sets or (),
    )
    if as_json:
        emit(found)
    else:
        from unmask.cli.show.tables import findings

        findings(found)
    if found["errors"]:
        raise typer.Exit(2)


@friendly
@examples(
    "unmask evaluate runs/finetune/classify-1 test.csv",
    "unmask evaluate runs/finetune/classify-1 reviews.csv --column text=review --json",
    "unmask evaluate runs/finetune/classify-1 test.csv --bad skip                   # rows without a label are left out",
    "unmask evaluate runs/docs/model text/ --pairs blimp.jsonl     # a pre-trained model: loss, perplexity, accuracy",
)
def evaluate(
    model: Model,
    file: Annotated[
        list[str], typer.Argument(help="Labelled file; for a pre-trained model text: files, folders, sample:NAME.")
    ],
    column: o.Columns = None,
    bad: Annotated[
        str,
        typer.Option(
            help="refuse = rows that cannot be read or scored are errors; skip = leave them out and list them."
        ),
    ] = "refuse",
    pairs: Annotated[
        str | None, typer.Option(help="Pre-trained model: minimal pairs too, a file as BLiMP's (see score --pairs).")
    ] = None,
    length: Annotated[int | None, typer.Option(help="Pre-trained model: tokens of a row. Default: 128.")] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Pre-trained model: rows read, at most. Default: 2048.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Scores of a fine-tuned model on a labelled file, or loss and perplexity of a pre-trained one on any text."""
    from unmask import api

    results = api.evaluate(
        model, file, columns=o.roles(column), bad=bad, pairs=pairs, length=length, rows=rows,
        console=make_console(False, as_json),
    )  # fmt: skip
    if as_json:
        return emit(results)
    from unmask.cli.show.tables import scores, text_scores

    scores(results) if "task" in results else text_scores(results)


@friendly
@examples(
    'unmask predict runs/finetune/classify-1 "what a film"',
    "unmask predict runs/finetune/classify-1 new.csv --json",
    "cat lines.txt | unmask predict runs/finetune/classify-1 -",
)
def predict(
    model: Model,
    text: Annotated[
        list[str],
        typer.Argument(help="Texts (of tasks that read two: the parts of one), a file, or - for lines of stdin."),
    ],
    column: o.Columns = None,
    long: o.Long = None,
    predicate: Annotated[
        str | None, typer.Option(help="The word whose semantic roles are asked for; run#2: its second occurrence.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Answers of a fine-tuned model: to a text, to every record of a file, or to every line of standard input."""
    from unmask import api

    loaded = api.load(model)
    given: Any = list(text)
    if text == ["-"]:
        given = sys.stdin
    elif (
        len(text) > 1 and predicate is None and loaded.need_task().spec.parts[1] != 1
    ):  # parts of one question; else several texts
        given = [tuple(text)]
    console = make_console(False, as_json)
    answers = api.predict(loaded, given, columns=o.roles(column), long=long, predicate=predicate, console=console)
    if as_json:
        return emit(answers)
    from unmask.cli.show.answers import print_answers

    print_answers(answers, loaded.need_task().spec)


VERBS = {"finetune": finetune, "doctor": doctor, "evaluate": evaluate, "predict": predict}
