"""The command learn."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

import unmask
from unmask.cli.flags import only_resume, recipe_flags
from unmask.cli.options import Json, Overrides, Quiet, Resume, command, dry_run_option, out_option, print_json
from unmask.console import Console, write


@command(
    "unmask learn reviews.csv --text more/ --test test.csv --minutes 8",
    'unmask learn --text more/ --words "positive: great wonderful best" --words "negative: terrible awful worst" --check few.csv',
    "unmask learn few.csv --text more/ --from runs/docs/model        # start from a model of yours",
    "unmask learn few.csv --text more/ --dry-run                     # what it will do; trains nothing",
    "unmask learn --resume runs/learn/classify-1                     # continue after a kill or Ctrl-C",
)
@recipe_flags("learn")
def learn(
    file: Annotated[
        list[str] | None,
        typer.Argument(help="Labeled files. Rows without a label count as unlabeled.", metavar="FILE..."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Unlabeled text: a file, a folder, a glob or sample:NAME. Repeatable.", metavar="PATH"),
    ] = None,
    check: Annotated[
        list[str] | None, typer.Option(help="Labeled file that checks the words of --words.", metavar="FILE")
    ] = None,
    copies: Annotated[
        bool, typer.Option("--copies", help="Also export smaller copies: a static model and int8 ONNX.")
    ] = False,
    overrides: Overrides = None,
    out: Annotated[Path | None, out_option("runs/learn/TASK-N")] = None,
    resume: Resume = None,
    dry_run: Annotated[bool, dry_run_option("Print the steps with their minutes; train nothing.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Learn a classifier from few labels or words, and unlabeled text.

    Pre-trains a model on the text, trains a linear model with self-training, fine-tunes the model, blends both, and says what to label next.
    """
    console = Console(quiet=quiet or as_json)
    if resume:
        other_flags = {" ".join(file or []): file, "--text": text, "--check": check, "--set": overrides}
        only_resume("learn", resume, other_flags | {"--out": out, "--dry-run": dry_run}, settings)
        run = unmask.resume(resume, console=console)
    else:
        given: dict[str, Any] = {"text": text, "check": check, "overrides": overrides or (), **settings}
        if dry_run:
            from unmask.cli.show.tables import learn_dry_run_lines, print_facts

            expected = unmask.dry_run_learn(file, console=console, **given)
            return print_json(expected) if as_json else print_facts(learn_dry_run_lines(expected))
        run = unmask.learn(file, out=out, console=console, **given)
    if int(os.environ.get("RANK", "0")):
        return
    if copies:
        from unmask.api_learn import add_copies

        add_copies(run, console)
    results = run.results()
    if as_json:
        return print_json(results | {"report": str(run.path / "report.html")})
    from unmask.report.learning import summary_lines

    write(f"\n{summary_lines(results)}\n\nreport: {run.path / 'report.html'}")
    write("next:\n" + "\n".join(f"  {line}" for line in results["commands"]))
