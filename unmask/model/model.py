"""Model: one encoder and its heads. Losses are the objectives' business; this only computes logits."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.errors import UserError, nearest
from unmask.model.config import ModelConfig
from unmask.model.encoder import Encoder
from unmask.model.heads import HEADS
from unmask.seeds import address


class Model(nn.Module):
    """
    >>> from unmask.model.config import preset
    >>> model = Model(preset("bert-tiny", vocab_size=50), heads=("mlm", "nsp")).init(0).eval()
    >>> list(model.heads)  # nsp reads the pooler
    ['mlm', 'pooler', 'nsp']
    >>> hidden = model(torch.tensor([[2, 7, 4, 3]]))  # (1, 4, 128)
    >>> model.logits("mlm", hidden[:, 2]).shape, model.logits("nsp", hidden).shape
    (torch.Size([1, 50]), torch.Size([1, 2]))
    """

    def __init__(self, config: ModelConfig, heads: Iterable[str] = ("mlm",)):
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):  # torch's own first weights are overwritten: they leave no trace
            self.encoder = Encoder(config)
            self.heads = nn.ModuleDict({name: HEADS[name](config) for name in with_needs(heads)})

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """ids (B, T), mask (B, T) bool, segments (B, T) → hidden (B, T, D)."""
        return self.encoder(ids, mask, segments)

    def encode(self, batch: Batch, at: Tensor | None = None) -> Tensor:
        """The batch's hidden states: (B, T, D), or (N, D) at the positions `at` of the flattened batch."""
        return self.encoder(
            batch.ids, batch.mask, batch.segments, at=at, prefix=batch.prefix, documents=batch.documents
        )

    def logits(self, head: str, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mlm`: hidden at chosen positions (N, D) → (N, V). Heads that read a row: (B, T, D) → (B, …)."""
        if "pooler" in HEADS[head].needs:
            return self.heads[head](self.heads["pooler"](hidden, mask))
        return self.heads[head](hidden, self.embedding)

    @property
    def embedding(self) -> Tensor:
        """The token embedding (V, D), which the MLM logits share."""
        return self.encoder.embeddings.tokens.weight

    @torch.no_grad()
    def init(self, seed: int, only: Iterable[str] | None = None) -> "Model":
        """First weights: each parameter is a function of (seed, its name) alone, whatever else the model has.

        `only` names the parameters to draw, e.g. those that a loaded folder lacked.
        """
        chosen = None if only is None else set(only)
        for name, value in self.named_parameters():
            if chosen is None or name in chosen:
                self._draw(name, value, seed)
        return self

    def _draw(self, name: str, value: Tensor, seed: int) -> None:
        config, (owner, _, kind) = self.config, name.rpartition(".")
        if kind == "bias":
            value.zero_()
        elif owner.endswith("norm"):
            value.fill_(1.0)
        else:
            generator = torch.Generator().manual_seed(address(seed, "init", name))
            first = torch.empty(value.shape)  # drawn on the CPU: the same numbers on every device
            std, cutoff = self._std(owner), config.init_cutoff
            if cutoff:
                # By the inverse distribution function: torch's trunc_normal_ takes many times as long.
                edge = math.erf(cutoff / math.sqrt(2))
                first.uniform_(-edge, edge, generator=generator).erfinv_().mul_(std * math.sqrt(2))
            else:
                first.normal_(0.0, std, generator=generator)
            if owner == "encoder.embeddings.tokens" and config.pad_id is not None:
                first[config.pad_id] = 0.0
            value.copy_(first)

    def _std(self, owner: str) -> float:
        config = self.config
        if config.init == "flat" or owner.startswith("encoder.embeddings") or owner.endswith((".qkv", ".up")):
            return config.initializer_range
        if owner in ("heads.classify.out", "heads.nsp.out"):
            return config.hidden**-0.5
        return config.initializer_range / math.sqrt(2 * config.layers)


def with_needs(heads: Iterable[str]) -> list[str]:
    """The heads asked for and those they read, without repeats, in the order of HEADS.

    >>> with_needs(["nsp"])
    ['pooler', 'nsp']
    """
    wanted = set(heads)
    for name in list(wanted):
        if name not in HEADS:
            raise UserError(f"unknown head {name!r}{nearest(name, list(HEADS))}", valid=", ".join(HEADS))
        wanted.update(HEADS[name].needs)
    return [name for name in HEADS if name in wanted]


def parameters(config: ModelConfig, heads: Iterable[str] = ("mlm",)) -> int:
    """How many numbers the model has, without allocating them.

    >>> from unmask.model.config import preset
    >>> round(parameters(preset("bert-base"), ["pooler"]) / 1e6)
    109
    """
    with torch.device("meta"):
        return sum(p.numel() for p in Model(config, heads).parameters())
