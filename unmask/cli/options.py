"""What the verbs share: flags, worked examples, JSON, and mistakes said without a traceback."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from unmask import stopping
from unmask.console import Console
from unmask.console import write_json as emit
from unmask.errors import UnknownTextWarning, UserError

Model = Annotated[str, typer.Argument(help="Model folder, run folder or hub name.")]
Corpus = Annotated[
    list[str], typer.Argument(help="Paths, folders, globs, '-' (standard input) or sample:NAME.", metavar="CORPUS...")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and results.")]
RecipeFile = Annotated[Path | None, typer.Option("--recipe", help="A YAML recipe; flags win over it.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of the recipe: --set train.save_steps=10.", metavar="KEY=VALUE"),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run folder, never overwritten. Default: runs/VERB/…")]
Resume = Annotated[Path | None, typer.Option(help="Run folder to go on with, as if it had never stopped.")]


def listed(text: str | None) -> list[str] | None:
    """
    >>> listed("neg, pos"), listed(None)
    (['neg', 'pos'], None)
    """
    return [part.strip() for part in text.split(",")] if text else None


def verb(*examples: str) -> Callable:
    """A verb whose help ends with worked examples.

    A user's mistake is printed without a traceback and ends with exit code 2; Ctrl-C with 130, SIGTERM with 143."""

    def add(function: Callable) -> Callable:
        shown = "\n".join(f"  {line}" for line in examples)
        function.__doc__ = f"{(function.__doc__ or '').strip()}\n\n\b\nExamples:\n{shown}\n"

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                with plain_warnings():
                    return function(*args, **kwargs)
            except UserError as error:
                Console().fail(f"error: {error}")
                if kwargs.get("as_json"):
                    emit({"error": error.message, "expected": error.expected, "hint": error.hint})
                raise typer.Exit(error.code) from None
            except BrokenPipeError:
                raise typer.Exit(0) from None
            except KeyboardInterrupt as stop:
                what, hint = stopping.message(stop, _verb(function.__name__))
                Console().fail(f"{what}; to continue: {hint}")
                if kwargs.get("as_json"):
                    emit({"error": what, "expected": None, "hint": hint})
                raise typer.Exit(stopping.exit_code(stop)) from None

        return run

    return add


def _verb(function: str) -> str:
    """
    >>> _verb("show_batch"), _verb("tokenizer_train")
    ('unmask show-batch', 'unmask tokenizer train')
    """
    return "unmask " + function.replace("_", " " if function.startswith(("tokenizer", "cache")) else "-")


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings about a user's text are printed each time, in a line on standard error; others as Python does."""
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
