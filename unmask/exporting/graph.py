"""A model → ONNX graphs, by torch's exporter; rows and lengths are free. Inputs and outputs have the names of the ecosystem.

| model           | file                       | inputs                                                          | outputs                          |
|-----------------|----------------------------|-----------------------------------------------------------------|----------------------------------|
| encoder         | onnx/model.onnx            | input_ids, attention_mask (, token_type_ids)                    | logits …, last_hidden_state      |
| causal          | onnx/model.onnx            | input_ids, attention_mask                                       | logits, last_hidden_state        |
| encoder–decoder | onnx/encoder_model.onnx    | input_ids, attention_mask                                       | last_hidden_state                |
|                 | onnx/decoder_model.onnx    | input_ids, encoder_attention_mask, encoder_hidden_states        | logits                           |

`answer` gives start_logits and end_logits, `choose` reads (B, choices, T) and gives (B, choices), as their classes in transformers do.
Of several heads the first gives `logits`, the others `<head>_logits`.

A vocabulary head has one input more, `at` (N,): places of the flattened rows whose logits are wanted, (N, 1, V). It may be left out, and
then logits are (B, T, V): other programs do not see it (`free_places`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.errors import UserError
from unmask.exporting.onnx_file import AT, free_places, quiet, save
from unmask.model.config import ModelConfig
from unmask.model.head_spec import HEADS
from unmask.model.layers import picked
from unmask.model.model import Model

OPSET = 20  # what runtimes of 2024 and later read; the first with GELU as one operator
NEVER = -1e30  # the score of what is not seen: its share is 0, and a row that sees nothing is no NaN
SAMPLE = 7  # tokens of the rows that the exporter sees


@dataclass
class Graph:
    """What becomes one file."""

    name: str  # of the file, without its ending
    module: nn.Module
    inputs: dict[str, Tensor]  # examples
    shapes: dict[str, dict[int, Any]]  # which of their sizes are free
    outputs: list[str]


def graphs_of(model: Model) -> list[Graph]:
    config = model.config
    length = _sample_length(config)
    free = _length("length", config)
    rows = torch.export.Dim("batch")
    ids = torch.full((2, length), 1)
    mask = torch.ones_like(ids)
    mask[1, 3:] = 0
    if model.decoder is not None:
        return _two_halves(model, ids, mask, rows, free)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if config.segments > 1:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    shapes: dict[str, dict[int, Any]] = {name: {0: rows, 1: free} for name in inputs}
    heads = heads_of(model)
    if any(HEADS[head].grouped for head in heads):
        inputs = {name: value[:, None].repeat(1, 3, 1) for name, value in inputs.items()}
        shapes = {name: {0: rows, 1: torch.export.Dim("choices"), 2: free} for name in inputs}
    if heads[:1] and HEADS[heads[0]].reads == "vocabulary":
        inputs[AT], shapes[AT] = torch.tensor([1, 2, 5]), {0: torch.export.Dim("places")}
    outputs = [name for head in heads for name in outputs_of(heads)[head]]
    return [Graph("model", Whole(model, heads), inputs, shapes, [*outputs, "last_hidden_state"])]


def heads_of(model: Model) -> list[str]:
    """The heads that a graph answers with: a pooler is only read, and a generator is a model of its own folder."""
    return [name for name in model.heads if HEADS[name].answers]


def outputs_of(heads: Sequence[str]) -> dict[str, list[str]]:
    """Head → names of its outputs.

    >>> outputs_of(["mlm", "nsp"]), outputs_of(["answer"])
    ({'mlm': ['logits'], 'nsp': ['nsp_logits']}, {'answer': ['start_logits', 'end_logits']})
    """
    return {head: list(HEADS[head].outputs) or [f"{head}_logits" if n else "logits"] for n, head in enumerate(heads)}


class Whole(nn.Module):
    """An encoder or a causal model, with its heads."""

    def __init__(self, model: Model, heads: Sequence[str]):
        super().__init__()
        self.model, self.names = model, list(heads)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None, at: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        segments, several = token_type_ids, input_ids.shape[:2]
        if any(HEADS[name].grouped for name in self.names):  # (B, choices, T) → (B · choices, T)
            input_ids, attention_mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
            segments = None if segments is None else segments.flatten(0, 1)
        mask = attention_mask.bool()
        # To a causal model padding is another document, so that it is not seen on whichever side it stands.
        apart = attention_mask if self.model.config.causal else None
        hidden = self.model.encoder(input_ids, mask, segments, documents=apart)  # (B, T, D)
        found: list[Tensor] = []
        for name in self.names:
            spec = HEADS[name]
            values = self.model.logits(name, picked(hidden, at) if spec.reads == "vocabulary" else hidden, mask)
            found += values.unbind(-1) if spec.outputs else [values.view(several) if spec.grouped else values]
        return (*found, hidden)


class FirstHalf(nn.Module):
    def __init__(self, model: Model):
        super().__init__()
        self.encoder = model.encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.encoder(input_ids, attention_mask.bool())


class SecondHalf(nn.Module):
    def __init__(self, model: Model):
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, encoder_attention_mask: Tensor, encoder_hidden_states: Tensor, at: Tensor
    ) -> Tensor:
        batch = Batch(input_ids, encoder_attention_mask.bool(), decoder=input_ids)
        return self.model.logits("lm", self.model.decode(batch, encoder_hidden_states, at))  # (N, V)


def _two_halves(model: Model, ids: Tensor, mask: Tensor, rows: Any, free: Any) -> list[Graph]:
    config = model.config
    first = Graph(
        "encoder_model",
        FirstHalf(model),
        {"input_ids": ids, "attention_mask": mask},
        {name: {0: rows, 1: free} for name in ("input_ids", "attention_mask")},
        ["last_hidden_state"],
    )
    written = _length("written", config)
    inputs = {
        "input_ids": ids[:, :4],
        "encoder_attention_mask": mask,
        "encoder_hidden_states": torch.zeros(*ids.shape, config.hidden),
        AT: torch.tensor([1, 2, 5]),
    }
    shapes: dict[str, dict[int, Any]] = {
        "input_ids": {0: rows, 1: written},
        "encoder_attention_mask": {0: rows, 1: free},
        "encoder_hidden_states": {0: rows, 1: free},
        AT: {0: torch.export.Dim("places")},
    }
    return [first, Graph("decoder_model", SecondHalf(model), inputs, shapes, ["logits"])]


def _length(name: str, config: ModelConfig) -> Any:
    """A size that is free, up to the model's positions."""
    return torch.export.Dim(name, max=None if config.positions == "relative" else config.max_positions)


def _sample_length(config: ModelConfig) -> int:
    """Longer than a local window where there is one: what is traced of shorter rows hides nothing, and is wrong of longer ones."""
    window = config.local_window // 2 + 2 if any(config.is_local(i) for i in range(config.layers)) else 0
    return min(max(SAMPLE, window), config.max_positions)


def write_graph(graph: Graph, file: Path) -> None:
    try:
        with quiet(), torch.no_grad(), plain_attention():
            program = torch.onnx.export(
                graph.module.eval(),
                kwargs=graph.inputs,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(graph.inputs),
                output_names=graph.outputs,
                dynamic_shapes=graph.shapes,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise UserError(
            f"torch {torch.__version__} cannot make a graph of this model: {reason}",
            hint="report it with the model's config.json, and use the folder as it is: it needs torch",
        ) from None
    assert program is not None
    proto = program.model_proto
    if AT in graph.inputs:
        free_places(proto)
    save(proto, file)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention as two products, a sum and a softmax. The exporter's own has two selections over all (T, T) scores more, which cost as
    much as the products do."""
    kernel = F.scaled_dot_product_attention

    def attend(
        q: Tensor,  # (B, H, T, K)
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        scores = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.transpose(-1, -2)
        if is_causal:
            place = torch.arange(q.shape[2])
            attn_mask = (place[:, None] >= place[None, :])[None, None]
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = (~attn_mask).to(q.dtype) * NEVER
        return (scores if attn_mask is None else scores + attn_mask).softmax(-1) @ v

    F.scaled_dot_product_attention = attend  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = kernel
