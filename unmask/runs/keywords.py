"""Python keywords → a recipe. Which there are, the fields of the recipe say: a setting that `unmask pretrain` has a flag for is a keyword
of the functions that pre-train, one that `unmask finetune` has a flag for is one of those that fine-tune. For editors, which read source,
`unmask/__init__.pyi` spells them out."""

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_origin

from unmask.errors import UserError, nearest
from unmask.hub import pin
from unmask.recipe import BUDGETS, Recipe
from unmask.settings import Setting, deep_merge, nested, settings_of

Texts = str | Path | Sequence[str | Path]
Corpora = Texts | None
AnyRecipe = str | Path | Recipe | dict[str, Any] | None
F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def keywords(verb: str) -> dict[str, Setting]:
    """Keyword → setting: of "pretrain", and of whatever works on its text, or of "finetune", and whatever tunes."""
    return {setting.keyword: setting for setting in settings_of(Recipe) if verb in setting.commands}


def takes_settings(verb: str) -> Callable[[F], F]:
    """The function's `**settings` are shown as a parameter each, by `help` and `inspect.signature`."""

    def show(function: F) -> F:
        *own, _ = inspect.signature(function).parameters.values()
        one = inspect.Parameter.KEYWORD_ONLY
        names = {parameter.name for parameter in own}
        more = {k: s for k, s in keywords(verb).items() if k not in names}
        each = [inspect.Parameter(k, one, default=None, annotation=_type(s)) for k, s in more.items()]
        function.__signature__ = inspect.Signature([*own, *each])  # type: ignore[attr-defined]
        return function

    return show


def _type(setting: Setting) -> Any:
    """What a keyword takes. None = as the recipe says."""
    wider: dict[Any, Any] = {list: Texts, dict: Mapping[str, str | int]}
    kinds = (wider.get(get_origin(kind), kind) for kind in setting.kinds)
    return functools.reduce(operator.or_, (*kinds, None))


def make_recipe(
    corpus: Corpora = None,
    recipe: AnyRecipe = None,
    overrides: Sequence[str] = (),
    **short: Any,
) -> Recipe:
    """A recipe file, then keywords, then `section.field=value` strings, each winning over the one before.

    >>> make_recipe("corpus/", minutes=5).train.minutes
    5.0
    """
    values = values_of(recipe)
    if corpus is not None:
        several = [corpus] if isinstance(corpus, str | Path) else corpus
        if not isinstance(several, list | tuple) or not all(isinstance(c, str | Path) for c in several):
            raise UserError(
                f"corpus: {corpus!r}", expected="a path, a folder, a glob, '-', sample:NAME, or a list of these"
            )
        values = deep_merge(values, {"data": {"corpus": [str(c) for c in several]}})
    if any(short.get(b) is not None for b in BUDGETS):  # a flag replaces the file's budget, whatever its unit
        values = deep_merge(values, {"train": dict.fromkeys(BUDGETS)})
    values = placed(values, "pretrain", short)
    if short.get("preset") and short.get("init_from"):
        raise UserError(
            f"--from {short['init_from']} is a model with a shape of its own; --preset {short['preset']} is another",
            hint="leave out one of them",
        )
    made = Recipe.build(values, [overrides] if isinstance(overrides, str) else list(overrides))
    return pinned(made.changed(init_from=model_in(made.init_from), distill={"teacher": model_in(made.distill.teacher)}))


def pinned(recipe: Recipe) -> Recipe:
    """The recipe with the commit of every model and tokenizer that it names on the hub, so that it means the same later."""
    parts = {"tokenizer": "path", "distill": "teacher", "task": "teacher"}
    start = pin(recipe.init_from)
    changed: dict[str, Any] = {} if start == recipe.init_from else {"init_from": start}
    for section, field in parts.items():
        named = getattr(getattr(recipe, section), field)
        if (found := pin(named)) != named:
            changed[section] = {field: found}
    return recipe.changed(**changed)


def values_of(recipe: AnyRecipe) -> dict[str, Any]:
    """What a recipe says: of one that is made, the fields that were given."""
    if isinstance(recipe, Recipe):
        return recipe.model_dump(exclude_unset=True)
    return recipe if isinstance(recipe, dict) else Recipe.read(recipe) if recipe is not None else {}


def placed(values: dict[str, Any], verb: str, short: dict[str, Any]) -> dict[str, Any]:
    """The values with those of the keywords at their places."""
    table = keywords(verb)
    unknown = sorted(set(short) - set(table))
    if unknown:
        raise UserError(f"unknown keyword {unknown[0]!r}{nearest(unknown[0], list(table))}", expected=", ".join(table))
    budgets = [f"--{name}" for name in BUDGETS if short.get(name) is not None]
    if len(budgets) > 1:
        raise UserError(
            f"{' and '.join(budgets)} each say how long to train",
            expected=f"one of {', '.join(f'--{name}' for name in BUDGETS if name in table)}",
            hint=f"leave out {' or '.join(budgets)}",
        )
    for name, value in short.items():
        if value is not None:
            values = deep_merge(values, nested(table[name].path, _listed(table[name], value)))
    return values


def _listed(setting: Setting, value: Any) -> Any:
    """A list may be given as one text or path, or with paths in it."""
    if get_origin(setting.field.annotation) is not list or not isinstance(value, str | Path | Iterable):
        return value
    if isinstance(value, str | Path):
        value = [text.strip() for text in str(value).split(",")] if setting.commas else [value]
    return [str(text) for text in value]


def model_in(folder: str) -> str:
    """A run folder stands for its model."""
    inner = Path(folder) / "model"
    return str(inner) if folder and (inner / "config.json").exists() else folder


def task_recipe(model: str | Path, recipe: AnyRecipe = None, overrides: Sequence[str] = (), **short: Any) -> Recipe:
    """As `make_recipe`, with fine-tuning's defaults below."""
    from unmask.runs import part

    values = deep_merge(values_of(recipe), {"init_from": model_in(str(model))} if model else {})
    values = placed(values, "finetune", short)
    made = part.make_recipe(values, [overrides] if isinstance(overrides, str) else list(overrides))
    if not made.init_from:
        raise UserError("no model to fine-tune", hint="unmask finetune MODEL --train FILE")
    return pinned(made)
