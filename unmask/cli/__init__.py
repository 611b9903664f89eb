"""The command line: parse arguments, call a function of `unmask`, print the result. Nothing heavy is imported before a command is chosen."""

import os
import sys
from typing import Annotated, Any

import typer

from unmask import __version__, stopping
from unmask.cli import about, finetuning, labeling, learning, pretraining, searching, serving, text, using
from unmask.cli.flags import RecipeCommand, renamed_error
from unmask.cli.help import HelpGroup
from unmask.console import Console, write
from unmask.renamed import COMMANDS

# Panels of `unmask --help`, and their commands in order.
PANELS = {
    "Get started": (pretraining.quickstart, text.samples, about.presets),
    "Train": (learning.learn, pretraining.pretrain, finetuning.finetune, finetuning.tune),
    "Data": (finetuning.doctor, labeling.label, text.prepare, text.show_batch, text.TOKENIZER, text.CACHE),
    "Evaluate and predict": (finetuning.evaluate, finetuning.predict, about.info),
    "Use a pre-trained model": (
        using.fill, using.generate, using.score, using.embed, searching.search, using.explain, using.attention, using.next_sentence,
    ),
    "Deploy": (serving.serve, serving.studio, serving.export),
    "Configuration": (about.config, about.env),
}  # fmt: skip


class Group(HelpGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            renamed_error(f"unmask {args[0]}", f"unmask {COMMANDS[args[0]]}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Group,
    help="Train, fine-tune and serve BERT-style language models.\n\n"
    "Get started: unmask quickstart, or unmask pretrain FOLDER --minutes 5",
    no_args_is_help=True,
    rich_markup_mode="rich",
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


for _panel, _commands in PANELS.items():
    for _command in _commands:
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, rich_help_panel=_panel)
        else:
            app.command(cls=RecipeCommand, rich_help_panel=_panel)(_command)  # show_batch → show-batch


def main() -> None:
    try:
        stopping.handle_sigterm()
        app()
    except KeyboardInterrupt as stop:  # before a command was chosen
        what, then = stopping.message(stop, "unmask")
        Console().fail(f"{what}; to continue: {then}")
        sys.stderr.flush()
        os._exit(stopping.exit_code(stop))
    except SystemExit as end:
        if end.code in (130, 143):  # stopped: do not wait for threads that still compute
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise
