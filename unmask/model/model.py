"""Model: one encoder and its heads. Losses are the objectives' business; this only computes logits."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmask.batch import Batch, Example, collate
from unmask.model.cache import KVCache
from unmask.model.cbow_encoder import CBOWEncoder
from unmask.model.config import ModelConfig
from unmask.model.decoder import Decoder
from unmask.model.encoder import Encoder
from unmask.model.generation import GenerationConfig
from unmask.model.head_spec import HEADS
from unmask.model.lstm import LSTMEncoder
from unmask.model.torch_generation import TorchGenerationState, start_generation
from unmask.seeds import stable_seed

# ModelConfig.encoder → class; all are called as Encoder is.
ENCODERS: dict[str, Any] = {"transformer": Encoder, "lstm": LSTMEncoder, "bag": CBOWEncoder}


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
        self.frozen = False  # whether the encoder learns nothing
        self.generation: dict[str, Any] = {}  # what generation_config.json of its folder says
        with torch.random.fork_rng(devices=[]):  # torch's own first weights are overwritten: they leave no trace
            self.encoder: Encoder = ENCODERS[config.encoder](config)
            self.decoder = Decoder(config) if config.decoder_layers else None
            self.heads = nn.ModuleDict({name: HEADS[name].build(config) for name in with_dependencies(heads)})
        if "generator" in self.heads:  # as in the paper, token and position vectors are the same parameters
            generator: Any = self.heads["generator"]
            small, own = generator.encoder.embeddings, self.encoder.embeddings
            small.tokens, small.positions = own.tokens, own.positions

    def freeze(self) -> None:
        """The encoder's features stay as they are: no gradient, no dropout. ELMo's mix of its layers belongs to the task."""
        self.frozen = True
        for name, value in self.encoder.named_parameters():
            value.requires_grad_(name.startswith("mix."))

    def train(self, mode: bool = True) -> "Model":
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """ids (B, T), mask (B, T) bool, segments (B, T) → hidden (B, T, D)."""
        return self.encoder(ids, mask, segments)

    def encode(self, batch: Batch, at: Tensor | None = None) -> Tensor:
        """The batch's hidden states: (B, T, D), or (N, D) at the positions `at` of the flattened batch."""
        return self.encoder(
            batch.input_ids,
            batch.attention_mask,
            batch.token_type_ids,
            at=at,
            prefix=batch.prefix_lengths,
            documents=batch.document_ids,
        )

    def decode(self, batch: Batch, hidden: Tensor, at: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """The decoder's states of `batch.decoder`, which sees `hidden`, all that `encode` gave: (B, U, D), or (N, D)."""
        assert self.decoder is not None
        assert batch.decoder_input_ids is not None
        return self.decoder(
            batch.decoder_input_ids, self.encoder.embeddings.tokens, hidden, batch.attention_mask, at, cache
        )

    def logits(self, head: str, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Heads over the vocabulary: hidden at chosen positions (N, D) → (N, V). Heads that read a row: (B, T, D), or at its
        `places` (B, D) → (B, …). Heads that read tokens: (…, D) → (…, labels), (…, 2), (…).
        """
        reads, own = HEADS[head].reads, self.heads[head]
        if "pooler" in HEADS[head].requires:
            return own(self.heads["pooler"](hidden, mask))
        return own(hidden) if reads == "tokens" else own(hidden, mask if reads == "row" else self.embedding)

    def head_positions(self, head: str, batch: Batch) -> Tensor | None:
        """Positions of the flattened batch that a head reads: each row's first, where it makes a vector of that; None = all."""
        pooler: Any = self.heads["pooler"] if "pooler" in HEADS[head].requires else None
        return None if pooler is None or pooler.mean else batch.row_starts()

    def head_output(self, head: str, batch: Batch) -> Tensor:
        """What a head gives for the rows of a batch; the last layer computes no more than it reads."""
        return self.logits(head, self.encode(batch, self.head_positions(head, batch)), batch.attention_mask)

    def forward_rows(
        self, forward: Callable[["Model", Batch], Tensor], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        """`forward` of one group of rows, without gradients: what it gives for each, float32, where padding is too.

        >>> from unmask.model.config import preset
        >>> model = Model(preset("bert-tiny", vocab_size=50))
        >>> [x.shape for x in model.forward_rows(Model.encode, [Example(np.array([2, 7, 3])), Example(np.array([2, 3]))], pad=0)]
        [(3, 128), (3, 128)]
        """
        self.eval()
        with torch.inference_mode():
            batch = collate(examples, pad).to(self.embedding.device)
            return list(forward(self, batch).float().cpu().numpy())

    def start_generation(
        self, prompts: Sequence[Sequence[int]], how: GenerationConfig, cache: bool = True
    ) -> TorchGenerationState:
        """Read step by step, for `generate`."""
        return start_generation(self, prompts, how, cache)

    @property
    def embedding(self) -> Tensor:
        """The token embedding (V, D), which the MLM logits share."""
        return self.encoder.embeddings.tokens.weight

    def set_token_bytes(self, pieces: Sequence[bytes]) -> None:
        """How each id is written (`text/token_bytes.py`), to a model that reads characters."""
        if self.config.characters:
            tokens: Any = self.encoder.embeddings.tokens
            tokens.set_token_bytes(pieces)

    @torch.no_grad()
    def init(self, seed: int, only: Iterable[str] | None = None) -> "Model":
        """First weights: each parameter is a function of (seed, its name) alone, whatever else the model has.

        `only` names the parameters to draw, e.g. those that a loaded folder lacked.
        """
        chosen = None if only is None else set(only)
        for name, value in self.named_parameters():
            if chosen is None or name in chosen:
                self._init_parameter(name, value, seed)
        return self

    def _init_parameter(self, name: str, value: Tensor, seed: int) -> None:
        config, (owner, _, kind) = self.config, name.rpartition(".")
        encoder: Any = self.encoder
        own = hasattr(encoder, "init_parameter") and owner.startswith("encoder.")
        if own and encoder.init_parameter(name, value):  # filled with what it has to begin with
            return
        if kind == "bias":
            value.zero_()
        elif owner.endswith("norm"):
            value.fill_(1.0)
        else:
            generator = torch.Generator().manual_seed(stable_seed(seed, "init", name))
            first = torch.empty(value.shape)  # drawn on the CPU: the same numbers on every device
            std = encoder.init_std(owner, value) if own else self._std(owner)
            cutoff = config.init_cutoff
            if cutoff:
                # By the inverse distribution function: torch's trunc_normal_ takes many times as long.
                edge = math.erf(cutoff / math.sqrt(2))
                first.uniform_(-edge, edge, generator=generator).erfinv_().mul_(std * math.sqrt(2))
            else:
                first.normal_(0.0, std, generator=generator)
            pad = getattr(self.encoder.embeddings.tokens, "padding_idx", None)
            if owner == "encoder.embeddings.tokens" and pad is not None:
                first[pad] = 0.0
            if config.init == "fan" and owner.endswith((".qkv", ".q")):  # the queries take over what a scale would do
                first[: config.heads * config.head_dim] *= config.head_dim**-0.5
            value.copy_(first)

    def _std(self, owner: str) -> float:
        config = self.config
        if owner.startswith("heads.generator."):
            return Model._std(self.heads["generator"], owner.removeprefix("heads.generator."))  # type: ignore[arg-type]
        if config.init == "fan":
            if owner == "encoder.embeddings.tokens":
                return config.initializer_range
            inputs = {"out": config.heads * config.head_dim, "down": config.mlp_width}
            return config.initializer_range * inputs.get(owner.rpartition(".")[2], config.hidden) ** -0.5
        if config.init == "flat" or owner.startswith("encoder.embeddings") or owner.endswith((".qkv", ".up")):
            return config.initializer_range
        if owner.startswith("heads.") and owner.endswith(".out"):
            return config.hidden**-0.5
        return config.initializer_range / math.sqrt(2 * config.layers)


class Generator(Model):
    """ELECTRA's generator (2003.10555 §3): a smaller model with a masked-LM head, itself a head of the discriminator.

    >>> from unmask.model.config import preset
    >>> model = Model(preset("electra-mini", vocab_size=50), ["rtd", "generator"])
    >>> model.heads["generator"].embedding is model.embedding
    True
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config.generator_config(), ("mlm",))


# The generator's names of what is the model's own.
TIED = tuple(f"heads.generator.encoder.embeddings.{name}.weight" for name in ("tokens", "positions"))


def with_dependencies(heads: Iterable[str]) -> list[str]:
    """The heads asked for and those they read, without repeats, in the order of HEADS.

    >>> with_dependencies(["nsp"])
    ['pooler', 'nsp']
    """
    wanted = {found for name in heads for found in (name, *HEADS[name].requires)}
    return [name for name in HEADS if name in wanted]


def count_parameters(config: ModelConfig, heads: Iterable[str] = ("mlm",)) -> int:
    """How many numbers the model has, without allocating them.

    >>> from unmask.model.config import preset
    >>> round(count_parameters(preset("bert-base"), ["pooler"]) / 1e6)
    109
    """
    with torch.device("meta"):
        return sum(p.numel() for p in Model(config, heads).parameters())
