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
        outputs = super().logits_and_targets(model, hidden, batch)
        return outputs | {"even": (model.logits("even", hidden), outputs["mlm"][1] % 2)}

    def target_counts(self, batch):
        counts = super().target_counts(batch)
        return counts | {"even": counts["mlm"]}
