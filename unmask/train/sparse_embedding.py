"""Train only the embedding rows whose tokens occur in the training data.

Labeled records contain a few thousand of a vocabulary's tens or hundreds of thousands of tokens. All other embeddings get no
gradient, yet in every step a dense gradient is filled with zeros, clipped and read by the optimizer. Embeddings are half of
MiniLM's parameters and two thirds of XLM-R's. So the table gets a sparse gradient, and gradient clipping, AdamW and the all-reduce
see only the rows in use, as a separate parameter. The result equals AdamW on the whole table, except that unused rows do not decay.
"""

import numpy as np
import torch
from torch import nn

from unmask.model.head_spec import HEADS
from unmask.model.model import Model

TOKEN_EMBEDDING = "encoder.embeddings.tokens.weight"


class UsedEmbeddingRows:
    """
    >>> table = nn.Embedding(100, 2)
    >>> used_rows = UsedEmbeddingRows(table, np.array([7, 3]))
    >>> table(torch.tensor([7, 7, 3])).sum().backward()
    >>> used_rows.gather_grad()
    >>> used_rows.rows.grad.tolist()  # of tokens 3 and 7
    [[1.0, 1.0], [2.0, 2.0]]
    """

    def __init__(self, table: nn.Embedding, tokens: np.ndarray):
        self.table, device = table, table.weight.device
        table.sparse = True
        self.ids = torch.from_numpy(np.unique(tokens)).to(device)  # (R,)
        self.row_of_token = torch.full((table.num_embeddings,), -1, device=device)  # (vocabulary,) indices into `rows`
        self.row_of_token[self.ids] = torch.arange(len(self.ids), device=device)
        self.rows = nn.Parameter(table.weight.detach()[self.ids])

    def gather_grad(self) -> None:
        """Move the table's sparse gradient to the rows."""
        grad, self.table.weight.grad = self.table.weight.grad, None
        self.rows.grad = torch.zeros_like(self.rows)
        if grad is not None:
            tokens, values = grad._indices()[0], grad._values()  # not coalesced: tokens may repeat
            self.rows.grad.index_add_(0, self.row_of_token[tokens], values.to(self.rows.dtype))

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the updated rows to the table."""
        self.table.weight.index_copy_(0, self.ids, self.rows)


def restrict_embedding(model: Model, tokens: np.ndarray | None) -> UsedEmbeddingRows | None:
    """Restrict training to the embeddings of `tokens`. Return None if they are unknown or the whole table is used."""
    table = model.encoder.embeddings.tokens
    if not isinstance(table, nn.Embedding):  # character-based models
        return None
    table.sparse = False
    if tokens is None or not table.weight.requires_grad or table.weight.device.type == "mps":
        return None
    shared = model.decoder is not None or any(HEADS[name].reads == "vocabulary" for name in model.heads)
    return None if shared else UsedEmbeddingRows(table, tokens)
