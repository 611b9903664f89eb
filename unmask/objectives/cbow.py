"""Continuous bag of words (word2vec, Mikolov et al. 1301.3781 §3.1): predict a word from the mean of the words around it.

| row                                  | the loss reads        | from                                                 |
|--------------------------------------|-----------------------|------------------------------------------------------|
| [CLS] a cat sat on the mat . [SEP]   | "on" (with window 2)  | the mean of the vectors of "cat", "sat", "the", "mat" |

The window of each token is sampled from 1 to `cbow.window`, so that near words have more weight. Special tokens are neither predicted
nor used as context. The softmax over the whole vocabulary is exact, and fast enough for the tens of thousands of entries of a tokenizer
(word2vec's hierarchical softmax and negative sampling are for millions of words).
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
    standalone_reason = "its model has no hidden states that another objective could read"

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.settings, self.special = recipe.cbow, tokenizer.special

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        """Set the concatenated context positions of all predicted tokens, and the context size of each token, as labels."""
        n, max_window = len(example), self.settings.window
        is_word = ~self.special[example.input_ids]
        windows = rng.integers(1, max_window + 1, size=n)
        offsets = np.array([*range(-max_window, 0), *range(1, max_window + 1)])
        positions = np.arange(n)[:, None] + offsets  # (T, 2W)
        in_window = (positions >= 0) & (positions < n) & (np.abs(offsets) <= windows[:, None]) & is_word[:, None]
        in_window &= is_word[np.clip(positions, 0, n - 1)]
        if self.settings.target_fraction < 1:
            in_window &= (rng.random(n) < self.settings.target_fraction)[:, None]
        sizes = in_window.sum(1)
        predicted = np.flatnonzero(sizes)
        labels = {
            "cbow.contexts.positions": positions[in_window],
            "cbow.sizes": sizes[predicted],
            "cbow.targets": example.input_ids[predicted],
        }
        return replace(example, labels={**example.labels, **labels})

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        return batch.labels["cbow.contexts.positions"]

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        """Average the vectors of each context. hidden: (M, D), the vectors of all contexts."""
        sizes = batch.labels["cbow.sizes"]  # empty if no row has two words, which segment_reduce does not support
        means = torch.segment_reduce(hidden.float(), "mean", lengths=sizes) if len(sizes) else hidden.float()  # (N, D)
        return {"cbow": (model.logits("cbow", means), batch.labels["cbow.targets"])}
