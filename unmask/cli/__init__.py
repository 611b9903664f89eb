"""The command line: parse, call a function of `unmask`, print. Nothing heavy is imported before a verb is chosen."""

import os
import sys
from typing import Annotated

import typer

from unmask import __version__, stopping
from unmask.cli import finetuning, pretraining, serving, text, using
from unmask.cli.flags import RecipeCommand
from unmask.console import Console, write

app = typer.Typer(
    help="From raw text to a masked language model you can use.\n\n"
    "Begin with: unmask quickstart, or unmask pretrain FOLDER --minutes 5",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(show: bool) -> None:
    if show:
        write(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for _part in (pretraining, finetuning, using, serving, text):
    for _verb in _part.VERBS:
        app.command(cls=RecipeCommand)(_verb)  # show_batch → show-batch
for _name, _group in text.GROUPS.items():
    app.add_typer(_group, name=_name)


def main() -> None:
    try:
        stopping.listen()
        app()
    except KeyboardInterrupt as stop:  # before a verb was chosen
        what, then = stopping.message(stop, "unmask")
        Console().fail(f"{what}; to continue: {then}")
        sys.stderr.flush()
        os._exit(stopping.exit_code(stop))
    except SystemExit as end:
        if end.code in (130, 143):  # stopped: what still computes in a thread is not waited for
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise
