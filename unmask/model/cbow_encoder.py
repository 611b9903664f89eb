"""word2vec's encoder (Mikolov et al. 1301.3781): a vector per token, the same in every sentence.

What CBOW learns from, the mean of the vectors around a place, is its objective's business (`objectives/cbow.py`).
"""

import torch
from torch import Tensor, nn

from unmask.model.config import ModelConfig


class Vectors(nn.Module):
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
        self.embeddings = Vectors(config)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        states: list[Tensor] | None = None,
        at: Tensor | None = None,
        prefix: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """As `Encoder.forward`. No token sees another, so what may be seen changes nothing."""
        x = self.embeddings.tokens(ids if at is None else torch.take(ids, at))
        if states is not None:
            states.append(x)
        return x
