"""Verbs of labelled files: finetune, evaluate, predict."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from unmask.cli.options import Json, Model, Quiet, RecipeFile, Sets, emit, examples, friendly, make_console
from unmask.errors import UserError

Files = Annotated[list[str] | None, typer.Option(help="Labelled file; repeat for several.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column", help="ROLE=NAME where a column has another name: text=review, label=stars.", metavar="ROLE=NAME"
    ),
]


def roles(columns: list[str] | None) -> dict[str, str]:
    """
    >>> roles(["text=review"])
    {'text': 'review'}
    """
    pairs = [text.partition("=") for text in columns or []]
    wrong = next((role for role, equals, name in pairs if not (role and equals and name)), None)
    if wrong is not None:
        raise UserError(f"--column {wrong}", valid="--column ROLE=NAME, e.g. --column text=review")
    return {role: name for role, _, name in pairs}


@friendly
@examples(
    "unmask finetune runs/docs/model --train train.csv --test test.csv",
    "unmask finetune runs/docs/model --task classify --train train.jsonl --column text=review --column label=stars",
    "unmask finetune runs/docs/model --train train.csv --test test.csv --seeds 5 --baseline",
    "unmask finetune --resume runs/finetune/classify-1               # go on after a kill or Ctrl-C",
)
def finetune(
    model: Annotated[str, typer.Argument(help="Model folder, run folder or hub name.")] = "",
    task: Annotated[
        str | None,
        typer.Option(help="classify, tag, answer, choose, generate, embed or rank. Default: as the file looks."),
    ] = None,
    train: Files = None,
    dev: Annotated[
        list[str] | None, typer.Option(help="To choose the best model by. Default: a tenth of --train.")
    ] = None,
    test: Annotated[list[str] | None, typer.Option(help="To judge it by, once, at the end.")] = None,
    column: Columns = None,
    labels: Annotated[
        str | None, typer.Option(help="Labels in the model's order: neg,pos. Default: those of --train.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the records. Default: 3.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps instead.")] = None,
    batch: Annotated[int | None, typer.Option(help="Rows per update. Default: 16.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate. Default: by the model's width.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens per row. Default: the model's, up to 512.")] = None,
    long: Annotated[str | None, typer.Option(help="Longer texts: windows (read whole), first (cut) or refuse.")] = None,
    pooling: Annotated[str | None, typer.Option(help="mean or cls. Default: the model's own.")] = None,
    freeze: Annotated[str | None, typer.Option(help="encoder = only the head learns.")] = None,
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
        bool, typer.Option("--baseline", help="Also TF-IDF + linear, and the model without pre-training (classify).")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps. Default: the best there is.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything drawn at random.")] = None,
    recipe: RecipeFile = None,
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder. Default: runs/finetune/…")] = None,
    resume: Annotated[Path | None, typer.Option(help="Run folder to continue, bit for bit.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune a model on a labelled file: checked, trained, the best kept, judged, reported."""
    given = {
        name: value
        for name, value in locals().items()
        if name not in ("recipe", "sets", "out", "resume", "as_json", "quiet", "model")
    }
    from unmask import api

    console = make_console(quiet, as_json)
    if resume:
        extra = [name for name, value in given.items() if value]
        if extra or model:
            raise UserError(
                f"--resume takes everything from the run; got {', '.join(extra or [model])} beside it",
                fix=f"unmask finetune --resume {resume}",
            )
        run = api.resume_finetune(resume, console=console)
    else:
        given["baseline"] = baseline or None
        given["columns"] = roles(given.pop("column")) or None
        given["labels"] = [x.strip() for x in labels.split(",")] if labels else None
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
    from unmask.tables import task_results

    task_results(results)


@friendly
@examples(
    "unmask doctor train.csv test.csv --task classify",
    "unmask doctor data.jsonl --task classify --column text=review --model runs/docs/model --json",
)
def doctor(
    file: Annotated[
        list[str] | None, typer.Argument(help="Labelled files; train, dev or test in a name tells what one is for.")
    ] = None,
    task: Annotated[str, typer.Option(help="What the files are for. Default: as they look.")] = "auto",
    train: Files = None,
    dev: Files = None,
    test: Files = None,
    model: Annotated[str, typer.Option(help="The model to be fine-tuned: texts are measured by its rows.")] = "",
    column: Columns = None,
    labels: Annotated[str | None, typer.Option(help="Labels that the model has: neg,pos.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Look for mistakes in labelled files: all of them at once, with file, line and what to do. Exit code 2 = errors."""
    from unmask import api

    found = api.doctor(
        file or (),
        task=task,
        train=train or (),
        dev=dev or (),
        test=test or (),
        model=model,
        columns=roles(column),
        labels=[x.strip() for x in labels.split(",")] if labels else None,
        sets=sets or (),
    )
    if as_json:
        emit(found)
    else:
        from unmask.tables import findings

        findings(found)
    if found["errors"]:
        raise typer.Exit(2)


@friendly
@examples(
    "unmask evaluate runs/finetune/classify-1 test.csv",
    "unmask evaluate runs/finetune/classify-1 test.csv --column text=review --json",
)
def evaluate(
    model: Model,
    file: Annotated[list[str], typer.Argument(help="Labelled file.")],
    column: Columns = None,
    as_json: Json = False,
) -> None:
    """Scores of a fine-tuned model on a labelled file."""
    from unmask import api

    results = api.evaluate(model, file, columns=roles(column), console=make_console(False, as_json))
    if as_json:
        return emit(results)
    from unmask.tables import scores

    scores(results)


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
    column: Columns = None,
    as_json: Json = False,
) -> None:
    """Answers of a fine-tuned model: to a text, to every record of a file, or to every line of standard input."""
    from unmask import api

    loaded = api.load(model)
    given: Any = list(text)
    if text == ["-"]:
        given = sys.stdin
    elif len(text) > 1 and loaded.need_task().takes()[1] != 1:  # parts of one question; else several texts
        given = [tuple(text)]
    answers = api.predict(loaded, given, columns=roles(column), console=make_console(False, as_json))
    if as_json:
        return emit(answers)
    from unmask.serve.show_answers import print_answers

    print_answers(answers)


VERBS = {"finetune": finetune, "doctor": doctor, "evaluate": evaluate, "predict": predict}
