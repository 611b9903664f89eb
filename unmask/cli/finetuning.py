"""Commands for labeled files: finetune, doctor, evaluate, predict, tune."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import unmask
from unmask.cli.flags import only_resume, recipe_flags
from unmask.cli.options import (
    OUTPUT,
    Backend,
    BatchSize,
    Device,
    Json,
    Model,
    Overrides,
    Quiet,
    RecipeFile,
    Resume,
    command,
    dry_run_option,
    out_option,
    print_json,
    split_commas,
)
from unmask.console import Console, write

ON_TEXT = "Pre-trained model"  # panel of `evaluate --help`


@command(
    "unmask finetune runs/docs/model --train train.csv --test test.csv",
    "unmask finetune runs/docs/model --task classify --train train.jsonl --column text=review --column label=stars",
    "unmask finetune runs/docs/model --train train.csv --test test.csv --num-seeds 5 --baseline",
    "unmask finetune runs/docs/model --train train.csv --dry-run     # estimate; trains nothing",
    "unmask finetune --resume runs/finetune/classify-1               # continue after a kill or Ctrl-C",
)
@recipe_flags("finetune")
def finetune(
    model: Model = "",
    recipe: RecipeFile = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, out_option("runs/finetune/TASK-N")] = None,
    resume: Resume = None,
    dry_run: Annotated[
        bool, dry_run_option("Print columns, labels, lengths, problems, steps, memory and time; train nothing.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Fine-tune a model on labeled data.

    Checks the files, trains, evaluates and writes a report.
    """
    from unmask.cli.show.tables import finetune_dry_run_lines, print_facts, task_results

    console = Console(quiet=quiet or as_json)
    if resume:
        other_flags = {model: model, "--recipe": recipe, "--set": overrides, "--out": out, "--dry-run": dry_run}
        only_resume("finetune", resume, other_flags, settings)
        run = unmask.resume(resume, console=console)
    elif dry_run:
        expected = unmask.dry_run_finetune(model, recipe=recipe, overrides=overrides or (), console=console, **settings)
        return print_json(expected) if as_json else print_facts(finetune_dry_run_lines(expected))
    else:
        run = unmask.finetune(model, recipe=recipe, out=out, overrides=overrides or (), console=console, **settings)
    if int(os.environ.get("RANK", "0")):
        return
    results = run.read_json("results.json") | {"model": str(run.model)}  # the folder may have been moved since
    if (run.path / "report.html").exists():
        results["report"] = str(run.path / "report.html")
    for name, part in (results.get("tasks") or {}).items():
        part["model"] = str(run.model / name)
    return print_json(results) if as_json else task_results(results)


@command(
    "unmask doctor train.csv test.csv --task classify",
    "unmask doctor data.jsonl --task classify --column text=review --model runs/docs/model --json",
)
@recipe_flags("doctor")
def doctor(
    file: Annotated[
        list[str] | None,
        typer.Argument(help="Labeled files; train, dev or test in the file name sets the split.", metavar="FILE..."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Model to fine-tune: also check text lengths with its tokenizer.", metavar="MODEL")
    ] = "",
    overrides: Overrides = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Check labeled files.

    Lists every problem with file, line and a suggested fix, the most serious last. Exits with 2 if there are errors.
    """
    from unmask.cli.show.tables import findings

    report = unmask.doctor(file or (), model=model, overrides=overrides or (), **settings)
    print_json(report) if as_json else findings(report)
    if report["errors"]:
        raise typer.Exit(2)


@command(
    "unmask evaluate runs/finetune/classify-1 test.csv",
    "unmask evaluate runs/finetune/classify-1 reviews.csv --column text=review --json",
    "unmask evaluate runs/finetune/classify-1 test.csv --bad-rows skip",
    "unmask evaluate runs/docs/model text/ --minimal-pairs blimp.jsonl     # a pre-trained model: loss, perplexity, accuracy",
)
@recipe_flags("evaluate")
def evaluate(
    model: Model,
    file: Annotated[
        list[str],
        typer.Argument(
            help="Labeled file; for a pre-trained model: text files, folders or sample:NAME.", metavar="FILE..."
        ),
    ],
    bad_rows: Annotated[
        Literal["error", "skip"], typer.Option(help="Invalid rows: raise an error, or skip and list them.")
    ] = "error",
    minimal_pairs: Annotated[
        str | None,
        typer.Option(help="Also evaluate minimal pairs (BLiMP format).", metavar="FILE", rich_help_panel=ON_TEXT),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(help="Sequence length in tokens.", show_default="128", metavar="N", rich_help_panel=ON_TEXT),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum number of sequences.", show_default="2048", metavar="N", rich_help_panel=ON_TEXT
        ),
    ] = None,
    device: Device = "auto",
    batch_size: BatchSize = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Compute metrics on a labeled file or on text.

    Fine-tuned models: the metrics of the task. Pre-trained models: loss, perplexity and accuracy on any text.
    """
    from unmask.cli.show.tables import print_facts, scores

    loaded = unmask.load(model, device, batch_size=batch_size)
    results = unmask.evaluate(
        loaded, file, bad_rows=bad_rows, minimal_pairs=minimal_pairs, max_length=max_length, max_rows=max_rows,
        console=Console(quiet=as_json), **settings,
    )  # fmt: skip
    if as_json:
        return print_json(results)
    if "task" in results:
        return scores(results)
    from unmask.inference.evaluate_text import metric_lines  # imports torch

    print_facts(metric_lines(results))


@command(
    'unmask predict runs/finetune/classify-1 "what a film"',
    "unmask predict runs/finetune/classify-1 new.csv --json",
    "unmask predict runs/finetune/classify-1 new.csv -o predictions.csv",
    "cat lines.txt | unmask predict runs/finetune/classify-1 -",
)
@recipe_flags("predict")
def predict(
    model: Model,
    text: Annotated[
        list[str],
        typer.Argument(
            help="Texts, a file, or - for lines of stdin. For pair tasks, pass both texts.", metavar="TEXT..."
        ),
    ],
    predicate: Annotated[
        str | None,
        typer.Option(
            help="Predicate whose semantic roles to label; lives#2 is the second occurrence of lives.", metavar="WORD"
        ),
    ] = None,
    device: Device = "auto",
    batch_size: BatchSize = None,
    backend: Backend = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write to FILE: .csv or .jsonl.", metavar="FILE", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Predict with a fine-tuned model.

    The input is a text, every record of a file, or every line of standard input.
    """
    from unmask.cli.show.answers import check_out, print_answers, write_answers

    check_out(out)
    loaded = unmask.load(model, device, backend, batch_size)
    inputs: Any = list(text)
    if text == ["-"]:
        inputs = sys.stdin
    elif len(text) > 1 and predicate is None and loaded.require_task().spec.num_inputs[1] != 1:
        inputs = [tuple(text)]  # the inputs of one record; else several texts
    answers = unmask.predict(loaded, inputs, predicate=predicate, console=Console(quiet=as_json), **settings)
    if out is not None:
        return write_answers(answers, out)
    return print_json(answers) if as_json else print_answers(answers, loaded.require_task().spec)


@command(
    "unmask tune runs/docs/model --train train.csv --test test.csv --trials 20",
    "unmask tune runs/docs/model --train train.csv --minutes 60 --params lr,epochs,batch_size",
    "unmask tune --resume runs/tune/classify-1                       # continue after a kill or Ctrl-C",
    "unmask tune --resume runs/tune/classify-1 --trials 40           # extend the search",
)
@recipe_flags("tune")
def tune(
    model: Model = "",
    trials: Annotated[int | None, typer.Option(min=1, help="Number of trials.", show_default="20", metavar="N")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Start no new trial after this many minutes.", metavar="NUMBER")
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            help="Parameters to search: lr, epochs, batch_size, layerwise_lr_decay, warmup, pooling.",
            show_default="all that apply",
            metavar="NAME,…",
        ),
    ] = None,
    recipe: RecipeFile = None,
    overrides: Overrides = None,
    out: Annotated[Path | None, out_option("runs/tune/TASK-N")] = None,
    resume: Resume = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Search hyperparameters with Optuna.

    Searches around the given settings, keeps the best model, evaluates it and writes a report.
    """
    from unmask.api import resume_tune
    from unmask.cli.show.tables import task_results

    console = Console(quiet=quiet or as_json)
    if resume:
        other_flags = {model: model, "--minutes": minutes, "--params": params, "--recipe": recipe, "--set": overrides}
        only_resume("tune", resume, other_flags | {"--out": out}, settings, "but --trials ")
        run = resume_tune(resume, trials=trials, console=console)
    else:
        run = unmask.tune(
            model, trials=trials or 20, minutes=minutes, params=split_commas(params), recipe=recipe, out=out,
            overrides=overrides or (), console=console, **settings,
        )  # fmt: skip
    results = run.read_json("results.json")
    if as_json:
        return print_json(results)
    task_results(results)
    write(f"\nbest settings: {results['command']}")
