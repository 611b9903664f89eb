"""Replay: a `Loader` that mixes in rows of other corpora. `text/mix.py` decides which rows come from which corpus."""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.batch import Example, StepConfig
from unmask.errors import UserError
from unmask.objectives.objective import Objective
from unmask.recipe import Recipe
from unmask.seeds import stable_seed
from unmask.text.mix import InterleaveSchedule, ReplayPart
from unmask.text.rows import RowDataset
from unmask.text.store import Split, TokenStore
from unmask.train.loader import Loader


@dataclass(frozen=True)
class ReplaySource:
    """A replay corpus with its token store."""

    part: ReplayPart
    store: TokenStore


class ReplayLoader(Loader):
    def __init__(self, main: Loader, replayed: Sequence[Loader], schedule: InterleaveSchedule):
        super().__init__(main.rows, main.objective, main.seed)
        self.loaders, self.schedule = [main, *replayed], schedule

    def before_and_after(self, number: int, step_config: StepConfig) -> tuple[Example, Example]:
        loader_index, n = self.schedule.locate(number)
        return Loader.before_and_after(self.loaders[loader_index], n, step_config)

    def count(self, length: int) -> int:
        return self.schedule.rows(self.rows.count(length))


def build_loader(store: TokenStore, sources: Sequence[ReplaySource], recipe: Recipe, objective: Objective) -> Loader:
    """Return the loader of a run's corpus and its replay corpora, each with a seed of its own."""
    main = _build_loader(store.train, store, recipe, objective, recipe.seed)
    if not sources:
        return main
    replayed = []
    for n, source in enumerate(sources):
        if source.store.tokenizer.fingerprint() != store.tokenizer.fingerprint():
            raise UserError(
                f"--replay: {source.part.source} was tokenized with a different tokenizer than the corpus",
                hint="give the text instead of the store, so that it is tokenized like the corpus",
            )
        seed = stable_seed(recipe.seed, "mix", n) >> 1
        replayed.append(_build_loader(source.store.train, store, recipe, objective, seed))
    return ReplayLoader(main, replayed, InterleaveSchedule([source.part.share for source in sources]))


def _build_loader(split: Split, store: TokenStore, recipe: Recipe, objective: Objective, seed: int) -> Loader:
    same_document = recipe.train.document_attention == "same_document"
    return Loader(RowDataset(split, store.tokenizer, seed, objective.rows, same_document), objective, seed)
