"""Masked and causal rows in one batch, one head for both (GPT-BERT 2410.24159 §2).

| row                       | kind, random | becomes                        | what tokens see | the loss reads        |
|---------------------------|--------------|--------------------------------|-----------------|-----------------------|
| [CLS] the cat sat . [SEP] | masked       | [CLS] the [MASK] sat . [SEP]   | everything      | "cat" at "the"        |
| [CLS] the cat sat . [SEP] | causal       | [CLS] the cat sat . [SEP]      | what is before  | "the" at [CLS], "cat" at "the" … |

In both kinds the prediction of a token is made one position before it (masked next-token prediction), so that the
model is one model, and can be used like either. Each kind's loss is the mean over its own tokens; they are weighed
by their shares of rows, `hybrid.clm_fraction` and the rest.
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
    standalone_reason = (
        "some of its rows hide everything to the right, and the other objective would have to do without it"
    )
    bidirectional = False
    logit_position = "next"

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.share = recipe.hybrid.clm_fraction
        self.weights = {"mlm": 1 - self.share, "clm": self.share}

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        none = np.zeros(0, np.int64)
        if rng.random() < self.share:
            positions = next_token_positions(example, self.special)
            parts = (none, none, positions, example.input_ids[positions + 1])
            out = replace(example, prefix_length=0)
        else:
            out = replace(super().corrupt(example, rng, phase), prefix_length=len(example))
            positions, targets = out.labels["mlm.positions"], out.labels["mlm.targets"]
            before = positions > 0  # the very first token of a row without [CLS] has nothing before it
            if example.document_ids is not None:  # … nor has the first one of a document kept apart
                before &= example.document_ids[positions] == example.document_ids[positions - 1]
            parts = (positions[before], targets[before], none, none)
        names = ("mlm.positions", "mlm.targets", "clm.positions", "clm.targets")
        out.labels = {**example.labels, **dict(zip(names, parts, strict=True))}
        return out

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        return torch.cat([batch.labels["mlm.positions"] - 1, batch.labels["clm.positions"]])

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        logits = model.logits(self.heads[0], hidden)
        targets = batch.labels["mlm.targets"], batch.labels["clm.targets"]
        return dict(zip(self.terms, zip(logits.split([len(t) for t in targets]), targets), strict=True))

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {name: len(batch.labels[f"{name}.targets"]) for name in self.terms}
