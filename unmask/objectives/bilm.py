"""Bidirectional language modeling (ELMo 1802.05365 §3.1): predict the next token from the left, and the previous one from the right.

| row                       | direction | at    | the loss reads |
|---------------------------|-----------|-------|----------------|
| [CLS] the cat sat . [SEP] | forwards  | "cat" | "sat"          |
|                           | backwards | "cat" | "the"          |

Nothing is masked: each stack of LSTMs reads one side only. Every token is predicted from both sides. `bilm.target_fraction` below 1
samples the predicted tokens in each epoch, if a softmax over a large vocabulary takes too long.
"""

from dataclasses import replace

import numpy as np
import torch

from unmask.batch import Batch, Example, StepConfig
from unmask.model.model import Model
from unmask.objectives.objective import LogitsAndTargets, Objective


class BiLM(Objective):
    name = "bilm"
    terms = ("bilm",)
    heads = ("bilm",)
    encoder_types = ("lstm",)
    standalone_reason = "it reads the last layer of each direction, but other objectives read the mix of both"

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        """Set the labels of the positions that predict the next token (`forwards`) and the previous one (`backwards`)."""
        n = len(example)
        labels = dict(example.labels)
        for name, positions, step in (("forwards", np.arange(n - 1), 1), ("backwards", np.arange(1, n), -1)):
            if self.recipe.bilm.target_fraction < 1:
                count = min(len(positions), max(1, round(self.recipe.bilm.target_fraction * len(positions))))
                positions = np.sort(rng.choice(positions, count, replace=False))
            labels[f"bilm.{name}.positions"] = positions
            labels[f"bilm.{name}.targets"] = example.input_ids[positions + step]
        return replace(example, labels=labels)

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        return torch.cat([batch.labels["bilm.forwards.positions"], batch.labels["bilm.backwards.positions"]])

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        """Read the half of each hidden state (N, D) that does not depend on its target."""
        first = len(batch.labels["bilm.forwards.positions"])
        half = hidden.shape[-1] // 2
        states = torch.cat([hidden[:first, :half], hidden[first:, half:]])
        targets = torch.cat([batch.labels["bilm.forwards.targets"], batch.labels["bilm.backwards.targets"]])
        return {"bilm": (model.logits("bilm", states), targets)}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {"bilm": len(batch.labels["bilm.forwards.targets"]) + len(batch.labels["bilm.backwards.targets"])}

    def _hidden(self, model: Model, batch: Batch) -> torch.Tensor:
        # The last layer, as in the paper: the mix of layers is trained by tasks.
        return model.encoder(
            batch.input_ids, batch.attention_mask, positions=self.loss_positions(model, batch), top=True
        )
