"""What generation reads, step by step, without torch: rows that grow by a token, and the logits of what comes next.

`GenerativeModel` is what can generate: torch's Model (`torch_steps.py`: what was read is kept in a cache), or an engine, which
for an exported graph gives `GraphGenerationState`: it reads the whole row again in each step.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, Self

import numpy as np

from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.model.generation import GenerationConfig

ForwardLock = Callable[
    [], AbstractContextManager[None]
]  # surrounds every forward pass: who shares the machine waits in it


class GenerativeModel(Protocol):
    @property
    def config(self) -> ModelConfig: ...

    @property
    def heads(self) -> Iterable[str]: ...

    @property
    def generation(self) -> dict[str, Any]:
        """What generation_config.json of its folder says."""

    def start_generation(
        self, prompts: Sequence[Sequence[int]], how: GenerationConfig, cache: bool = True
    ) -> "GenerationState": ...


class GenerationState:
    """Rows (N, L) that grow, and the logits of what comes next. Used in a `with` block."""

    def __init__(self, config: ModelConfig, rows: np.ndarray):
        self.config, self.rows, self.start = config, rows, rows.shape[1]
        self.forward_lock: ForwardLock = nullcontext

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def max_row_length(self, how: GenerationConfig) -> int:
        """How long a row may become: what is asked for, or where nothing is, what the model can read."""
        most, wanted = self.config.max_positions, how.max_row_length(self.start)
        if self.config.positions == "relative" or wanted <= most:
            return wanted
        if how.max_new_tokens is not None or self.start >= most:
            raise UserError(
                f"a prompt of {self.start:,} tokens and {wanted - self.start:,} new ones",
                expected=f"together at most {most:,}, the model's positions",
            )
        return most

    def logits(self) -> np.ndarray:
        """(N, V) in float32, an array of its own: it is overwritten."""
        raise NotImplementedError

    def expand_beams(self, copies: int) -> None:
        """Each row so many times, one below the other: the beams."""
        self.rows = self.rows.repeat(copies, 0)

    def append_tokens(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> None:
        """Append tokens (N,), to the rows `parents` (N,) where these are others."""
        rows = self.rows if parents is None else self.rows[parents]
        self.rows = np.concatenate([rows, tokens[:, None]], 1)


class GraphGenerationState(GenerationState):
    """Rows read by a function without memory, such as an exported graph: `last(ids, mask, decoder)` → (N, V).

    A causal model's `ids` (N, T) are the rows; `decoder` is None. An encoder–decoder's `ids` are the prompts, padded on
    the right, the same array in each step, and `decoder` (N, U) the rows. Logits are those after the last token of a row.

    >>> from unmask.model.config import preset
    >>> config = preset("gpt2-mini", vocab_size=9)
    >>> count = lambda ids, mask, decoder: np.eye(9, dtype=np.float32)[(ids[:, -1] + 1) % 9]  # 5 comes after 4
    >>> steps = GraphGenerationState(config, [[3, 4]], GenerationConfig(), count)
    >>> steps.append_tokens(steps.logits().argmax(-1))
    >>> steps.rows.tolist()
    [[3, 4, 5]]
    """

    def __init__(
        self,
        config: ModelConfig,
        prompts: Sequence[Sequence[int]],
        how: GenerationConfig,
        last: Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray],
    ):
        self.ids, self.mask = pad_prompts(prompts)
        self.decodes = config.decoder_layers > 0
        if not self.decodes and not config.causal:
            raise UserError(
                "an exported encoder cannot continue a text: its graph has no prefix mask",
                hint='load the folder that it was exported from: unmask.load(folder, backend="torch")',
            )
        super().__init__(config, decoder_start_rows(len(prompts), how) if self.decodes else self.ids)
        self._last = last

    def logits(self) -> np.ndarray:
        if self.decodes:
            return self._last(self.ids, self.mask, self.rows)
        return self._last(self.rows, np.ones(self.rows.shape, bool), None)

    def expand_beams(self, copies: int) -> None:
        super().expand_beams(copies)
        self.ids, self.mask = self.ids.repeat(copies, 0), self.mask.repeat(copies, 0)


def pad_prompts(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Prompts one below the other, (N, T) int64, filled up on the right, and where their tokens stand, (N, T) bool.

    >>> pad_prompts([[5, 6], [7]])[0].tolist()
    [[5, 6], [7, 0]]
    """
    mask = np.arange(max(map(len, prompts)))[None] < np.array([[len(prompt)] for prompt in prompts])
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate([np.array(prompt, np.int64) for prompt in prompts])
    return ids, mask


def decoder_start_rows(count: int, how: GenerationConfig) -> np.ndarray:
    """The first token of a decoder's rows, (N, 1)."""
    if how.decoder_start_token_id is None:
        raise UserError("the decoder has no first token", expected="decoder_start_token_id, or the tokenizer's own ids")
    return np.full((count, 1), how.decoder_start_token_id, np.int64)


def lm_head_name(writer: GenerativeModel) -> str:
    """The head that predicts the next token, or an error that says what to do."""
    config, heads = writer.config, list(writer.heads)
    head = next((name for name in ("lm", "mlm") if name in heads), None)
    if head is None:
        raise UserError(
            f"this model cannot continue a text: its heads are {', '.join(heads) or 'none'}",
            expected="a model with the lm or mlm head",
        )
    if not config.decoder_layers and not config.causal and config.logit_position == "same":
        raise UserError(
            "this model cannot continue a text: it was trained to fill masks, not to write the next token",
            expected="a model trained with clm, prefix or hybrid, or an encoder–decoder; this one can fill: unmask fill",
            hint="train it to write: unmask pretrain FILES --from MODEL --objective prefix",
        )
    return head
