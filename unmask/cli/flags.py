"""Flags made of the recipe's fields: a setting that names a verb is a flag of that verb (`unmask/settings.py`)."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer
from typer.core import TyperCommand
from typer.main import get_command
from typer.models import ArgumentInfo

from unmask.errors import UserError, command

if TYPE_CHECKING:
    from unmask.settings import Setting

# Groups of flags, in the order in which `--help` lists them.
PANELS = (
    "Model", "Budget (choose one)", "Optimization", "Evaluation", "Masking", "Data", "Tokenizer", "Hardware",
)  # fmt: skip


def recipe_flags(verb: str) -> Callable:
    """Gives a verb its flags for settings, between its arguments and its own flags.

    The function gets the settings that were given as `**settings`, by their keywords. `RecipeCommand` makes the flags.
    """

    def add(function: Callable) -> Callable:
        *own, _ = inspect.signature(function).parameters.values()  # without **settings

        @wraps(function)
        def run(**given: Any) -> Any:
            mine = {p.name: given.pop(p.name) for p in own}
            return function(**mine, **_keywords(verb, given))

        run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        run.verb = verb  # type: ignore[attr-defined]
        return run

    return add


class RecipeCommand(TyperCommand):
    """A verb whose flags are made when its help or its arguments are read. Until then nothing imports the recipe, nor pydantic."""

    _made = False

    @property
    def params(self) -> list[Any]:
        function: Any = getattr(self.callback, "__wrapped__", None)  # behind typer's own wrapper
        if not self._made and hasattr(function, "verb"):
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command()(_with_flags(function, function.verb))
            made = get_command(app)
            self._params, self.callback, self._made = made.params, made.callback, True
        return self._params

    @params.setter
    def params(self, params: list[Any]) -> None:
        self._params = params


def settings_of_verb(verb: str) -> "list[Setting]":
    """The settings that a verb has a flag for, in the order of its help."""
    from unmask.recipe import Recipe
    from unmask.settings import settings_of

    found = [setting for setting in settings_of(Recipe) if verb in setting.commands]
    for setting in found:
        assert setting.panel in PANELS, f"{setting.path} has a flag and no panel; expected one of {', '.join(PANELS)}"
    return sorted(found, key=lambda setting: PANELS.index(setting.panel))


def _with_flags(function: Callable, verb: str) -> Callable:
    @wraps(function)
    def run(**given: Any) -> Any:
        return function(**given)

    own = inspect.signature(function).parameters.values()
    arguments = [p for p in own if any(isinstance(m, ArgumentInfo) for m in getattr(p.annotation, "__metadata__", ()))]
    flags = [_flag(setting) for setting in settings_of_verb(verb)]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in (*arguments, *flags, *(p for p in own if p not in arguments))
        ]
    )
    return run


def _flag(setting: "Setting") -> inspect.Parameter:
    """A flag that is left out is None, or False where it takes no value."""
    kind, *others = (kind for kind in setting.kinds if kind is not NoneType)
    takes: Any = kind if kind in (int, float) and not others else str
    metavar = None
    if setting.switch or kind is bool:
        takes = bool
    elif get_origin(kind) in (list, dict) and not setting.commas:
        takes, metavar = list[str], "ROLE=NAME" if get_origin(kind) is dict else None
    help = setting.switch[1] if setting.switch else setting.help
    option = typer.Option(setting.option, help=help, metavar=metavar, rich_help_panel=setting.panel)
    default = False if takes is bool else None
    return inspect.Parameter(
        setting.keyword,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[takes if takes is bool else takes | None, option],
    )


def _keywords(verb: str, given: dict[str, Any]) -> dict[str, Any]:
    """What was given on the command line, as the keywords of the Python functions take it."""
    found = {}
    for setting in settings_of_verb(verb):
        value = given[setting.keyword]
        if value is None or value is False or value == []:
            continue
        if get_origin(setting.field.annotation) is dict:
            value = _roles(value)
        found[setting.keyword] = setting.switch[0] if setting.switch else value
    return found


def _roles(columns: list[str]) -> dict[str, str]:
    """What `--column` says.

    >>> _roles(["text=review"])
    {'text': 'review'}
    """
    pairs = [text.partition("=") for text in columns]
    wrong = next((role for role, equals, name in pairs if not (role and equals and name)), None)
    if wrong is not None:
        raise UserError(f"--column {wrong}", expected="--column ROLE=NAME or ROLE=NUMBER, e.g. --column text=review")
    return {role: name for role, _, name in pairs}


def only_resume(verb: str, run: Path, own: dict[str, Any], settings: dict[str, Any], but: str = "") -> None:
    """A run that is continued was told everything already: what is given beside `--resume` is refused."""
    flags = {setting.keyword: setting.option for setting in settings_of_verb(verb)}
    if extra := [name for name, value in own.items() if value] + [flags[keyword] for keyword in settings]:
        raise UserError(
            f"--resume takes everything {but}from the run; got {', '.join(extra)} beside it",
            hint=command(f"unmask {verb} --resume", run),
        )
