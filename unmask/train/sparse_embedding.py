"""The token vectors that a training can reach, as a parameter of their own.

Labelled records hold a few thousand of a vocabulary's tens or hundreds of thousands of tokens. The vectors of all others get no
gradient, and yet a dense one would be filled with zeros, measured, scaled and read by the optimizer in every step: MiniLM's are half of its
parameters, XLM-R's two thirds. So the table's gradient is sparse, and clipping, AdamW and other processes see the rows that can be reached.
The result is AdamW's on the whole table, but that a vector which is never read does not decay either.
"""

import numpy as np
import torch
from torch import nn

from unmask.model.head_spec import HEADS
from unmask.model.model import Model

TABLE = "encoder.embeddings.tokens.weight"


class UsedEmbeddingRows:
    """
    >>> table = nn.Embedding(100, 2)
    >>> restrict_embedding = UsedEmbeddingRows(table, np.array([7, 3]))
    >>> table(torch.tensor([7, 7, 3])).sum().backward()
    >>> restrict_embedding.gather_grad()
    >>> restrict_embedding.rows.grad.tolist()  # of 3 and of 7
    [[1.0, 1.0], [2.0, 2.0]]
    """

    def __init__(self, table: nn.Embedding, tokens: np.ndarray):
        self.table, device = table, table.weight.device
        table.sparse = True
        self.ids = torch.from_numpy(np.unique(tokens)).to(device)  # (R,)
        self.number = torch.full((table.num_embeddings,), -1, device=device)  # of each token, its row here
        self.number[self.ids] = torch.arange(len(self.ids), device=device)
        self.rows = nn.Parameter(table.weight.detach()[self.ids])

    def gather_grad(self) -> None:
        """The table's gradient → the rows'. Without one, no row was read."""
        found, self.table.weight.grad = self.table.weight.grad, None
        self.rows.grad = torch.zeros_like(self.rows)
        if found is not None:
            tokens, values = found._indices()[0], found._values()  # of each token that was read, repeats among them
            self.rows.grad.index_add_(0, self.number[tokens], values.to(self.rows.dtype))

    @torch.no_grad()
    def write_back(self) -> None:
        """The rows, after an update → the table."""
        self.table.weight.index_copy_(0, self.ids, self.rows)


def restrict_embedding(model: Model, tokens: np.ndarray | None) -> UsedEmbeddingRows | None:
    """For rows that hold no other `tokens`; None where these are not known, or where something else reads the whole table."""
    table = model.encoder.embeddings.tokens
    if not isinstance(table, nn.Embedding):  # a model that reads characters
        return None
    table.sparse = False
    if tokens is None or not table.weight.requires_grad or table.weight.device.type == "mps":
        return None
    shared = model.decoder is not None or any(HEADS[name].reads == "vocabulary" for name in model.heads)
    return None if shared else UsedEmbeddingRows(table, tokens)
