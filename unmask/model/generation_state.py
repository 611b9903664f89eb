"""The state of a text generation, without torch: rows that grow by one token per step, and the logits of the next token.

A `GenerativeModel` creates the state: `Model` creates a `TorchGenerationState` with a key-value cache
(`torch_generation.py`), and the engine of an exported graph a `GraphGenerationState`, which reads the whole row again in
each step.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, Self

import numpy as np

from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.generation import GenerationConfig

# Returns a context manager for each forward pass, in which requests that share the machine wait for each other.
ForwardLock = Callable[[], AbstractContextManager[None]]


class GenerativeModel(Protocol):
    @property
    def config(self) -> ModelConfig: ...

    @property
    def heads(self) -> Iterable[str]: ...

    @property
    def generation(self) -> dict[str, Any]:
        """Return the values of generation_config.json."""

    def start_generation(
        self, prompts: Sequence[Sequence[int]], options: GenerationConfig, cache: bool = True
    ) -> "GenerationState": ...


class GenerationState:
    """Rows (N, L) that grow by one token per step. Use it in a `with` block; `start` is the length of the prompts."""

    def __init__(self, config: ModelConfig, rows: np.ndarray):
        self.config, self.rows, self.start = config, rows, rows.shape[1]
        self.forward_lock: ForwardLock = nullcontext

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def max_row_length(self, options: GenerationConfig) -> int:
        """Return the maximum length of a row: the requested one, or by default at most the model's positions."""
        limit, requested = self.config.max_positions, options.max_row_length(self.start)
        if self.config.positions == "relative" or requested <= limit:
            return requested
        if options.max_new_tokens is not None or self.start >= limit:
            raise UserError(
                f"a prompt of {self.start:,} tokens and {requested - self.start:,} new tokens do not fit into the model",
                expected=f"together at most {limit:,} tokens, the model's positions",
                hint="shorten the prompt or lower max_new_tokens",
            )
        return limit

    def logits(self) -> np.ndarray:
        """Return the logits of the next token, (N, V) float32, in a new array that the caller may change."""
        raise NotImplementedError

    def expand_beams(self, copies: int) -> None:
        """Repeat each row `copies` times, one row per beam; the copies of a row are adjacent."""
        self.rows = self.rows.repeat(copies, 0)

    def append_tokens(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> None:
        """Append tokens (N,) to the rows. With `parents` (N,), row n continues row parents[n]."""
        rows = self.rows if parents is None else self.rows[parents]
        self.rows = np.concatenate([rows, tokens[:, None]], 1)


class GraphGenerationState(GenerationState):
    """Generation with a stateless function, such as an exported graph: `last_logits(ids, mask, decoder_ids)` → (N, V).

    The logits follow the last token of each row. For a causal model, `ids` (N, T) are the rows and `decoder_ids` is
    None. For an encoder–decoder, `ids` are the prompts, padded on the right, and `decoder_ids` (N, U) are the rows.
    `ids` is then the same array in each step, so that the function can reuse its encoder states.

    >>> from unmask.model.config import preset
    >>> config = preset("gpt2-mini", vocab_size=9)
    >>> count_up = lambda ids, mask, decoder_ids: np.eye(9, dtype=np.float32)[(ids[:, -1] + 1) % 9]  # 5 follows 4
    >>> state = GraphGenerationState(config, [[3, 4]], GenerationConfig(), count_up)
    >>> state.append_tokens(state.logits().argmax(-1))
    >>> state.rows.tolist()
    [[3, 4, 5]]
    """

    def __init__(
        self,
        config: ModelConfig,
        prompts: Sequence[Sequence[int]],
        options: GenerationConfig,
        last_logits: Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray],
    ):
        self.ids, self.mask = pad_prompts(prompts)
        self.has_decoder = config.decoder_layers > 0
        if not self.has_decoder and not config.causal:
            raise UserError(
                "an exported encoder cannot continue a text: its graph has no prefix mask",
                hint='load the folder that it was exported from: unmask.load(folder, backend="torch")',
            )
        super().__init__(config, decoder_start_rows(len(prompts), options) if self.has_decoder else self.ids)
        self._last_logits = last_logits

    def logits(self) -> np.ndarray:
        if self.has_decoder:
            return self._last_logits(self.ids, self.mask, self.rows)
        return self._last_logits(self.rows, np.ones(self.rows.shape, bool), None)

    def expand_beams(self, copies: int) -> None:
        super().expand_beams(copies)
        self.ids, self.mask = self.ids.repeat(copies, 0), self.mask.repeat(copies, 0)


def pad_prompts(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of the prompts, (N, T) int64, padded on the right with 0, and the mask of their tokens, (N, T) bool.

    >>> pad_prompts([[5, 6], [7]])[0].tolist()
    [[5, 6], [7, 0]]
    """
    mask = np.arange(max(map(len, prompts)))[None] < np.array([[len(prompt)] for prompt in prompts])
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate([np.array(prompt, np.int64) for prompt in prompts])
    return ids, mask


def decoder_start_rows(count: int, options: GenerationConfig) -> np.ndarray:
    """Return `count` decoder rows (N, 1) that contain only the start token."""
    if options.decoder_start_token_id is None:
        raise UserError(
            "the decoder's start token is not known",
            expected="decoder_start_token_id in generation_config.json, or special token ids in config.json",
        )
    return np.full((count, 1), options.decoder_start_token_id, np.int64)


def lm_head_name(model: GenerativeModel) -> str:
    """Return the name of the head that predicts the next token; raise UserError if the model cannot generate."""
    config, heads = model.config, list(model.heads)
    head = next((name for name in ("lm", "mlm") if name in heads), None)
    if head is None:
        raise UserError(
            f"this model cannot continue a text: its heads are {', '.join(heads) or 'none'}",
            expected="a model with an lm or mlm head",
        )
    if not config.decoder_layers and not config.causal and config.logit_position == "same":
        raise UserError(
            "this model cannot continue a text: it was trained to fill masks, not to predict the next token",
            expected="a model trained with clm, prefix or hybrid, or an encoder–decoder; to fill masks, use unmask fill",
            hint="unmask pretrain FILES --from MODEL --objective prefix",
        )
    return head
