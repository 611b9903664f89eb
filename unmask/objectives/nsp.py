"""Next-sentence prediction (BERT 1810.04805 §3.1, task 2), classified from `[CLS]`.

| row                     | segments          | label             |
|-------------------------|-------------------|-------------------|
| [CLS] A [SEP] B [SEP]   | 0 … 0 0 1 … 1     | 0: B follows A    |
| [CLS] A [SEP] C [SEP]   | 0 … 0 0 1 … 1     | 1: C is from another document |

`text/rows.py` builds the rows, including the random second segments. Term, head and label have the name of the objective.
"""

import torch

from unmask.batch import Batch
from unmask.model.model import Model
from unmask.objectives.objective import LogitsAndTargets, Objective
from unmask.text.rows import Kind


class NSP(Objective):
    name = "nsp"
    terms: tuple[str, ...] = ("nsp",)
    heads: tuple[str, ...] = ("nsp",)
    rows: Kind = "pairs"

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor | None:
        return model.head_positions(self.name, batch)

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        return {self.name: (model.logits(self.name, hidden, batch.attention_mask), batch.labels[self.name])}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: batch.rows}
