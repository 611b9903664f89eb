"""Heads: small modules between hidden states and an answer. A head says which other heads it reads.

"pooler" makes one vector of a row; "nsp" and "classify" read it. "mlm" reads the positions it is given, never a
whole row, so that vocabulary logits exist only where a loss or a caller asks for them.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.layers import ACTIVATION, layer_norm


class Head(nn.Module):
    needs: ClassVar[tuple[str, ...]] = ()  # heads whose output it reads

    def __init__(self, config: ModelConfig):
        super().__init__()


class MLM(Head):
    """Hidden states at chosen positions → vocabulary logits.

    >>> from unmask.model.config import preset
    >>> MLM(preset("bert-tiny", vocab_size=50))(torch.zeros(3, 128), torch.zeros(50, 128)).shape
    torch.Size([3, 50])
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.activation = ACTIVATION[config.head_activation or config.activation]
        self.dense = nn.Linear(config.hidden, config.hidden, bias=config.head_bias)
        self.norm = layer_norm(config)
        self.decoder = None if config.tie else nn.Linear(config.hidden, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.decoder_bias else None

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """hidden (N, D), embedding (V, D), unused when the head has its own matrix → (N, V)."""
        weight = embedding if self.decoder is None else self.decoder.weight
        return F.linear(self.norm(self.activation(self.dense(hidden))), weight, self.bias)


class Pooler(Head):
    """A row's hidden states → one vector: tanh(dense([CLS])), or norm(act(dense([CLS] or the mean)))."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        tanh = config.pooling == "tanh"
        self.mean = config.pooling == "mean"
        self.dense = nn.Linear(config.hidden, config.hidden, bias=config.head_bias)
        self.activation = torch.tanh if tanh else ACTIVATION[config.head_activation or config.activation]
        self.norm = nn.Identity() if tanh else layer_norm(config)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """hidden (B, T, D), mask (B, T) bool → (B, D)."""
        if not self.mean:
            row = hidden[:, 0]
        elif mask is None:
            row = hidden.mean(1)
        else:
            kept = mask[:, :, None].to(hidden.dtype)
            row = (hidden * kept).sum(1) / kept.sum(1)
        return self.norm(self.activation(self.dense(row)))


class NSP(Head):
    """Pooled (B, D) → (B, 2): logit 0 = B follows A, logit 1 = B comes from elsewhere, as Google and transformers."""

    needs = ("pooler",)

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.out = nn.Linear(config.hidden, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        return self.out(pooled)


class Classify(Head):
    """Pooled (B, D) → (B, labels)."""

    needs = ("pooler",)

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        if not config.labels:
            raise UserError("a classify head without labels", valid='labels=("negative", "positive") in the config')
        p = config.dropout if config.classifier_dropout is None else config.classifier_dropout
        self.drop = nn.Dropout(p)
        self.out = nn.Linear(config.hidden, len(config.labels))

    def forward(self, pooled: Tensor) -> Tensor:
        return self.out(self.drop(pooled))


HEADS: dict[str, type[Head]] = {"mlm": MLM, "pooler": Pooler, "nsp": NSP, "classify": Classify}
