"""Encoder of word2vec (Mikolov et al. 1301.3781): one vector per token, the same in every sentence.

The mean of the context vectors is computed by the objective (`objectives/cbow.py`).
"""

import torch
from torch import Tensor, nn

from unmask.model.config import ModelConfig


class Embeddings(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden, padding_idx=config.pad_id)


class CBOWEncoder(nn.Module):
    """
    >>> from unmask.model.config import preset
    >>> CBOWEncoder(preset("cbow-mini", vocab_size=50))(torch.tensor([[2, 7, 3]])).shape
    torch.Size([1, 3, 128])
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        states: list[Tensor] | None = None,
        positions: Tensor | None = None,
        prefix: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """As `Encoder.forward`. Tokens do not attend to each other, so masks, prefixes and documents have no effect."""
        x = self.embeddings.tokens(ids if positions is None else torch.take(ids, positions))
        if states is not None:
            states.append(x)
        return x
