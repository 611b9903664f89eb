"""How `--help` shows parameters and examples: readable at 80 columns.

typer prints `<bool>` after a switch, `<list[str]>` after an argument, `{MODEL}` in the usage line and `(0.02)` as a default. Here a
switch has no type, an argument is `MODEL`, and a default is `0.02`.
"""

import shlex
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

MAX_CHOICES_WIDTH = 24  # characters of "auto|cpu|cuda|mps"; longer lists of choices are part of the help text
MAX_EXAMPLE_WIDTH = 76


class SimplifiedParams:
    """Mixin of commands and groups."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            simplify(param, ctx)
        return params


class HelpCommand(SimplifiedParams, TyperCommand):
    """A command with readable parameters in its help, and errors without the name of a Python exception."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [word for argument in args for word in argument.split("=", 1)]
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            message = error.message.replace("Value error, ", "").partition(", unable to parse")[0]
            options = error.param.opts if error.param else []
            value = next((repr(value) for option, value in pairwise(words) if option in options), "it")
            error.message = message.replace("Input should be", f"{value} must be")
            raise


class HelpGroup(SimplifiedParams, TyperGroup):
    """A group of commands whose own options are shown as those of a command."""


def simplify(param: Any, ctx: Any) -> None:
    """Replace the parts of typer's display that name Python types."""
    param._get_default_string = _default_string(param)
    if param.param_type_name == "argument":
        param.display_type_rich = lambda ctx: None
        name = param.display_name_raw.strip("[]")
        param._usage_display_name = lambda: name if param.required else f"[{name}]"
    elif getattr(param, "is_bool_flag", False):
        param.metavar = ""
    elif param.metavar is None:
        choices = param.display_type(ctx).strip("<>")
        if "|" in choices and len(choices) > MAX_CHOICES_WIDTH:
            param.help = f"{param.help} Choices: {choices.replace('|', ', ')}."
            choices = param.name.rpartition("_")[2].upper()
        param.metavar = choices


def _default_string(param: Any) -> Any:
    original = type(param)._get_default_string

    def default_string(**kwargs: Any) -> str:
        return param.show_default if kwargs["show_default_is_str"] else str(original(param, **kwargs))

    return default_string


def wrap_example(line: str) -> list[str]:
    """Break a long example before its options; a comment gets a line of its own.

    >>> wrap_example("unmask info runs/docs   # a run")
    ['unmask info runs/docs   # a run']
    >>> wrap_example("unmask pretrain reviews.csv --text-column review --preset bert-mini --objective mlm+nsp --epochs 3")
    ['unmask pretrain reviews.csv --text-column review --preset bert-mini \\\\', '    --objective mlm+nsp --epochs 3']
    """
    if len(line) <= MAX_EXAMPLE_WIDTH:
        return [line]
    code, _, comment = line.partition(" # ")
    lines = [f"# {comment.strip()}"] if comment else []
    words = _words(code)
    current = words[0]
    for n, word in enumerate(words[1:], 1):
        option = word.startswith("-")
        value = words[n + 1] if option and n + 1 < len(words) and not words[n + 1].startswith("-") else ""
        needed = len(f"{current} {word} {value}".rstrip()) if option else len(f"{current} {word}")
        starts_here = option or not words[n - 1].startswith("-")  # an option and its value stay on one line
        if starts_here and needed + 2 > MAX_EXAMPLE_WIDTH:
            lines.append(f"{current} \\")
            current = f"    {word}"
        else:
            current += f" {word}"
    return [*lines, current]


def _words(code: str) -> list[str]:
    """Split a command at blanks outside quotes, and keep the quotes."""
    lexer = shlex.shlex(code, posix=False, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)
