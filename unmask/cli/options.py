"""What the verbs share: flags, worked examples, JSON, and mistakes said without a traceback."""

import inspect
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
Documents = Annotated[
    str | None, typer.Option(help="One document per file, block (blank lines), line or record. Default: detected.")
]
Column = Annotated[str | None, typer.Option(help="Column with the text (csv, tsv, jsonl, parquet).")]
Encoding = Annotated[str | None, typer.Option(help="Of text files. Default: UTF-8, else detected.")]
Language = Annotated[str | None, typer.Option(help="en or zh: rules for sentences and words. Default: detected.")]
MaskUnit = Annotated[str | None, typer.Option(help="token, word, span, ngram or named. Default: token.")]
Kind = Annotated[str | None, typer.Option(help="wordpiece, bpe, unigram, char or byte.")]
VocabSize = Annotated[
    int | None, typer.Option(help="Entries of the vocabulary. Default: 8192, or what the text supports.")
]
Cased = Annotated[bool, typer.Option("--cased", help="Keep upper case and accents.")]
Special = Annotated[
    list[str] | None, typer.Option("--special", help="A special token of your own; repeat for several.")
]
Tokenizer = Annotated[
    str | None, typer.Option("--tokenizer", help="Folder of a tokenizer to use instead of training one.")
]
Workers = Annotated[int | None, typer.Option(help="Processes that tokenize. Default: one per core.")]
Heldout = Annotated[float | None, typer.Option(help="Share of documents kept for evaluation.")]
RecipeFile = Annotated[Path | None, typer.Option("--recipe", help="A YAML recipe; flags win over it.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of the recipe: --set train.checkpoint_every=10.", metavar="KEY=VALUE"),
]

# Flags of labelled files, which `finetune`, `tune`, `doctor`, `evaluate` and `predict` share; `tune` searches around what is given.
Start = Annotated[str, typer.Argument(help="Model folder, run folder or hub name.")]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="classify, tag, answer, choose, generate, embed or rank. Default: as the file looks."),
]
Files = Annotated[list[str] | None, typer.Option(help="Labelled file; repeat for several.")]
Dev = Annotated[
    list[str] | None, typer.Option(help="To watch the training by, and tune thresholds. Default: a tenth of --train.")
]
Test = Annotated[list[str] | None, typer.Option(help="To judge it by, once, at the end.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="ROLE=NAME where a column has another name: text=review, label=stars; or its number, counted from 1: text=4.",
        metavar="ROLE=NAME",
    ),
]
Labels = Annotated[
    str | None, typer.Option("--labels", help="Labels in the model's order: neg,pos. Default: those of --train.")
]
Epochs = Annotated[float | None, typer.Option(help="Passes over the records. Default: 3.")]
Steps = Annotated[int | None, typer.Option(help="Budget in steps instead of epochs.")]
Batch = Annotated[int | None, typer.Option(help="Rows per update. Default: 16; of fewer than 2,000 records 8.")]
Rate = Annotated[float | None, typer.Option("--lr", help="Learning rate. Default: by the model's width.")]
Length = Annotated[int | None, typer.Option(help="Tokens per row. Default: the model's, up to 512.")]
Long = Annotated[str | None, typer.Option(help="Longer texts: windows (read whole), first (cut) or refuse.")]
Freeze = Annotated[str | None, typer.Option(help="encoder = only the head learns.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps. Default: the best there is.")]
Precision = Annotated[str | None, typer.Option(help="fp32 or bf16.")]
Seed = Annotated[int | None, typer.Option(help="Of everything drawn at random.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run folder, never overwritten. Default: runs/VERB/…")]
Resume = Annotated[Path | None, typer.Option(help="Run folder to go on with, as if it had never stopped.")]


def roles(columns: list[str] | None) -> dict[str, str]:
    """What `--column` says.

    >>> roles(["text=review"])
    {'text': 'review'}
    """
    pairs = [text.partition("=") for text in columns or []]
    wrong = next((role for role, equals, name in pairs if not (role and equals and name)), None)
    if wrong is not None:
        raise UserError(f"--column {wrong}", valid="--column ROLE=NAME or ROLE=NUMBER, e.g. --column text=review")
    return {role: name for role, _, name in pairs}


def listed(text: str | None) -> list[str] | None:
    """
    >>> listed("neg, pos"), listed(None)
    (['neg', 'pos'], None)
    """
    return [part.strip() for part in text.split(",")] if text else None


# The flags about text and tokenizer that `prepare` and `pretrain` have in common.
TEXT: dict[str, Any] = {
    "tokenizer": Tokenizer,
    "kind": Kind,
    "vocab_size": VocabSize,
    "cased": Cased,
    "special": Special,
    "documents": Documents,
    "column": Column,
    "encoding": Encoding,
    "language": Language,
    "heldout": Heldout,
    "workers": Workers,
}


def text_options(after: str) -> Callable:
    """Puts the flags of TEXT behind the parameter `after`; the function gets them as `**text`, by the recipe's names."""

    def add(function: Callable) -> Callable:
        own = list(inspect.signature(function).parameters.values())[:-1]  # without **text
        shared = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "cased" else None, annotation=kind
            )
            for name, kind in TEXT.items()
        ]
        at = [p.name for p in own].index(after) + 1
        named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

        @wraps(function)
        def run(**given: Any) -> Any:
            text = {name: given.pop(name) for name in TEXT}
            text["lowercase"] = False if text.pop("cased") else None
            text["special_tokens"] = text.pop("special") or None
            return function(**given, **text)

        run.__signature__ = inspect.Signature([*named[:at], *shared, *named[at:]])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
        return run

    return add


def examples(*lines: str) -> Callable:
    """Adds worked examples to a verb's help."""

    def add(function: Callable) -> Callable:
        shown = "\n".join(f"  {line}" for line in lines)
        function.__doc__ = f"{(function.__doc__ or '').strip()}\n\n\b\nExamples:\n{shown}\n"
        return function

    return add


def friendly(function: Callable) -> Callable:
    """A user's mistake is printed without a traceback and ends with exit code 2; Ctrl-C with 130, SIGTERM with 143."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with plain_warnings():
                return function(*args, **kwargs)
        except UserError as error:
            Console().fail(f"error: {error}")
            if kwargs.get("as_json"):
                emit({"error": error.got, "valid": error.valid, "fix": error.fix})
            raise typer.Exit(error.code) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except KeyboardInterrupt as stop:
            what, fix = stopping.message(stop, _verb(function.__name__))
            Console().fail(f"{what}; to continue: {fix}")
            if kwargs.get("as_json"):
                emit({"error": what, "valid": None, "fix": fix})
            raise typer.Exit(stopping.exit_code(stop)) from None

    return run


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


def make_console(quiet: bool, as_json: bool = False) -> Console:
    return Console(quiet=quiet or as_json)
