"""Flags and Python keywords → a recipe: short names for what is asked for most, one table for pre-training and one for
fine-tuning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.errors import UserError, nearest
from unmask.hub import pin
from unmask.recipe import BUDGETS, Recipe
from unmask.settings import merge, nested

Corpora = str | Path | Sequence[str | Path] | None
AnyRecipe = str | Path | Recipe | dict[str, Any] | None

# Short names (flags, Python keywords) → where they stand in a recipe.
SHORT = {
    "seed": "seed",
    "preset": "preset",
    "start": "start",
    "objective": "objective",
    "documents": "data.documents",
    "column": "data.column",
    "encoding": "data.encoding",
    "language": "data.language",
    "heldout": "data.heldout",
    "workers": "data.workers",
    "mix": "data.mix",
    "tokenizer": "tokenizer.path",
    "kind": "tokenizer.kind",
    "vocab_size": "tokenizer.vocab_size",
    "lowercase": "tokenizer.lowercase",
    "strip_accents": "tokenizer.strip_accents",
    "special_tokens": "tokenizer.special_tokens",
    "extend_vocab": "tokenizer.extend",
    "mask_rate": "mlm.rate",
    "mask_unit": "mlm.unit",
    "minutes": "train.minutes",
    "tokens": "train.tokens",
    "steps": "train.steps",
    "epochs": "train.epochs",
    "batch": "train.batch",
    "length": "train.length",
    "lr": "train.lr",
    "device": "train.device",
    "precision": "train.precision",
}


def make_recipe(
    corpus: Corpora = None,
    recipe: AnyRecipe = None,
    sets: Sequence[str] = (),
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
                f"corpus: {corpus!r}", valid="a path, a folder, a glob, '-', sample:NAME, or a list of these"
            )
        values = merge(values, {"data": {"corpus": [str(c) for c in several]}})
    if any(short.get(b) is not None for b in BUDGETS):  # a flag replaces the file's budget, whatever its unit
        values = merge(values, {"train": dict.fromkeys(BUDGETS)})
    values = placed(values, SHORT, short)
    if short.get("preset") and short.get("start"):
        raise UserError(
            f"--from {short['start']} is a model with a shape of its own; --preset {short['preset']} is another",
            fix="leave out one of them",
        )
    made = Recipe.build(values, [sets] if isinstance(sets, str) else list(sets))
    distill = made.distill.model_copy(update={"teacher": model_in(made.distill.teacher)})
    return pinned(made.model_copy(update={"start": model_in(made.start), "distill": distill}))


def pinned(recipe: Recipe) -> Recipe:
    """The recipe with the commit of every model and tokenizer that it names on the hub, so that it means the same later."""
    parts = {"tokenizer": "path", "distill": "teacher", "task": "teacher"}
    start = pin(recipe.start)
    changed: dict[str, Any] = {} if start == recipe.start else {"start": start}
    for section, field in parts.items():
        part = getattr(recipe, section)
        if (found := pin(getattr(part, field))) != getattr(part, field):
            changed[section] = part.model_copy(update={field: found})
    return recipe.model_copy(update=changed)


def values_of(recipe: AnyRecipe) -> dict[str, Any]:
    """What a recipe says: of one that is made, the fields that were given."""
    if isinstance(recipe, Recipe):
        return recipe.model_dump(exclude_unset=True)
    return recipe if isinstance(recipe, dict) else Recipe.read(recipe) if recipe is not None else {}


def placed(values: dict[str, Any], table: dict[str, str], short: dict[str, Any]) -> dict[str, Any]:
    """The values with those of the short names at their places."""
    unknown = sorted(set(short) - set(table))
    if unknown:
        raise UserError(f"unknown keyword {unknown[0]!r}{nearest(unknown[0], list(table))}", valid=", ".join(table))
    budgets = [f"--{name}" for name in BUDGETS if short.get(name) is not None]
    if len(budgets) > 1:
        raise UserError(
            f"{' and '.join(budgets)} each say how long to train",
            valid=f"one of {', '.join(f'--{name}' for name in BUDGETS if name in table)}",
            fix=f"leave out {' or '.join(budgets)}",
        )
    for name, value in short.items():
        if value is not None:
            values = merge(values, nested(table[name], value))
    return values


def model_in(folder: str) -> str:
    """A run folder stands for its model."""
    inner = Path(folder) / "model"
    return str(inner) if folder and (inner / "config.json").exists() else folder


# Short names (flags, Python keywords) → where they stand in a recipe, beside those of SHORT.
TASK_SHORT = {
    "task": "task.kind",
    "train": "task.train",
    "dev": "task.dev",
    "test": "task.test",
    "columns": "task.columns",
    "labels": "task.labels",
    "length": "task.length",
    "long": "task.long",
    "pooling": "task.pooling",
    "freeze": "task.freeze",
    "aux": "task.aux",
    "augment": "task.augment",
    "teacher": "task.teacher",
    "patience": "task.patience",
    "seeds": "task.seeds",
    "baseline": "task.baseline",
    **{name: SHORT[name] for name in ("seed", "minutes", "steps", "epochs", "batch", "lr", "device", "precision")},
}


def task_recipe(model: str | Path, recipe: AnyRecipe = None, sets: Sequence[str] = (), **short: Any) -> Recipe:
    """As `make_recipe`, with fine-tuning's defaults below."""
    from unmask.runs import part

    values = merge(values_of(recipe), {"start": model_in(str(model))} if model else {})
    for name in ("train", "dev", "test"):
        if (files := short.get(name)) is not None:
            short[name] = [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]
    values = placed(values, TASK_SHORT, short)
    made = part.make_recipe(values, [sets] if isinstance(sets, str) else list(sets))
    if not made.start:
        raise UserError("no model to fine-tune", fix="unmask finetune MODEL --train FILE")
    return pinned(made)
