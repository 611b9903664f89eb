"""Held-out text of a run: its own, and that of each mixed text, so that forgetting is seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unmask.batch import Batch, Phase
from unmask.data.rows import Rows
from unmask.data.store import TokenStore
from unmask.errors import UserError
from unmask.objectives.objective import Objective, build
from unmask.recipe import Recipe
from unmask.train.loader import Loader
from unmask.train.trainer import Trainer

EVAL_BATCH = 32  # rows


@dataclass(frozen=True)
class Heldout:
    objective: Objective
    batches: list[Batch]
    name: str = ""  # of a mixed text; empty for the run's own

    @property
    def key(self) -> str:
        """What the log calls it."""
        return f"heldout[{self.name}]" if self.name else "heldout"


def measure_all(trainer: Trainer, tracks: Sequence[Heldout]) -> dict[str, Any]:
    """Means of the run's own held-out rows, and under its key those of each mixed text."""
    values: dict[str, Any] = {}
    for track in tracks:
        found = trainer.evaluate(track.batches, track.objective)
        values |= {track.key: found} if track.name else found
    return values


def heldout(
    store: TokenStore, recipe: Recipe, objective: Objective, phase: Phase, notes: list[str], name: str = ""
) -> Heldout:
    """The held-out rows, corrupted once and for all as `phase`, the last of the schedule, says.

    Pairs need two documents; held-out text that has one still serves the objective's MLM part. `notes` gets what a
    person should know.
    """
    of = f" of {name}" if name else ""
    apart = recipe.train.packing == "apart"
    if not len(store.heldout.tokens):
        return Heldout(objective, [], name)
    try:
        rows = Rows(store.heldout, store.tokenizer, recipe.seed, objective.rows, apart)
        count = rows.count(phase.length)
    except UserError as error:
        if "mlm" not in objective.terms or objective.terms == ("mlm",):
            _note(notes, f"no held-out evaluation{of}: {error.got}")
            return Heldout(objective, [], name)
        _note(
            notes,
            f"held-out evaluation{of} of mlm alone: the held-out text has no pairs of sentences from two documents",
        )
        objective = build(recipe.model_copy(update={"objective": "mlm"}), store.tokenizer)
        rows = Rows(store.heldout, store.tokenizer, recipe.seed, objective.rows, apart)
        count = rows.count(phase.length)
    count = min(count, recipe.train.eval_rows or count)
    loader = Loader(rows, objective, recipe.seed)
    ends = [(a, min(a + EVAL_BATCH, count)) for a in range(0, count, EVAL_BATCH)]
    batches = [loader.batch(*end, phase) for end in ends]
    if not any(sum(objective.counts(batch).values()) for batch in batches):
        _note(notes, f"no held-out evaluation{of}: it has no token to predict (all are special, such as [UNK])")
        batches = []
    return Heldout(objective, batches, name)


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)
