"""Model: one encoder, perhaps a decoder, and heads. It computes hidden states and logits; objectives compute losses."""

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

# ModelConfig.encoder → class. All have the signature of Encoder.forward.
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

    batch_size: int | None = None  # batch size of predictions during training, see `tasks.task.Backend`

    def __init__(self, config: ModelConfig, heads: Iterable[str] = ("mlm",)):
        super().__init__()
        self.config = config
        self.frozen = False  # whether the encoder is not trained
        self.generation: dict[str, Any] = {}  # the values of generation_config.json
        with torch.random.fork_rng(
            devices=[]
        ):  # torch's initial weights are overwritten, so they must not advance the global generator
            self.encoder: Encoder = ENCODERS[config.encoder](config)
            self.decoder = Decoder(config) if config.decoder_layers else None
            self.heads = nn.ModuleDict({name: HEADS[name].build(config) for name in with_dependencies(heads)})
        if "generator" in self.heads:  # as in the ELECTRA paper, the token and position embeddings are shared
            generator: Any = self.heads["generator"]
            generator.encoder.embeddings.tokens = self.encoder.embeddings.tokens
            generator.encoder.embeddings.positions = self.encoder.embeddings.positions

    def freeze(self) -> None:
        """Freeze the encoder: no gradient, no dropout. ELMo's mix of layers is still trained, because it belongs to the task."""
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

    def encode(self, batch: Batch, positions: Tensor | None = None) -> Tensor:
        """Return the hidden states of the batch, (B, T, D), or (N, D) at `positions` of the flattened batch."""
        return self.encoder(
            batch.input_ids,
            batch.attention_mask,
            batch.token_type_ids,
            positions=positions,
            prefix=batch.prefix_lengths,
            documents=batch.document_ids,
        )

    def decode(
        self, batch: Batch, hidden: Tensor, positions: Tensor | None = None, cache: KVCache | None = None
    ) -> Tensor:
        """Return the decoder's states of `batch.decoder_input_ids`, (B, U, D), or (N, D) at `positions`.

        `hidden` is the output of `encode` for the whole batch.
        """
        assert self.decoder is not None
        assert batch.decoder_input_ids is not None
        return self.decoder(
            batch.decoder_input_ids, self.encoder.embeddings.tokens, hidden, batch.attention_mask, positions, cache
        )

    def logits(self, head: str, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the output of a head.

        | the head reads | hidden                                      | output                        |
        |----------------|---------------------------------------------|-------------------------------|
        | vocabulary     | (N, D), selected positions                  | (N, V)                        |
        | row            | (B, T, D), or (B, D) at `head_positions`    | (B, …)                        |
        | tokens         | (…, D)                                      | (…, labels), (…, 2) or (…)    |
        """
        spec, module = HEADS[head], self.heads[head]
        if "pooler" in spec.requires:
            return module(self.heads["pooler"](hidden, mask))
        return (
            module(hidden)
            if spec.reads == "tokens"
            else module(hidden, mask if spec.reads == "row" else self.embedding)
        )

    def head_positions(self, head: str, batch: Batch) -> Tensor | None:
        """Return the positions of the flattened batch that a head reads: the first token of each row, or None for all."""
        pooler: Any = self.heads["pooler"] if "pooler" in HEADS[head].requires else None
        return None if pooler is None or pooler.mean else batch.row_starts()

    def head_output(self, head: str, batch: Batch) -> Tensor:
        """Return the output of a head for a batch. The last layer computes only the positions that the head reads."""
        return self.logits(head, self.encode(batch, self.head_positions(head, batch)), batch.attention_mask)

    def forward_rows(
        self, forward: Callable[["Model", Batch], Tensor], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        """Collate the examples, call `forward` without gradients, and return its output per row, float32, with padding.

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
        self, prompts: Sequence[Sequence[int]], options: GenerationConfig, cache: bool = True
    ) -> TorchGenerationState:
        """Start a generation, for `generate`."""
        return start_generation(self, prompts, options, cache)

    @property
    def embedding(self) -> Tensor:
        """Return the token embedding (V, D), which tied MLM and LM logits share."""
        return self.encoder.embeddings.tokens.weight

    def set_token_bytes(self, token_bytes: Sequence[bytes]) -> None:
        """Store the bytes of each token (`text/token_bytes.py`) if the model reads characters."""
        if self.config.characters:
            tokens: Any = self.encoder.embeddings.tokens
            tokens.set_token_bytes(token_bytes)

    @torch.no_grad()
    def init(self, seed: int, only: Iterable[str] | None = None) -> "Model":
        """Initialize the weights. Each parameter depends only on (seed, its name), not on the other parameters.

        `only`: names of the parameters to initialize, e.g. those that are missing in a loaded folder.
        """
        selected = None if only is None else set(only)
        for name, value in self.named_parameters():
            if selected is None or name in selected:
                self._init_parameter(name, value, seed)
        return self

    def _init_parameter(self, name: str, value: Tensor, seed: int) -> None:
        config, (owner, _, kind) = self.config, name.rpartition(".")
        encoder: Any = self.encoder
        by_encoder = hasattr(encoder, "init_parameter") and owner.startswith("encoder.")
        if by_encoder and encoder.init_parameter(name, value):  # a constant
            return
        if kind == "bias":
            value.zero_()
        elif owner.endswith("norm"):
            value.fill_(1.0)
        else:
            generator = torch.Generator().manual_seed(stable_seed(seed, "init", name))
            initial = torch.empty(value.shape)  # on the CPU, so that the numbers are the same for every device
            std = encoder.init_std(owner, value) if by_encoder else self._init_std(owner)
            cutoff = config.init_cutoff
            if cutoff:
                # Inverse transform sampling, which is several times faster than torch's trunc_normal_.
                edge = math.erf(cutoff / math.sqrt(2))
                initial.uniform_(-edge, edge, generator=generator).erfinv_().mul_(std * math.sqrt(2))
            else:
                initial.normal_(0.0, std, generator=generator)
            pad = getattr(self.encoder.embeddings.tokens, "padding_idx", None)
            if owner == "encoder.embeddings.tokens" and pad is not None:
                initial[pad] = 0.0
            if config.init == "fan" and owner.endswith((".qkv", ".q")):  # T5 scales the queries, not the scores
                initial[: config.heads * config.head_dim] *= config.head_dim**-0.5
            value.copy_(initial)

    def _init_std(self, owner: str) -> float:
        """Return the standard deviation of the initial weights of the module `owner`."""
        config = self.config
        if owner.startswith("heads.generator."):
            return Model._init_std(self.heads["generator"], owner.removeprefix("heads.generator."))  # type: ignore[arg-type]
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


# Names of the generator's embedding weights, which are shared with the discriminator.
TIED = tuple(f"heads.generator.encoder.embeddings.{name}.weight" for name in ("tokens", "positions"))


def with_dependencies(heads: Iterable[str]) -> list[str]:
    """Return the heads and the heads they require, without duplicates, in the order of HEADS.

    >>> with_dependencies(["nsp"])
    ['pooler', 'nsp']
    """
    required = {head for name in heads for head in (name, *HEADS[name].requires)}
    return [name for name in HEADS if name in required]


def count_parameters(config: ModelConfig, heads: Iterable[str] = ("mlm",)) -> int:
    """Return the number of parameters, without allocating them.

    >>> from unmask.model.config import preset
    >>> round(count_parameters(preset("bert-base"), ["pooler"]) / 1e6)
    109
    """
    with torch.device("meta"):
        return sum(p.numel() for p in Model(config, heads).parameters())
