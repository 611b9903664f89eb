"""MLM and CLM on different rows of a batch, with one head (GPT-BERT 2410.24159 §2).

| row                       | random kind  | becomes                        | attention       | the loss reads        |
|---------------------------|--------------|--------------------------------|-----------------|-----------------------|
| [CLS] the cat sat . [SEP] | masked       | [CLS] the [MASK] sat . [SEP]   | bidirectional   | "cat" at "the"        |
| [CLS] the cat sat . [SEP] | causal       | [CLS] the cat sat . [SEP]      | causal          | "the" at [CLS], "cat" at "the" … |

In both kinds a token is predicted one position before it (masked next-token prediction), so that the model can be used as a masked or as
a causal model. The loss of each kind is the mean over its own tokens. Its weight is its fraction of rows, which is `hybrid.clm_fraction`
for causal rows.
"""

from dataclasses import replace

import numpy as np
import torch

from unmask.batch import Batch, Example, StepConfig
from unmask.model.model import Model
from unmask.objectives.clm import next_token_positions
from unmask.objectives.mlm import MLM
from unmask.objectives.objective import LogitsAndTargets
from unmask.recipe import Recipe
from unmask.text.tokenizer import Tokenizer


class Hybrid(MLM):
    name = "hybrid"
    terms = ("mlm", "clm")
    heads = ("lm|mlm",)
    standalone_reason = "some of its rows hide all later tokens, which the other objective would need"
    bidirectional = False
    logit_position = "next"

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.clm_fraction = recipe.hybrid.clm_fraction
        self.weights = {"mlm": 1 - self.clm_fraction, "clm": self.clm_fraction}

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        empty = np.zeros(0, np.int64)
        if rng.random() < self.clm_fraction:
            positions = next_token_positions(example, self.special)
            values = (empty, empty, positions, example.input_ids[positions + 1])
            out = replace(example, prefix_length=0)
        else:
            out = replace(super().corrupt(example, rng, step_config), prefix_length=len(example))
            positions, targets = out.labels["mlm.positions"], out.labels["mlm.targets"]
            has_previous = positions > 0  # false for the first token of a row without [CLS] …
            if example.document_ids is not None:  # … and for the first one of a document with separate attention
                has_previous &= example.document_ids[positions] == example.document_ids[positions - 1]
            values = (positions[has_previous], targets[has_previous], empty, empty)
        names = ("mlm.positions", "mlm.targets", "clm.positions", "clm.targets")
        out.labels = {**example.labels, **dict(zip(names, values, strict=True))}
        return out

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        return torch.cat([batch.labels["mlm.positions"] - 1, batch.labels["clm.positions"]])

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        logits = model.logits(self.heads[0], hidden)
        targets = batch.labels["mlm.targets"], batch.labels["clm.targets"]
        return dict(zip(self.terms, zip(logits.split([len(t) for t in targets]), targets), strict=True))

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {name: len(batch.labels[f"{name}.targets"]) for name in self.terms}
