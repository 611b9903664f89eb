"""Evaluation sets of a pre-training run: validation text of the run's corpus and of each replay corpus, to detect forgetting.

A run's own loss depends on its masking: rate, unit, replacement of the chosen tokens, and whether rows are sentence pairs.
Therefore every MLM is also evaluated under one fixed masking (`FIXED`), which is BERT's: 15% of the tokens, of which 80% become
[MASK], 10% a random token and 10% are kept, sampled with seed 0 in rows of running text. These losses can be compared between
runs on the same text with the same tokenizer and row length.
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
from unmask.text.rows import RowDataset
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
    key: str = ""  # key of its values in the log; "": the run's own text, whose values are at the top level


def evaluate_all(trainer: Trainer, eval_sets: Sequence[EvalSet]) -> dict[str, Any]:
    """Return the mean losses on the run's own text, and {key: mean losses} of every other evaluation set."""
    values: dict[str, Any] = {}
    for eval_set in eval_sets:
        means = trainer.evaluate(eval_set.batches, eval_set.objective)
        values |= {eval_set.key: means} if eval_set.key else means
    return values


def make_eval_set(
    store: TokenStore, recipe: Recipe, objective: Objective, step_config: StepConfig, notes: list[str], name: str = ""
) -> EvalSet:
    """Return the held-out rows of a store, corrupted once with the values of the schedule's last step.

    Sentence pairs need two documents. Held-out text with a single document is evaluated with the MLM objective alone.
    Messages for the user are appended to `notes`.
    """
    of, key = (f" of {name}", f"heldout[{name}]") if name else ("", "")
    same_document = recipe.train.document_attention == "same_document"
    if not len(store.heldout.tokens):
        return EvalSet(objective, [], key)
    try:
        rows = RowDataset(store.heldout, store.tokenizer, recipe.seed, objective.rows, same_document)
        count = rows.count(step_config.length)
    except UserError as error:
        if "mlm" not in objective.terms or objective.terms == ("mlm",):
            _note(notes, f"no validation{of}: {error.message}")
            return EvalSet(objective, [], key)
        _note(
            notes,
            f"validation{of} uses only mlm: the validation text has no sentence pairs from two documents",
        )
        objective = build(recipe.model_copy(update={"objective": "mlm"}), store.tokenizer)
        rows = RowDataset(store.heldout, store.tokenizer, recipe.seed, objective.rows, same_document)
        count = rows.count(step_config.length)
    count = min(count, recipe.train.max_eval_examples or count)
    batches = _batches(Loader(rows, objective, recipe.seed), count, step_config)
    if not batches:
        _note(notes, f"no validation{of}: every token is special (such as [UNK]), so there is none to predict")
    return EvalSet(objective, batches, key)


def supports_fixed_masking(objective: Objective) -> bool:
    """Return whether an objective predicts masked tokens at their own positions, as the fixed masking requires."""
    return "mlm" in objective.terms and "mlm" in objective.heads and objective.logit_position == "same"


def fixed_eval_set(
    split: Split, tokenizer: Tokenizer, config: ModelConfig, objective_name: str, length: int, max_rows: int | None
) -> EvalSet:
    """Return rows of running text for "mlm" under the fixed masking, or for "clm"; the same rows for every model."""
    objective = build(Recipe(objective=objective_name, mlm=FIXED), tokenizer, config)
    if not len(split.tokens):
        return EvalSet(objective, [], log.FIXED)
    rows = RowDataset(split, tokenizer, FIXED_SEED)
    count = rows.count(length)
    step_config = StepConfig(0, length, float(FIXED.mask_rate))
    return EvalSet(
        objective, _batches(Loader(rows, objective, FIXED_SEED), min(count, max_rows or count), step_config), log.FIXED
    )


def _batches(loader: Loader, count: int, step_config: StepConfig) -> list[Batch]:
    """Return the first `count` rows as batches, or [] if they have nothing to predict."""
    batches = [loader.batch(*ends, step_config) for ends in micro_ranges(0, count, EVAL_BATCH)]
    return batches if any(sum(loader.objective.target_counts(batch).values()) for batch in batches) else []


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)
