"""Engine: the interface between a Predictor and a network. Inputs and outputs are numpy arrays.

`TorchEngine` (torch_engine.py) supports every method. `OnnxEngine` (onnx_engine.py) runs an exported graph and `StaticEngine`
(static_engine.py) a static copy, both without torch.
Every method takes any number of rows, batches them by length (`batch_by_length`) and returns results in the input order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from unmask.batch import Example
    from unmask.model.config import ModelConfig
    from unmask.model.generation import GenerationConfig
    from unmask.model.generation_state import ForwardLock, GenerationState

# Labels of a row, (M,) each: positions of the predicted tokens, and the ids whose probability is requested.
LABEL_POSITIONS, TARGETS = "mlm.positions", "mlm.targets"
MAX_LOGITS = 2**25  # vocabulary logits in memory at a time: 128 MB
# Of a row with M positions: ids (M, k), most likely first; log-probabilities (M, k)
TopK = tuple[np.ndarray, np.ndarray]


@runtime_checkable
class Engine(Protocol):
    config: ModelConfig
    kind: str  # "torch", "onnx" or "static"
    batch_size: int | None  # rows per forward pass; None: as many as fill a number of tokens
    forward_lock: ForwardLock

    @property
    def heads(self) -> Sequence[str]: ...

    @property
    def generation(self) -> dict[str, Any]:
        """Return the contents of the folder's generation_config.json."""
        ...

    def forward_rows(
        self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        """Run `Task.forward` over one batch and return its values per row. An exported graph contains it and ignores `forward`."""
        ...

    def top_k(self, head: str, examples: Sequence[Example], k: int, allowed: np.ndarray | None = None) -> list[TopK]:
        """Return the `k` most likely tokens at each of labels["mlm.positions"], among those where `allowed` (V,) is True.

        Log-probabilities are normalized over the whole vocabulary.
        """
        ...

    def token_logprobs(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        """Return (M,) per row: the log-probability of labels["mlm.targets"] at labels["mlm.positions"]."""
        ...

    def hidden(self, examples: Sequence[Example], layer: int = -1) -> list[np.ndarray]:
        """Return hidden states (T, D) float32 per row. Layer 0 is the embeddings, 1 the first layer, -1 the encoder's output."""
        ...

    def logits(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        """Return a head's outputs per row: (labels,), or (T, …) for a head that predicts per token."""
        ...

    def start_generation(
        self, prompts: Sequence[Sequence[int]], options: GenerationConfig, cache: bool = True
    ) -> GenerationState:
        """Return the state of token-by-token generation (model/generate.py)."""
        ...


def logit_offset(config: ModelConfig) -> int:
    """Return how many positions before a token its logits are: 1 for a model that predicts the next token, else 0."""
    return int(config.causal or config.logit_position == "next")


def pad_id_of(config: ModelConfig) -> int:
    return 0 if config.pad_id is None else config.pad_id
