"""A word from the mean of the words around it: word2vec's continuous bag of words (Mikolov et al. 1301.3781 §3.1).

| row                                  | the loss reads        | from                                                 |
|--------------------------------------|-----------------------|------------------------------------------------------|
| [CLS] a cat sat on the mat . [SEP]   | "on" (window drawn 2) | the mean of the vectors of "cat", "sat", "the", "mat" |

The window is drawn for each token from 1 to `cbow.window`, so that near words count more. Special tokens are neither
predicted nor context. The softmax is over the whole vocabulary: exact, and fast enough for the tens of thousands of
entries that a tokenizer has (word2vec's hierarchical softmax and negative samples are for millions of words).
"""

from dataclasses import replace

import numpy as np
import torch

from unmask.batch import Batch, Example, StepConfig
from unmask.model.model import Model
from unmask.objectives.objective import LogitsAndTargets, Objective
from unmask.recipe import Recipe
from unmask.text.tokenizer import Tokenizer


class CBOW(Objective):
    name = "cbow"
    terms = ("cbow",)
    heads = ("cbow",)
    encoder_types = ("bag",)
    standalone_reason = "its model has no state that another objective could read"

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.settings, self.special = recipe.cbow, tokenizer.special

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        """`contexts` are the places around all predicted tokens, one group after the other, `sizes` how many each has."""
        n, widest = len(example), self.settings.window
        words = ~self.special[example.input_ids]
        windows = rng.integers(1, widest + 1, size=n)
        offsets = np.array([*range(-widest, 0), *range(1, widest + 1)])
        around = np.arange(n)[:, None] + offsets  # (T, 2W)
        inside = (around >= 0) & (around < n) & (np.abs(offsets) <= windows[:, None]) & words[:, None]
        inside &= words[np.clip(around, 0, n - 1)]
        if self.settings.target_fraction < 1:
            inside &= (rng.random(n) < self.settings.target_fraction)[:, None]
        sizes = inside.sum(1)
        chosen = np.flatnonzero(sizes)
        labels = {
            "cbow.contexts.positions": around[inside],
            "cbow.sizes": sizes[chosen],
            "cbow.targets": example.input_ids[chosen],
        }
        return replace(example, labels={**example.labels, **labels})

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        return batch.labels["cbow.contexts.positions"]

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        """hidden (M, D): the vectors of all contexts."""
        sizes = batch.labels["cbow.sizes"]  # none where no row has two words, which segment_reduce does not know
        means = torch.segment_reduce(hidden.float(), "mean", lengths=sizes) if len(sizes) else hidden.float()  # (N, D)
        return {"cbow": (model.logits("cbow", means), batch.labels["cbow.targets"])}
