"""Flags generated from the recipe's fields: a setting that names a command is a flag of that command (`unmask/settings.py`)."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_origin

import typer
from typer.main import get_command
from typer.models import ArgumentInfo

from unmask.cli.help import HelpCommand
from unmask.console import Console
from unmask.errors import UserError, command
from unmask.renamed import FLAGS

if TYPE_CHECKING:
    from unmask.settings import Setting

# Panels of flags, in the order of `--help`.
PANELS = (
    "Data", "Model", "Budget (choose one)", "Optimization", "Evaluation", "Masking", "Tokenizer", "Hardware",
)  # fmt: skip


def recipe_flags(name: str) -> Callable:
    """Give a command its flags for settings, between its arguments and its own options.

    The function gets the given settings as `**settings`, by their keywords. `RecipeCommand` creates the flags.
    """

    def add(function: Callable) -> Callable:
        *options, _ = inspect.signature(function).parameters.values()  # without **settings

        @wraps(function)
        def run(**values: Any) -> Any:
            own = {p.name: values.pop(p.name) for p in options}
            return function(**own, **_keywords(name, values))

        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        run.command = name  # type: ignore[attr-defined]
        return run

    return add


class RecipeCommand(HelpCommand):
    """A command whose flags are created when its help or its arguments are parsed; until then neither the recipe nor pydantic is imported."""

    _flags_added = False

    @property
    def params(self) -> list[Any]:
        function: Any = getattr(self.callback, "__wrapped__", None)  # behind typer's own wrapper
        if not self._flags_added and hasattr(function, "command"):
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command()(_with_flags(function, function.command))
            complete = get_command(app)
            self._params, self.callback, self._flags_added = complete.params, complete.callback, True
        return self._params

    @params.setter
    def params(self, params: list[Any]) -> None:
        self._params = params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {option for param in self.params for option in param.opts}
        path = ctx.command_path.split(" ", 1)[-1]
        for arg in args:
            old = arg.partition("=")[0]
            new = FLAGS.get(path, {}).get(old) or FLAGS[""].get(old)
            if new and new in known and old not in known:
                renamed_error(old, new)
            if arg == "--":
                break
        return super().parse_args(ctx, args)


def renamed_error(old: str, new: str) -> NoReturn:
    Console().fail(f"error: {old} was renamed to {new}")
    raise typer.Exit(2)


def settings_of_command(name: str) -> "list[Setting]":
    """Return the settings that a command has a flag for, in the order of its help."""
    from unmask.recipe import Recipe
    from unmask.settings import settings_of

    settings = [s for s in settings_of(Recipe) if name in s.commands]
    for setting in settings:
        assert setting.panel in PANELS, f"{setting.path} has a flag and no panel; expected one of {', '.join(PANELS)}"
    return sorted(settings, key=lambda s: PANELS.index(s.panel))


def _with_flags(function: Callable, name: str) -> Callable:
    @wraps(function)
    def run(**values: Any) -> Any:
        return function(**values)

    own = inspect.signature(function).parameters.values()
    arguments = [p for p in own if any(isinstance(m, ArgumentInfo) for m in getattr(p.annotation, "__metadata__", ()))]
    flags = [_flag(setting, name) for setting in settings_of_command(name)]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in (*arguments, *flags, *(p for p in own if p not in arguments))
        ]
    )
    return run


def default_of_command(shown: str, command: str) -> str:
    """Return the part of a displayed default that concerns a command; `tune` has the defaults of `finetune`.

    >>> default_of_command("pretrain 32; finetune 16", "tune"), default_of_command("pretrain 32", "tune")
    ('16', '')
    >>> default_of_command("best available", "tune")
    'best available'
    """
    parts = dict(part.split(" ", 1) for part in shown.split("; ") if part.startswith(("pretrain ", "finetune ")))
    return parts.get("finetune" if command == "tune" else command, "") if parts else shown


def _flag(setting: "Setting", command: str) -> inspect.Parameter:
    """Build a flag whose default is None, or False for a switch."""
    kind, *other_kinds = (kind for kind in setting.kinds if kind is not NoneType)
    flag_type: Any = kind if kind in (int, float) and not other_kinds else str
    metavar: str | None = setting.metavar or {int: "N", float: "NUMBER"}.get(flag_type, "TEXT")
    if setting.switch or kind is bool:
        flag_type, metavar = bool, None
    elif get_origin(kind) is Literal and not other_kinds:
        flag_type, metavar = kind, None
    elif get_origin(kind) in (list, dict) and not setting.commas:
        flag_type = list[str]
    help = setting.switch[1] if setting.switch else setting.help
    default = setting.field.default
    default_text: Any = default_of_command(setting.shown, command) or (
        str(default) if default and not setting.shown and not isinstance(default, list | dict | bool) else False
    )
    option = typer.Option(
        setting.option,
        help=help,
        metavar=metavar,
        rich_help_panel=setting.panel,
        show_default=False if flag_type is bool else default_text,
    )
    return inspect.Parameter(
        setting.keyword,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if flag_type is bool else None,
        annotation=Annotated[flag_type if flag_type is bool else flag_type | None, option],
    )


def _keywords(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the given flags as keyword arguments of the Python function."""
    keywords = {}
    for setting in settings_of_command(name):
        value = values[setting.keyword]
        if value is None or value is False or value == []:
            continue
        if get_origin(setting.field.annotation) is dict:
            value = _column_map(value)
        keywords[setting.keyword] = setting.switch[0] if setting.switch else value
    return keywords


def _column_map(columns: list[str]) -> dict[str, str]:
    """
    >>> _column_map(["text=review"])
    {'text': 'review'}
    """
    pairs = [text.partition("=") for text in columns]
    wrong = next((role for role, equals, name in pairs if not (role and equals and name)), None)
    if wrong is not None:
        raise UserError(
            f"--column {wrong} has no column name",
            expected="--column ROLE=NAME or ROLE=NUMBER, e.g. --column text=review",
        )
    return {role: name for role, _, name in pairs}


def only_resume(name: str, run: Path, other_flags: dict[str, Any], settings: dict[str, Any], but: str = "") -> None:
    """Reject flags in addition to `--resume`, because a resumed run uses its own recipe."""
    flags = {setting.keyword: setting.option for setting in settings_of_command(name)}
    if extra := [option for option, value in other_flags.items() if value] + [flags[keyword] for keyword in settings]:
        raise UserError(
            f"{', '.join(extra)} cannot be combined with --resume, which takes all settings {but}from the run",
            hint=command(f"unmask {name} --resume", run),
        )
