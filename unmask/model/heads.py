"""Heads: small modules between hidden states and an answer. What others want to know of them is in head_spec.py.

A head over the vocabulary reads the positions it is given, never a whole row, so that vocabulary logits exist only where a
loss or a caller asks for them.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.layers import ACTIVATION, layer_norm


class MLM(nn.Module):
    """Hidden states at chosen positions → vocabulary logits.

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
        """hidden (N, D), embedding (V, D), unused when the head has its own matrix → (N, V)."""
        weight = embedding if self.decoder is None else self.decoder.weight
        return F.linear(self.norm(self.activation(self.dense(hidden))), weight, self.bias)


class LM(nn.Module):
    """Hidden states at chosen positions → vocabulary logits, without a transform of its own.

    BART's bias is no parameter: it is 0 in its training and only shifts what a user wants shifted.
    """

    final_logits_bias: Tensor | None

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.scale = config.hidden**-0.5 if config.scale_logits else 1.0
        self.decoder = None if config.tie else nn.Linear(config.hidden, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size) if config.decoder_bias else None)

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """As MLM's."""
        weight = embedding if self.decoder is None else self.decoder.weight
        logits = F.linear(hidden if self.scale == 1.0 else hidden * self.scale, weight)
        return logits if self.final_logits_bias is None else logits + self.final_logits_bias[0]


class CBOW(nn.Module):
    """Means of context vectors (N, D) → vocabulary logits (word2vec 1301.3781)."""

    def __init__(self, config: ModelConfig, width: int = 0, own: bool = False):
        super().__init__()
        own = own or not config.tie
        self.decoder = nn.Linear(width or config.hidden, config.vocab_size, bias=False) if own else None
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.decoder_bias else None

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """As MLM's."""
        return F.linear(hidden, embedding if self.decoder is None else self.decoder.weight, self.bias)


class BiLM(CBOW):
    """One direction's states (N, D / 2) → vocabulary logits; both directions share it (ELMo 1802.05365)."""

    def __init__(self, config: ModelConfig):
        # a model that reads characters has no matrix of tokens to share
        super().__init__(config, config.hidden // 2, own=config.characters)


class Pooler(nn.Module):
    """A row's hidden states → one vector: act(dense([CLS])), or norm(act(dense([CLS] or the mean)))."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        normed = config.pooling in ("cls", "mean")
        self.mean = config.pooling == "mean"
        self.dense = nn.Linear(config.hidden, config.hidden, bias=config.head_bias)
        activation = (config.head_activation or config.activation) if normed else config.pooling
        self.activation = ACTIVATION[activation]
        self.norm = layer_norm(config) if normed else nn.Identity()

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """hidden (B, T, D), mask (B, T) bool → (B, D); without a mean, hidden may be that of the first tokens alone, (B, D)."""
        if not self.mean:
            row = hidden if hidden.ndim == 2 else hidden[:, 0]
        elif mask is None:
            row = hidden.mean(1)
        else:
            kept = mask[:, :, None].to(hidden.dtype)
            row = (hidden * kept).sum(1) / kept.sum(1)
        return self.norm(self.activation(self.dense(row)))


class NSP(nn.Module):
    """Pooled (B, D) → (B, 2): logit 0 = B follows A, logit 1 = B comes from elsewhere, as Google and transformers."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.out = nn.Linear(config.hidden, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        return self.out(pooled)


class SOP(NSP):
    """Pooled (B, D) → (B, 2): logit 0 = the two halves stand in their order, logit 1 = swapped (ALBERT 1909.11942)."""


class Classify(nn.Module):
    """Pooled (B, D) → (B, labels)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.drop = classifier_dropout(config)
        self.out = nn.Linear(config.hidden, label_count(config, "classify"))

    def forward(self, pooled: Tensor) -> Tensor:
        return self.out(self.drop(pooled))


class Choose(nn.Module):
    """Pooled (B, D) → (B,): how well each row answers; a softmax over the rows of one question makes the choice."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.drop = classifier_dropout(config)
        self.out = nn.Linear(config.hidden, 1)

    def forward(self, pooled: Tensor) -> Tensor:
        return self.out(self.drop(pooled)).squeeze(-1)


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
    """Hidden states (…, D) → (…, 2): how well an answer begins, and ends, at each token."""

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.drop = nn.Dropout(0.0)  # BERT's has none

    def size(self, config: ModelConfig) -> int:
        return 2


class RTD(nn.Module):
    """Hidden states (…, D) → (…): above 0 where the token looks replaced (ELECTRA 2003.10555)."""

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
        raise UserError(f"a {head} head without labels", expected='labels=("negative", "positive") in the config')
    return len(config.labels)


@torch.no_grad()
def reorder_outputs(out: nn.Linear, old: Sequence[str], new: Sequence[str]) -> bool:
    """Put a layer's outputs, called `old`, into the order of `new`; False when these are other names.

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
    """Put a scale into a layer whose output is in standard deviations from the mean: it then gives the numbers themselves."""
    out.weight.mul_(sd)
    out.bias.mul_(sd).add_(mean)


@torch.no_grad()
def unfold_target_scale(out: nn.Linear, mean: float, sd: float) -> None:
    """Take it out again."""
    out.weight.div_(sd)
    out.bias.sub_(mean).div_(sd)
