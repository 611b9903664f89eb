"""Rows as training sees them, before it has begun: the first ones of a store, corrupted by the objective."""

from pathlib import Path

from unmask.inference.answers import MaskedBatch
from unmask.recipe import Recipe
from unmask.text.rows import Rows
from unmask.text.store import TokenStore


def show_batch(store: str | Path, recipe: Recipe, rows: int) -> MaskedBatch:
    """The first training rows of a store as the objective corrupts them: what is masked, random, kept."""
    from unmask.inference.examples import masked_batch
    from unmask.objectives.objective import build
    from unmask.train.loader import Loader
    from unmask.train.schedule import lengths, plan

    opened = TokenStore.open(store)
    if recipe.objective == "auto":
        recipe = recipe.model_copy(update={"objective": "mlm"})
    objective = build(recipe, opened.tokenizer)
    loader = Loader(Rows(opened.train, opened.tokenizer, recipe.seed, objective.rows), objective, recipe.seed)
    count = {n: loader.rows.count(n) for n, _ in lengths(recipe.train)}
    phase = plan(recipe, count).phase(0)
    examples = [loader.example(n, phase) for n in range(min(rows, count[phase.length]))]
    return masked_batch(examples, opened.tokenizer)
