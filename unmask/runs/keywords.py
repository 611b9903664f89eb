"""Build recipes from Python keywords.

The keywords of the functions that pre-train or fine-tune are the recipe fields that are flags of `unmask pretrain` or
`unmask finetune`. For editors, `unmask/__init__.pyi` lists them.
"""

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
# With few minutes, two layers reach a lower loss than four, because they see about twice as many tokens (docs/log.md).
SHORT_MINUTES, SHORT_PRESET = 10, "modernbert-tiny"
F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def keywords(verb: str) -> dict[str, Setting]:
    """Return keyword → setting for "pretrain" (and other commands on raw text) or "finetune" (and "tune")."""
    return {setting.keyword: setting for setting in settings_of(Recipe) if verb in setting.commands}


def takes_settings(verb: str) -> Callable[[F], F]:
    """Replace `**settings` in a function's signature by its keywords, for `help` and `inspect.signature`."""

    def decorate(function: F) -> F:
        *declared, _ = inspect.signature(function).parameters.values()
        names = {parameter.name for parameter in declared}
        settings = [
            inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(s))
            for k, s in keywords(verb).items()
            if k not in names
        ]
        function.__signature__ = inspect.Signature([*declared, *settings])  # type: ignore[attr-defined]
        return function

    return decorate


def _annotation(setting: Setting) -> Any:
    """Return the type of a keyword. None means the value in the recipe."""
    wider: dict[Any, Any] = {list: Texts, dict: Mapping[str, str | int]}
    types = (wider.get(get_origin(kind), kind) for kind in setting.kinds)
    return functools.reduce(operator.or_, (*types, None))


def make_recipe(
    corpus: Corpora = None,
    recipe: AnyRecipe = None,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> Recipe:
    """Build a recipe from a recipe file, keywords and `section.field=value` strings. Later ones take precedence.

    >>> make_recipe("corpus/", minutes=5).train.minutes
    5.0
    """
    values = values_of(recipe)
    if corpus is not None:
        sources = [corpus] if isinstance(corpus, str | Path) else corpus
        if not isinstance(sources, list | tuple) or not all(isinstance(source, str | Path) for source in sources):
            raise UserError(
                f"corpus: {corpus!r} is not a corpus",
                expected="a path, a folder, a glob, '-', sample:NAME, or a list of these",
            )
        values = deep_merge(values, {"data": {"corpus": [str(source) for source in sources]}})
    if any(settings.get(b) is not None for b in BUDGETS):  # a flag replaces the file's budget, whatever its unit
        values = deep_merge(values, {"train": dict.fromkeys(BUDGETS)})
    values = merge_keywords(values, "pretrain", settings)
    if settings.get("preset") and settings.get("init_from"):
        raise UserError(
            f"--from {settings['init_from']} determines the architecture, so --preset {settings['preset']} cannot be used with it",
            hint="remove one of them",
        )
    built = Recipe.build(values, [overrides] if isinstance(overrides, str) else list(overrides))
    if "preset" not in built.model_fields_set and 0 < (built.train.minutes or 0) <= SHORT_MINUTES:
        built = built.changed(preset=SHORT_PRESET)
    teacher = model_in(built.distill.teacher)
    return pin_revisions(built.changed(init_from=model_in(built.init_from), distill={"teacher": teacher}))


def pin_revisions(recipe: Recipe) -> Recipe:
    """Add the current commit to every model and tokenizer from the hub, so that the recipe means the same later."""
    init_from = pin(recipe.init_from)
    changed: dict[str, Any] = {} if init_from == recipe.init_from else {"init_from": init_from}
    for section, field in {"tokenizer": "path", "distill": "teacher", "task": "teacher"}.items():
        name = getattr(getattr(recipe, section), field)
        if (pinned := pin(name)) != name:
            changed[section] = {field: pinned}
    return recipe.changed(**changed)


def values_of(recipe: AnyRecipe) -> dict[str, Any]:
    """Return the values of a recipe file or dict, or those that were set in a `Recipe`."""
    if isinstance(recipe, Recipe):
        return recipe.model_dump(exclude_unset=True)
    return recipe if isinstance(recipe, dict) else Recipe.read(recipe) if recipe is not None else {}


def merge_keywords(values: dict[str, Any], verb: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a recipe with those of keywords merged in."""
    table = keywords(verb)
    unknown = sorted(set(settings) - set(table))
    if unknown:
        raise UserError(f"unknown keyword {unknown[0]!r}{nearest(unknown[0], list(table))}", expected=", ".join(table))
    budgets = [f"--{name}" for name in BUDGETS if settings.get(name) is not None]
    if len(budgets) > 1:
        raise UserError(
            f"{' and '.join(budgets)} cannot be combined: each sets the training budget",
            expected=f"one of {', '.join(f'--{name}' for name in BUDGETS if name in table)}",
            hint=f"remove {' or '.join(budgets)}",
        )
    for name, value in settings.items():
        if value is not None:
            values = deep_merge(values, nested(table[name].path, _as_list(table[name], value)))
    return values


def _as_list(setting: Setting, value: Any) -> Any:
    """Convert paths to strings, and the value of a list setting, which may be given as one string or path, to a list of strings."""
    if get_origin(setting.field.annotation) is not list or not isinstance(value, str | Path | Iterable):
        return str(value) if isinstance(value, Path) else value
    if isinstance(value, str | Path):
        value = [text.strip() for text in str(value).split(",")] if setting.commas else [value]
    return [str(text) for text in value]


def model_in(folder: str) -> str:
    """Return the model folder of a run folder; any other folder as it is."""
    inner = Path(folder) / "model"
    return str(inner) if folder and (inner / "config.json").exists() else folder


def learn_recipe(
    files: Corpora = None,
    text: Corpora = None,
    check: Corpora = None,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> Recipe:
    """Build the recipe of `unmask learn`, on top of the defaults of fine-tuning."""
    from unmask.runs import part

    paths = {"train": files, "unlabeled": text, "dev": check}
    task = {name: _list(value) for name, value in paths.items() if value}
    values = merge_keywords({"task": task}, "learn", settings)
    built = part.make_recipe(values, [overrides] if isinstance(overrides, str) else list(overrides))
    return pin_revisions(built.changed(init_from=model_in(built.init_from)))


def _list(value: Corpora) -> list[str]:
    return [str(value)] if isinstance(value, str | Path) else [str(path) for path in value or ()]


def task_recipe(model: str | Path, recipe: AnyRecipe = None, overrides: Sequence[str] = (), **settings: Any) -> Recipe:
    """Build a recipe like `make_recipe`, on top of the defaults of fine-tuning."""
    from unmask.runs import part

    values = deep_merge(values_of(recipe), {"init_from": model_in(str(model))} if model else {})
    values = merge_keywords(values, "finetune", settings)
    built = part.make_recipe(values, [overrides] if isinstance(overrides, str) else list(overrides))
    if not built.init_from:
        raise UserError("no model to fine-tune was given", hint="unmask finetune MODEL --train FILE")
    return pin_revisions(built)
