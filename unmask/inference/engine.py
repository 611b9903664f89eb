"""Engine: what a Predictor asks of a network, numpy in and numpy out, so that it does not matter which program computes.

`TorchEngine` (torch_engine.py) has all of a model; `OnnxEngine` (onnx_engine.py) has an exported graph, and needs no torch.
Every method takes any number of rows, groups them by length inside (`batch_by_length`), and keeps their order.
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

# Labels of a row: which tokens are read, and which ones are asked about.
LABEL_POSITIONS, TARGETS = "mlm.positions", "mlm.targets"
MAX_LOGITS = 2**25  # vocabulary logits that exist at a time: 128 MB
Top = tuple[np.ndarray, np.ndarray]  # of a row with M places: ids (M, count), likeliest first; log-probabilities


@runtime_checkable
class Engine(Protocol):
    config: ModelConfig
    kind: str  # "torch" or "onnx"
    forward_lock: ForwardLock

    @property
    def heads(self) -> Sequence[str]: ...

    @property
    def generation(self) -> dict[str, Any]:
        """The folder's generation_config.json."""
        ...

    def forward_rows(
        self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        """`Task.forward` over ONE group of rows: its values per row. A graph, which is a task's forward, does not call it."""
        ...

    def top_k(self, head: str, examples: Sequence[Example], k: int, allowed: np.ndarray | None = None) -> list[Top]:
        """The `count` likeliest tokens at each row's labels["mlm.positions"], of those that `allowed` (V,) bool names.

        Probabilities are over the whole vocabulary. Logits are read where the model predicts: at the place, or before it.
        """
        ...

    def token_logprobs(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        """Per row (M,): the log-probability of labels["mlm.targets"] at labels["mlm.positions"]."""
        ...

    def hidden(self, examples: Sequence[Example], layer: int = -1) -> list[np.ndarray]:
        """Per row (T, D), float32. Layer 0 is the embeddings, 1 the first layer, -1 what the model gives."""
        ...

    def logits(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        """Per row what a head gives: (labels,), or for a head that reads tokens (T, …)."""
        ...

    def start_generation(
        self, prompts: Sequence[Sequence[int]], how: GenerationConfig, cache: bool = True
    ) -> GenerationState:
        """Prompts that grow token by token (model/generate.py)."""
        ...


def logit_offset(config: ModelConfig) -> int:
    """How far before a token the logits of it stand: 1 in a model that predicts the next one, else 0."""
    return int(config.causal or config.logit_position == "next")


def pad_id_of(config: ModelConfig) -> int:
    return 0 if config.pad_id is None else config.pad_id
