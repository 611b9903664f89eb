"""Language modelling in both directions (ELMo 1802.05365 §3.1): the next token from the left, the one before from the right.

| row                       | direction | at    | the loss reads |
|---------------------------|-----------|-------|----------------|
| [CLS] the cat sat . [SEP] | forwards  | "cat" | "sat"          |
|                           | backwards | "cat" | "the"          |

Nothing is masked: each stack of LSTMs sees one side only. Every token is predicted from both sides, or a share
`bilm.target_fraction` of them, others each epoch, where a softmax over a large vocabulary would take too long.
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
    standalone_reason = "it reads the last layer of each direction, and other objectives the mix of both"

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        """`forwards` holds where a next token is predicted, `backwards` where the one before is."""
        n = len(example)
        labels = dict(example.labels)
        for name, places, step in (("forwards", np.arange(n - 1), 1), ("backwards", np.arange(1, n), -1)):
            if self.recipe.bilm.target_fraction < 1:
                count = min(len(places), max(1, round(self.recipe.bilm.target_fraction * len(places))))
                places = np.sort(rng.choice(places, count, replace=False))
            labels[f"bilm.{name}.positions"] = places
            labels[f"bilm.{name}.targets"] = example.input_ids[places + step]
        return replace(example, labels=labels)

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        return torch.cat([batch.labels["bilm.forwards.positions"], batch.labels["bilm.backwards.positions"]])

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        """Of each state (N, D) the half that has not seen its target."""
        first = len(batch.labels["bilm.forwards.positions"])
        half = hidden.shape[-1] // 2
        states = torch.cat([hidden[:first, :half], hidden[first:, half:]])
        targets = torch.cat([batch.labels["bilm.forwards.targets"], batch.labels["bilm.backwards.targets"]])
        return {"bilm": (model.logits("bilm", states), targets)}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {"bilm": len(batch.labels["bilm.forwards.targets"]) + len(batch.labels["bilm.backwards.targets"])}

    def _hidden(self, model: Model, batch: Batch) -> torch.Tensor:
        # The last layer, as in the paper: the mix is for tasks, and learns from them.
        return model.encoder(batch.input_ids, batch.attention_mask, at=self.loss_positions(model, batch), top=True)
