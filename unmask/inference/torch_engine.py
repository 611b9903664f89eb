"""PyTorch implementation of the Engine protocol."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.batch import Batch, Example, batch_by_length, collate
from unmask.errors import UserError
from unmask.inference.engine import LABEL_POSITIONS, TARGETS, TopK, logit_offset, pad_id_of
from unmask.model import hf
from unmask.model.device import pick_device
from unmask.model.generation import GenerationConfig
from unmask.model.generation_state import ForwardLock, GenerationState
from unmask.model.head_spec import HEADS
from unmask.model.model import Model

LOGIT_ROWS_PER_CHUNK = 512  # positions whose vocabulary logits are in memory at a time


def open_engine(source: str | Path, device: str = "auto") -> tuple["TorchEngine", Path]:
    """Load a model folder or hub name. Return the engine and the local folder."""
    loaded = hf.load(source)
    if loaded.missing:  # hf.load initialized them randomly, for training: predictions would be meaningless
        raise UserError(
            f"{source}: the shapes of {', '.join(loaded.missing)} do not match config.json",
            hint="copy or download the folder again",
        )
    return TorchEngine(loaded.model, device), loaded.folder


class TorchEngine:
    """
    >>> from unmask.model.config import preset
    >>> engine = TorchEngine(Model(preset("bert-tiny", vocab_size=50)).init(0), "cpu")
    >>> row = Example(np.array([2, 4, 7, 3]), labels={"mlm.positions": np.array([1])})
    >>> ids, logprobs = engine.top_k("mlm", [row], k=3)[0]
    >>> ids.shape, bool((logprobs[0, :-1] >= logprobs[0, 1:]).all()), engine.hidden([row], layer=0)[0].shape
    ((1, 3), True, (4, 128))
    """

    kind = "torch"
    batch_size: int | None = None

    def __init__(self, model: Model, device: str = "auto"):
        self.device = pick_device(device)
        self.model = model.to(self.device).eval()
        self.config = model.config
        if self.config.encoder == "transformer":
            model.encoder.unpad = True
        self.forward_lock: ForwardLock = nullcontext

    @property
    def heads(self) -> list[str]:
        return list(self.model.heads)

    @property
    def generation(self) -> dict[str, Any]:
        return self.model.generation

    def start_generation(
        self, prompts: Sequence[Sequence[int]], options: GenerationConfig, cache: bool = True
    ) -> GenerationState:
        state = self.model.start_generation(prompts, options, cache)
        state.forward_lock = self.forward_lock
        return state

    def forward_rows(
        self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        with self.forward_lock():
            return self.model.forward_rows(forward, examples, pad)

    @torch.inference_mode()
    def top_k(self, head: str, examples: Sequence[Example], k: int, allowed: np.ndarray | None = None) -> list[TopK]:
        out: list[TopK] = [(np.empty((0, k), np.int64), np.empty((0, k), np.float32))] * len(examples)
        forbidden = None if allowed is None else torch.from_numpy(~allowed).to(self.device)
        k = min(k, self.config.vocab_size if allowed is None else int(allowed.sum()))
        for group, _, chunks in self._logprobs(head, examples):
            results = [(p if forbidden is None else p.masked_fill(forbidden, -torch.inf)).topk(k) for p in chunks]
            values, ids = (torch.cat([result[n] for result in results]).cpu() for n in (0, 1))
            sizes = [len(examples[i].labels[LABEL_POSITIONS]) for i in group]
            for i, row_values, row_ids in zip(group, values.split(sizes), ids.split(sizes)):
                out[i] = row_ids.numpy(), row_values.numpy()
        return out

    @torch.inference_mode()
    def token_logprobs(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        out = [np.empty(0, np.float32)] * len(examples)
        for group, batch, chunks in self._logprobs(head, examples):
            # Several targets may have one position: row of the logits for each target, (M,).
            logit_rows = batch.labels[LABEL_POSITIONS].unique_consecutive(return_inverse=True)[1]
            targets = batch.labels[TARGETS]
            values = torch.empty(len(targets), device=self.device)
            for first, logprobs in zip(range(0, len(targets), LOGIT_ROWS_PER_CHUNK), chunks):
                in_chunk = (logit_rows >= first) & (logit_rows < first + LOGIT_ROWS_PER_CHUNK)
                values[in_chunk] = logprobs[logit_rows[in_chunk] - first, targets[in_chunk]]
            sizes = [len(examples[i].labels[LABEL_POSITIONS]) for i in group]
            for i, row in zip(group, values.cpu().split(sizes)):
                out[i] = row.numpy()
        return out

    @torch.inference_mode()
    def hidden(self, examples: Sequence[Example], layer: int = -1) -> list[np.ndarray]:
        if not -1 <= layer <= self.config.layers:
            raise UserError(
                f"invalid layer {layer}",
                expected=f"0 (embeddings) to {self.config.layers} (last layer), or -1 for the encoder's output",
            )
        out = [np.empty(0, np.float32)] * len(examples)
        for group, batch in self._batches(examples):
            if layer == -1:
                states = self.model.encode(batch)
            else:
                layers: list[Tensor] = []
                self.model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids, states=layers)
                states = layers[layer]
            for i, row in zip(group, states.float().cpu().numpy()):
                out[i] = row[: len(examples[i])].copy()
        return out

    @torch.inference_mode()
    def logits(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        out = [np.empty(0, np.float32)] * len(examples)
        is_per_token = HEADS[head].reads != "row"
        for group, batch in self._batches(examples):
            values = self.model.head_output(head, batch).float().cpu().numpy()
            for i, row in zip(group, values):
                out[i] = row[: len(examples[i])].copy() if is_per_token else row
        return out

    @torch.inference_mode()
    def attention(self, example: Example) -> np.ndarray:
        """Return the attention weights of one row: (layers, heads, T, T) float32."""
        if self.config.encoder != "transformer":
            raise UserError(
                f"a {self.config.family} model has no attention", expected="a Transformer (bert, gpt2, t5, …)"
            )
        weights: list[Tensor] = []
        batch = collate([example], 0).to(self.device)
        with self.forward_lock():
            self.model.encoder(batch.input_ids, None, batch.token_type_ids, weights=weights)
        return torch.stack([layer[0] for layer in weights]).float().cpu().numpy()

    def _batches(self, examples: Sequence[Example]) -> Iterator[tuple[list[int], Batch]]:
        """Yield (indices of examples, their batch). The forward lock is held until the next batch is requested."""
        pad = pad_id_of(self.config)
        for group in batch_by_length([len(example) for example in examples], batch_size=self.batch_size):
            batch = collate([examples[i] for i in group], pad).to(self.device)
            with self.forward_lock():
                yield group, batch

    def _logprobs(self, head: str, examples: Sequence[Example]) -> Iterator[tuple[list[int], Batch, Iterator[Tensor]]]:
        """Yield each batch with an iterator of (n, V) log-probabilities at its unique label positions, chunk by chunk."""
        offset = logit_offset(self.config)
        for group, batch in self._batches(examples):
            states = self.model.encode(batch, batch.labels[LABEL_POSITIONS].unique_consecutive() - offset)  # (n, D)
            chunks = states.split(LOGIT_ROWS_PER_CHUNK)
            yield group, batch, (self.model.logits(head, chunk).float().log_softmax(-1) for chunk in chunks)
