"""Held-out text of a run: its own, and that of each mixed text, so that forgetting is seen.

A run's own loss depends on its masking: rate, unit, what becomes of the chosen tokens, and whether rows are pairs. So every
MLM is also measured under one masking that is the same for all (`FIXED`): BERT's 15 % of the tokens, 80 % of them [MASK],
10 % random, 10 % kept, drawn with seed 0 in rows of running text. Such losses can be compared between runs on the same text
with the same tokenizer and row length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unmask.batch import Batch, StepConfig
from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.objectives.objective import Objective, build
from unmask.recipe import Recipe
from unmask.sections import MLMRecipe
from unmask.text.rows import Rows
from unmask.text.store import Split, TokenStore
from unmask.text.tokenizer import Tokenizer
from unmask.train import log
from unmask.train.loader import Loader, micro_ranges
from unmask.train.trainer import Trainer

EVAL_BATCH = 32  # rows
FIXED = MLMRecipe(mask_rate=0.15, mask=0.8, random=0.1, keep=0.1, sampling="exact", mask_unit="token")
FIXED_SEED = 0


@dataclass(frozen=True)
class EvalSet:
    objective: Objective
    batches: list[Batch]
    key: str = ""  # under which the log has its values; empty for the run's own, which stand by themselves


def evaluate_all(trainer: Trainer, tracks: Sequence[EvalSet]) -> dict[str, Any]:
    """Means of the run's own held-out rows, and under its key those of each other track."""
    values: dict[str, Any] = {}
    for track in tracks:
        found = trainer.evaluate(track.batches, track.objective)
        values |= {track.key: found} if track.key else found
    return values


def make_eval_set(
    store: TokenStore, recipe: Recipe, objective: Objective, phase: StepConfig, notes: list[str], name: str = ""
) -> EvalSet:
    """The held-out rows, corrupted once and for all as `phase`, the last of the schedule, says.

    Pairs need two documents; held-out text that has one still serves the objective's MLM part. `notes` gets what a
    person should know.
    """
    of, key = (f" of {name}", f"heldout[{name}]") if name else ("", "")
    apart = recipe.train.document_attention == "same_document"
    if not len(store.heldout.tokens):
        return EvalSet(objective, [], key)
    try:
        rows = Rows(store.heldout, store.tokenizer, recipe.seed, objective.rows, apart)
        count = rows.count(phase.length)
    except UserError as error:
        if "mlm" not in objective.terms or objective.terms == ("mlm",):
            _note(notes, f"no held-out evaluation{of}: {error.message}")
            return EvalSet(objective, [], key)
        _note(
            notes,
            f"held-out evaluation{of} of mlm alone: the held-out text has no pairs of sentences from two documents",
        )
        objective = build(recipe.model_copy(update={"objective": "mlm"}), store.tokenizer)
        rows = Rows(store.heldout, store.tokenizer, recipe.seed, objective.rows, apart)
        count = rows.count(phase.length)
    count = min(count, recipe.train.max_eval_examples or count)
    batches = _batches(Loader(rows, objective, recipe.seed), count, phase)
    if not batches:
        _note(notes, f"no held-out evaluation{of}: it has no token to predict (all are special, such as [UNK])")
    return EvalSet(objective, batches, key)


def supports_fixed_masking(objective: Objective) -> bool:
    """Whether an objective trains what the fixed masking measures: tokens predicted where they are hidden."""
    return "mlm" in objective.terms and "mlm" in objective.heads and objective.logit_position == "same"


def fixed_eval_set(
    split: Split, tokenizer: Tokenizer, config: ModelConfig, kind: str, length: int, limit: int | None
) -> EvalSet:
    """At most `limit` rows of running text for "mlm" under the fixed masking, or for "clm"; the same for every model."""
    objective = build(Recipe(objective=kind, mlm=FIXED), tokenizer, config)
    if not len(split.tokens):
        return EvalSet(objective, [], log.FIXED)
    rows = Rows(split, tokenizer, FIXED_SEED)
    count = rows.count(length)
    phase = StepConfig(0, length, float(FIXED.mask_rate))
    return EvalSet(
        objective, _batches(Loader(rows, objective, FIXED_SEED), min(count, limit or count), phase), log.FIXED
    )


def _batches(loader: Loader, count: int, phase: StepConfig) -> list[Batch]:
    """The first `count` rows; [] when they have nothing to predict."""
    batches = [loader.batch(*ends, phase) for ends in micro_ranges(0, count, EVAL_BATCH)]
    return batches if any(sum(loader.objective.target_counts(batch).values()) for batch in batches) else []


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)
