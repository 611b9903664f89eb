"""Masked language modeling (BERT 1810.04805 §3.1; dynamic masks: RoBERTa 1907.11692 §4.1).

| row                       | becomes                                    | the loss reads              |
|---------------------------|--------------------------------------------|-----------------------------|
| [CLS] the cat sat . [SEP] | [CLS] the [MASK] sat . [SEP] (80%)         | "cat" at position 2         |
|                           | [CLS] the blue sat . [SEP] (10%: random)   | "cat" at position 2         |
|                           | [CLS] the cat sat . [SEP] (10%: kept)      | "cat" at position 2         |

Special tokens are never selected, and a random token is never a special one. With `mlm.sampling: exact`, rate × n tokens
of a row with n ordinary tokens are selected, at least one; the number is stochastically rounded, so that its mean is exact. With
`bernoulli`, each token is selected independently. `mlm.mask_unit` determines which tokens are selected together (`units.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from unmask.batch import Batch, Example, StepConfig
from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.model import Model
from unmask.objectives.objective import LogitsAndTargets, Objective
from unmask.objectives.units import (
    Phrases,
    read_phrases,
    sample_spans,
    sample_units,
    span_length_probabilities,
    word_spans,
)
from unmask.recipe import Recipe
from unmask.text.store import Split
from unmask.text.tokenizer import Tokenizer


class MLM(Objective):
    name = "mlm"
    terms: tuple[str, ...] = ("mlm",)
    heads: tuple[str, ...] = ("mlm",)

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.settings = recipe.mlm
        self.special = tokenizer.special  # (V,) bool
        self.ordinary = np.flatnonzero(~tokenizer.special)  # candidate ids for random replacement
        self.num_static_variants = self.settings.num_static_masks if self.settings.masking == "static" else 0
        self.phrases = Phrases(self.settings.phrases, tokenizer) if self.settings.mask_unit == "phrase" else None
        if tokenizer.mask is None:
            raise UserError(
                f"objective {self.name} needs a mask token, and this tokenizer has none",
                hint="--objective clm, or use a tokenizer with a mask token",
            )

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        if recipe.mlm.mask_unit == "phrase":
            read_phrases(recipe.mlm.phrases)
        elif recipe.mlm.phrases:
            raise UserError("mlm.phrases applies only to mask_unit=phrase", hint="--mask-unit phrase")

    @classmethod
    def external_files(cls, recipe: Recipe) -> dict[str, list[Path]]:
        return {"mlm.phrases": [Path(recipe.mlm.phrases)]} if recipe.mlm.mask_unit == "phrase" else {}

    def check_corpus(self, splits: Sequence[Split]) -> list[str]:
        return [self.phrases.report(splits)] if self.phrases else []

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        chosen, first_of_unit = self._choose(example, rng, step_config.mask_rate)
        targets = example.input_ids[chosen]
        ids = example.input_ids.copy()
        u = rng.random(len(chosen))
        if first_of_unit is not None:
            u = u[first_of_unit]  # all tokens of a unit get the same treatment: masked, random or kept
        ids[chosen[u < self.settings.mask]] = self.tokenizer.mask
        replaced = chosen[(u >= self.settings.mask) & (u < self.settings.mask + self.settings.random)]
        ids[replaced] = self.ordinary[rng.integers(len(self.ordinary), size=len(replaced))]
        labels = {**example.labels, "mlm.positions": chosen, "mlm.targets": targets}
        return replace(example, input_ids=ids, labels=labels)

    def _choose(self, example: Example, rng: np.random.Generator, rate: float) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the positions of the selected tokens, sorted, and for each the index of the first token of its unit.

        The second value is None if the tokens of a unit are replaced independently of each other.
        """
        candidates = np.flatnonzero(~self.special[example.input_ids])
        if self.settings.mask_unit != "token":
            return self._choose_units(example, candidates, rng, rate)
        if self.settings.sampling == "bernoulli":
            return candidates[rng.random(len(candidates)) < rate], None
        exact = rate * len(candidates)
        count = int(exact) + int(rng.random() < exact - int(exact))
        count = min(max(count, 1), len(candidates))
        return np.sort(rng.choice(candidates, count, replace=False)), None

    def _choose_units(
        self, example: Example, candidates: np.ndarray, rng: np.random.Generator, rate: float
    ) -> tuple[np.ndarray, np.ndarray | None]:
        unit, n = self.settings.mask_unit, len(candidates)
        budget = float(rng.binomial(n, rate)) if self.settings.sampling == "bernoulli" else rate * n
        starts, ends = word_spans(candidates, example.flags)
        if unit in ("span", "ngram"):
            proposed = sample_spans(starts, ends, span_length_probabilities(unit), budget, rng)
        else:
            phrases = self.phrases.find(example.input_ids, starts, ends) if self.phrases else []
            phrases = [phrases[i] for i in rng.permutation(len(phrases))]
            in_phrase = np.zeros(len(example) + 1, bool)
            for start, end in phrases:
                in_phrase[start:end] = True
            other_words = np.flatnonzero(~in_phrase[starts])
            proposed = phrases + [(int(starts[i]), int(ends[i])) for i in rng.permutation(other_words)]
        units = sorted(sample_units(proposed, budget, rng))
        chosen = np.concatenate([np.arange(start, end) for start, end in units] or [np.zeros(0, np.int64)])
        if unit in ("word", "ngram"):
            return chosen, None
        sizes = np.array([end - start for start, end in units], np.int64)
        return chosen, np.repeat(np.cumsum(sizes) - sizes, sizes)

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        return batch.labels["mlm.positions"]

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        return {"mlm": (model.logits("mlm", hidden), batch.labels["mlm.targets"])}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": len(batch.labels["mlm.targets"])}
