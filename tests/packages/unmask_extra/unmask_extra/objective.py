"""MLM with an additional head that predicts whether the id of a masked token is even."""

from torch import nn

from unmask.model.config import ModelConfig
from unmask.model.head_spec import HeadSpec
from unmask.objectives.mlm import MLM

EVEN = HeadSpec("unmask_extra.objective:Even", "tokens")


class Even(nn.Linear):
    def __init__(self, config: ModelConfig):
        super().__init__(config.hidden, 2)


class Parity(MLM):
    name = "parity"
    terms = ("mlm", "even")
    heads = ("mlm", "even")

    def logits_and_targets(self, model, hidden, batch):
        found = super().logits_and_targets(model, hidden, batch)
        return found | {"even": (model.logits("even", hidden), found["mlm"][1] % 2)}

    def target_counts(self, batch):
        found = super().target_counts(batch)
        return found | {"even": found["mlm"]}
