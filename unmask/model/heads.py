"""Heads: small modules that turn hidden states into logits. Their properties are in head_spec.py.

A vocabulary head reads only selected positions, never whole rows, so that vocabulary logits are computed only where a loss
or a caller needs them.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.layers import ACTIVATION, layer_norm


class MLM(nn.Module):
    """Hidden states at selected positions → vocabulary logits.

    >>> from unmask.model.config import preset
    >>> MLM(preset("bert-tiny", vocab_size=50))(torch.zeros(3, 128), torch.zeros(50, 128)).shape
    torch.Size([3, 50])
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.activation = ACTIVATION[config.head_activation or config.activation]
        width = config.embedding_size
        self.dense = nn.Linear(config.hidden, width, bias=config.head_bias)
        self.norm = layer_norm(config, width)
        self.decoder = None if config.tie else nn.Linear(width, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.decoder_bias else None

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """hidden (N, D), embedding (V, D), which is ignored if the head has its own matrix → (N, V)."""
        weight = embedding if self.decoder is None else self.decoder.weight
        return F.linear(self.norm(self.activation(self.dense(hidden))), weight, self.bias)


class LM(nn.Module):
    """Hidden states at selected positions → vocabulary logits, without another layer in between.

    BART's bias is a buffer, not a parameter: training keeps it at 0, and users may set it to shift logits.
    """

    final_logits_bias: Tensor | None

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.scale = config.hidden**-0.5 if config.scale_logits else 1.0
        self.decoder = None if config.tie else nn.Linear(config.hidden, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size) if config.decoder_bias else None)

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """As `MLM.forward`."""
        weight = embedding if self.decoder is None else self.decoder.weight
        logits = F.linear(hidden if self.scale == 1.0 else hidden * self.scale, weight)
        return logits if self.final_logits_bias is None else logits + self.final_logits_bias[0]


class CBOW(nn.Module):
    """Means of context vectors (N, D) → vocabulary logits (word2vec 1301.3781)."""

    def __init__(self, config: ModelConfig, width: int = 0, tie: bool = True):
        super().__init__()
        tie = tie and config.tie
        self.decoder = None if tie else nn.Linear(width or config.hidden, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.decoder_bias else None

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """As `MLM.forward`."""
        return F.linear(hidden, embedding if self.decoder is None else self.decoder.weight, self.bias)


class BiLM(CBOW):
    """One direction's states (N, D / 2) → vocabulary logits; both directions share it (ELMo 1802.05365)."""

    def __init__(self, config: ModelConfig):
        # A model that reads characters has no token embedding to share.
        super().__init__(config, config.hidden // 2, tie=not config.characters)


class Pooler(nn.Module):
    """Hidden states of a row → one vector: act(dense([CLS])), or norm(act(dense([CLS] or the mean)))."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        normalized = config.pooling in ("cls", "mean")
        self.mean = config.pooling == "mean"
        self.dense = nn.Linear(config.hidden, config.hidden, bias=config.head_bias)
        activation = (config.head_activation or config.activation) if normalized else config.pooling
        self.activation = ACTIVATION[activation]
        self.norm = layer_norm(config) if normalized else nn.Identity()

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """hidden (B, T, D), mask (B, T) bool → (B, D). For [CLS] pooling, hidden may contain only the first tokens, (B, D)."""
        if not self.mean:
            row = hidden if hidden.ndim == 2 else hidden[:, 0]
        elif mask is None:
            row = hidden.mean(1)
        else:
            weights = mask[:, :, None].to(hidden.dtype)
            row = (hidden * weights).sum(1) / weights.sum(1)
        return self.norm(self.activation(self.dense(row)))


class NSP(nn.Module):
    """Pooled (B, D) → (B, 2): logit 0 = B follows A, logit 1 = B is from elsewhere, as in Google's BERT and transformers."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.out = nn.Linear(config.hidden, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        return self.out(pooled)


class SOP(NSP):
    """Pooled (B, D) → (B, 2): logit 0 = the two segments are in order, logit 1 = swapped (ALBERT 1909.11942)."""


class Classify(nn.Module):
    """Pooled (B, D) → (B, labels)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.drop = classifier_dropout(config)
        self.out = nn.Linear(config.hidden, self.size(config))

    def size(self, config: ModelConfig) -> int:
        return label_count(config, "classify")

    def forward(self, pooled: Tensor) -> Tensor:
        return self.out(self.drop(pooled))


class Choose(Classify):
    """Pooled (B, D) → (B,): a score per row; the softmax over the rows of one question selects the answer."""

    def size(self, config: ModelConfig) -> int:
        return 1

    def forward(self, pooled: Tensor) -> Tensor:
        return super().forward(pooled).squeeze(-1)


class Tag(nn.Module):
    """Hidden states (…, D) → (…, labels)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.dense, self.norm = None, None
        if config.token_dense:
            self.activation = ACTIVATION[config.head_activation or config.activation]
            self.dense = nn.Linear(config.hidden, config.hidden, bias=config.head_bias)
            self.norm = layer_norm(config)
        self.drop = classifier_dropout(config)
        self.out = nn.Linear(config.hidden, self.size(config))

    def size(self, config: ModelConfig) -> int:
        return label_count(config, "tag")

    def forward(self, hidden: Tensor) -> Tensor:
        if self.dense is not None and self.norm is not None:
            hidden = self.norm(self.activation(self.dense(hidden)))
        return self.out(self.drop(hidden))


class Answer(Tag):
    """Hidden states (…, D) → (…, 2): scores of an answer that starts, and that ends, at each token."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.drop = nn.Dropout(0.0)  # as in BERT

    def size(self, config: ModelConfig) -> int:
        return 2


class RTD(nn.Module):
    """Hidden states (…, D) → (…): above 0 if the token was probably replaced (ELECTRA 2003.10555)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.activation = ACTIVATION[config.activation]
        self.dense = nn.Linear(config.hidden, config.hidden)
        self.out = nn.Linear(config.hidden, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.out(self.activation(self.dense(hidden))).squeeze(-1)


def classifier_dropout(config: ModelConfig) -> nn.Dropout:
    return nn.Dropout(config.dropout if config.classifier_dropout is None else config.classifier_dropout)


def label_count(config: ModelConfig, head: str) -> int:
    if not config.labels:
        raise UserError(
            f"cannot create a {head} head without labels", expected='labels=("negative", "positive") in the config'
        )
    return len(config.labels)


@torch.no_grad()
def reorder_outputs(out: nn.Linear, old: Sequence[str], new: Sequence[str]) -> bool:
    """Reorder the outputs of a layer from the order of names `old` to `new`; return False if the names differ.

    >>> out = nn.Linear(1, 2)
    >>> no = out.bias[0].item()
    >>> reorder_outputs(out, ("no", "yes"), ("yes", "no")), out.bias[1].item() == no, reorder_outputs(out, ("yes", "no"), ("a", "b"))
    (True, True, False)
    """
    if sorted(old) != sorted(new):
        return False
    order = [list(old).index(name) for name in new]
    out.weight.copy_(out.weight[order])
    out.bias.copy_(out.bias[order])
    return True


@torch.no_grad()
def fold_target_scale(out: nn.Linear, mean: float, sd: float) -> None:
    """Change a layer that outputs standardized values (z-scores) so that it outputs values on the original scale."""
    out.weight.mul_(sd)
    out.bias.mul_(sd).add_(mean)


@torch.no_grad()
def unfold_target_scale(out: nn.Linear, mean: float, sd: float) -> None:
    """Undo `fold_target_scale`."""
    out.weight.div_(sd)
    out.bias.sub_(mean).div_(sd)
