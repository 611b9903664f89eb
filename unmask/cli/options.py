"""Options that commands share, worked examples, JSON output, and errors without a traceback."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from unmask import stopping
from unmask.cli.help import wrap_example
from unmask.console import Console
from unmask.console import write_json as print_json
from unmask.errors import UnknownTextWarning, UserError

OUTPUT = "Recipe and output"  # panel of `--help`
MODEL = "Model"

Model = Annotated[str, typer.Argument(help="Model folder, run folder or Hub model ID.", metavar="MODEL")]
Corpus = Annotated[
    list[str], typer.Argument(help="Paths, folders, globs, '-' (standard input) or sample:NAME.", metavar="CORPUS...")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and results.", rich_help_panel=OUTPUT)]
RecipeFile = Annotated[
    Path | None,
    typer.Option(
        "--recipe", help="YAML recipe; command-line flags take precedence.", metavar="FILE", rich_help_panel=OUTPUT
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a recipe key, e.g. train.save_steps=10; `unmask config` lists them. Repeatable.",
        metavar="KEY=VALUE",
        rich_help_panel=OUTPUT,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(help="Resume this run from its last checkpoint.", metavar="RUN", rich_help_panel=OUTPUT),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"],
    typer.Option(help="Device.", show_default="best available", rich_help_panel=MODEL),
]
Backend = Annotated[
    Literal["auto", "torch", "onnx", "static"],
    typer.Option(help="Inference engine.", show_default="that of the export, else torch", rich_help_panel=MODEL),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1, help="Texts per forward pass.", show_default="about 2,000 tokens", metavar="N", rich_help_panel=MODEL
    ),
]


def out_option(default: str) -> Any:
    """`--out FOLDER` of a run; `default` is shown."""
    return typer.Option(
        "--out",
        "-o",
        help="Folder of the run; never overwritten.",
        show_default=default,
        metavar="FOLDER",
        rich_help_panel=OUTPUT,
    )


def dry_run_option(help: str) -> Any:
    return typer.Option("--dry-run", help=help, rich_help_panel=OUTPUT)


def split_commas(text: str | None) -> list[str] | None:
    """
    >>> split_commas("neg, pos"), split_commas(None)
    (['neg', 'pos'], None)
    """
    return [part.strip() for part in text.split(",")] if text else None


def command(*examples: str) -> Callable:
    """Make a function a command whose help ends with worked examples.

    A user's mistake is printed without a traceback and exits with 2; Ctrl-C exits with 130, SIGTERM with 143."""

    def add(function: Callable) -> Callable:
        shown = "\n".join(f"  {line}" for example in examples for line in wrap_example(example))
        function.__doc__ = f"{cleandoc(function.__doc__ or '')}\n\n\b\nExamples:\n{shown}\n"

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                with plain_warnings():
                    return function(*args, **kwargs)
            except UserError as error:
                Console().fail(f"error: {error}")
                if kwargs.get("as_json"):
                    print_json({"error": error.message, "expected": error.expected, "hint": error.hint})
                raise typer.Exit(error.code) from None
            except BrokenPipeError:
                raise typer.Exit(0) from None
            except KeyboardInterrupt as stop:
                what, hint = stopping.message(stop, _command_line(function.__name__))
                Console().fail(f"{what}; to continue: {hint}")
                if kwargs.get("as_json"):
                    print_json({"error": what, "expected": None, "hint": hint})
                raise typer.Exit(stopping.exit_code(stop)) from None

        return run

    return add


def _command_line(function: str) -> str:
    """
    >>> _command_line("show_batch"), _command_line("tokenizer_train")
    ('unmask show-batch', 'unmask tokenizer train')
    """
    return "unmask " + function.replace("_", " " if function.startswith(("tokenizer", "cache")) else "-")


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings about a user's text each time, in one line on standard error; others as Python does."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *more: Any, **named: Any) -> None:
            if issubclass(category, UnknownTextWarning):
                Console().warn(str(message))
            else:
                others(message, category, *more, **named)

        warnings.showwarning = show
        warnings.simplefilter("always", UnknownTextWarning)
        yield
