"""Batches of several texts: `Loader` with some rows from elsewhere (`text/mix.py` says which)."""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.batch import Example, StepConfig
from unmask.errors import UserError
from unmask.objectives.objective import Objective
from unmask.recipe import Recipe
from unmask.seeds import stable_seed
from unmask.text.mix import InterleaveSchedule, ReplayPart
from unmask.text.rows import Rows
from unmask.text.store import Split, TokenStore
from unmask.train.loader import Loader


@dataclass(frozen=True)
class ReplaySource:
    """A text of the mix, prepared."""

    part: ReplayPart
    store: TokenStore


class ReplayLoader(Loader):
    def __init__(self, own: Loader, others: Sequence[Loader], turns: InterleaveSchedule):
        super().__init__(own.rows, own.objective, own.seed)
        self.loaders, self.turns = [own, *others], turns

    def before_and_after(self, number: int, phase: StepConfig) -> tuple[Example, Example]:
        which, n = self.turns.locate(number)
        return Loader.before_and_after(self.loaders[which], n, phase)

    def count(self, length: int) -> int:
        return self.turns.rows(self.rows.count(length))


def loader(store: TokenStore, mixed: Sequence[ReplaySource], recipe: Recipe, objective: Objective) -> Loader:
    """The loader of a run: its own rows, and those of the mix, each text with draws of its own."""
    own = _loader(store.train, store, recipe, objective, recipe.seed)
    if not mixed:
        return own
    others = []
    for n, other in enumerate(mixed):
        if other.store.tokenizer.fingerprint() != store.tokenizer.fingerprint():
            raise UserError(
                f"--replay: {other.part.source} was cut with another tokenizer than the corpus: its ids mean other words",
                hint="give the text itself in place of the store: it is then cut alike",
            )
        others.append(_loader(other.store.train, store, recipe, objective, stable_seed(recipe.seed, "mix", n) >> 1))
    return ReplayLoader(own, others, InterleaveSchedule([other.part.share for other in mixed]))


def _loader(split: Split, store: TokenStore, recipe: Recipe, objective: Objective, seed: int) -> Loader:
    apart = recipe.train.document_attention == "same_document"
    return Loader(Rows(split, store.tokenizer, seed, objective.rows, apart), objective, seed)
