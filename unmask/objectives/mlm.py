"""Masked language modelling (BERT 1810.04805 §3.1; dynamic masks: RoBERTa 1907.11692 §4.1).

| row                       | becomes                                    | the loss reads              |
|---------------------------|--------------------------------------------|-----------------------------|
| [CLS] the cat sat . [SEP] | [CLS] the [MASK] sat . [SEP] (80 %)        | "cat" at position 2         |
|                           | [CLS] the blue sat . [SEP] (10 %: random)  | "cat" at position 2         |
|                           | [CLS] the cat sat . [SEP] (10 %: kept)     | "cat" at position 2         |

Special tokens are never chosen, and a random token is never a special one. With `count: exact` a row of n ordinary
tokens has rate × n chosen, rounded up or down by lot so that the mean is exact, and one at the least; with `drawn`
every token is chosen by its own coin.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from unmask.batch import Batch, Example, Phase
from unmask.data.tokenizer import Tokenizer
from unmask.model.model import Model
from unmask.objectives.objective import Objective
from unmask.recipe import Recipe


class MLM(Objective):
    name = "mlm"
    terms = ("mlm",)
    heads = ("mlm",)

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.settings = recipe.mlm
        self.special = tokenizer.special  # (V,) bool
        self.ordinary = np.flatnonzero(~tokenizer.special)  # ids that a random token may be
        self.variants = self.settings.copies if self.settings.masking == "static" else 0

    def corrupt(self, example: Example, rng: np.random.Generator, phase: Phase) -> Example:
        chosen = self._choose(example.ids, rng, phase.mask_rate)
        targets = example.ids[chosen]
        ids = example.ids.copy()
        lot = rng.random(len(chosen))
        ids[chosen[lot < self.settings.mask]] = self.tokenizer.mask
        swapped = chosen[(lot >= self.settings.mask) & (lot < self.settings.mask + self.settings.random)]
        ids[swapped] = self.ordinary[rng.integers(len(self.ordinary), size=len(swapped))]
        labels = {**example.labels, "mlm.positions": chosen, "mlm.targets": targets}
        return replace(example, ids=ids, labels=labels)

    def _choose(self, ids: np.ndarray, rng: np.random.Generator, rate: float) -> np.ndarray:
        """Sorted positions of the chosen tokens."""
        candidates = np.flatnonzero(~self.special[ids])
        if self.settings.count == "drawn":
            return candidates[rng.random(len(candidates)) < rate]
        exact = rate * len(candidates)
        number = int(exact) + int(rng.random() < exact - int(exact))
        number = min(max(number, 1), len(candidates))
        return np.sort(rng.choice(candidates, number, replace=False))

    def reads(self, model: Model, batch: Batch) -> torch.Tensor:
        return batch.labels["mlm.positions"]

    def outputs(
        self, model: Model, hidden: torch.Tensor, batch: Batch
    ) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
        return {"mlm": (model.logits("mlm", hidden), batch.labels["mlm.targets"])}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": len(batch.labels["mlm.targets"])}
