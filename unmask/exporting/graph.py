"""A model → ONNX graphs, with torch's exporter. Batch size and length are dynamic; names are those of the ecosystem.

| model           | file                       | inputs                                                          | outputs                          |
|-----------------|----------------------------|-----------------------------------------------------------------|----------------------------------|
| encoder         | onnx/model.onnx            | input_ids, attention_mask (, token_type_ids)                    | logits …, last_hidden_state      |
| causal          | onnx/model.onnx            | input_ids, attention_mask                                       | logits, last_hidden_state        |
| encoder–decoder | onnx/encoder_model.onnx    | input_ids, attention_mask                                       | last_hidden_state                |
|                 | onnx/decoder_model.onnx    | input_ids, encoder_attention_mask, encoder_hidden_states        | logits                           |

As in transformers, `answer` outputs start_logits and end_logits, and `choose` reads (B, choices, T) and outputs (B, choices).
If there are several heads, the first outputs `logits`, the others `<head>_logits`.

A vocabulary head has an optional input `positions` (N,): indices into the flattened batch (B · T) at which logits are computed,
(N, 1, V). Without it, logits are (B, T, V), so that other programs need not know it (`make_positions_optional`).
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
from unmask.exporting.onnx_file import make_positions_optional, save, silence_loggers
from unmask.inference.onnx_engine import POSITIONS
from unmask.model.config import ModelConfig
from unmask.model.head_spec import HEADS
from unmask.model.layers import select_positions
from unmask.model.model import Model

OPSET = 20  # supported by runtimes since 2024; the first with GELU as one operator
MASKED = -1e30  # attention score of a masked token: its weight is 0, and a fully masked row gives no NaN
SAMPLE_LENGTH = 7  # tokens of the sequences that the exporter traces


@dataclass
class Graph:
    """One ONNX file."""

    name: str  # file name without .onnx
    module: nn.Module
    inputs: dict[str, Tensor]  # examples
    shapes: dict[str, dict[int, Any]]  # their dynamic dimensions
    outputs: list[str]


def graphs_of(model: Model) -> list[Graph]:
    config = model.config
    length = _dynamic_length("length", config)
    batch = torch.export.Dim("batch")
    ids = torch.full((2, _sample_length(config)), 1)
    mask = torch.ones_like(ids)
    mask[1, 3:] = 0
    if model.decoder is not None:
        return _encoder_and_decoder(model, ids, mask, batch, length)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if config.segments > 1:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    shapes: dict[str, dict[int, Any]] = {name: {0: batch, 1: length} for name in inputs}
    heads = heads_of(model)
    if any(HEADS[head].grouped for head in heads):
        inputs = {name: value[:, None].repeat(1, 3, 1) for name, value in inputs.items()}
        shapes = {name: {0: batch, 1: torch.export.Dim("choices"), 2: length} for name in inputs}
    if heads[:1] and HEADS[heads[0]].reads == "vocabulary":
        inputs[POSITIONS], shapes[POSITIONS] = torch.tensor([1, 2, 5]), {0: torch.export.Dim(POSITIONS)}
    outputs = [name for head in heads for name in outputs_of(heads)[head]]
    return [Graph("model", SingleGraph(model, heads), inputs, shapes, [*outputs, "last_hidden_state"])]


def heads_of(model: Model) -> list[str]:
    """Return the heads that are outputs of the graph. A pooler is internal, and a generator has its own model folder."""
    return [name for name in model.heads if HEADS[name].answers]


def outputs_of(heads: Sequence[str]) -> dict[str, list[str]]:
    """Return the output names of each head.

    >>> outputs_of(["mlm", "nsp"]), outputs_of(["answer"])
    ({'mlm': ['logits'], 'nsp': ['nsp_logits']}, {'answer': ['start_logits', 'end_logits']})
    """
    return {head: list(HEADS[head].outputs) or [f"{head}_logits" if n else "logits"] for n, head in enumerate(heads)}


class SingleGraph(nn.Module):
    """An encoder or a causal model with its heads."""

    def __init__(self, model: Model, heads: Sequence[str]):
        super().__init__()
        self.model, self.names = model, list(heads)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        segments, groups = token_type_ids, input_ids.shape[:2]
        if any(HEADS[name].grouped for name in self.names):  # (B, choices, T) → (B · choices, T)
            input_ids, attention_mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
            segments = None if segments is None else segments.flatten(0, 1)
        mask = attention_mask.bool()
        # For a causal model, padding is a separate document, so that it is masked on the left and on the right.
        documents = attention_mask if self.model.config.causal else None
        hidden = self.model.encoder(input_ids, mask, segments, documents=documents)  # (B, T, D)
        outputs: list[Tensor] = []
        for name in self.names:
            spec = HEADS[name]
            values = self.model.logits(
                name, select_positions(hidden, positions) if spec.reads == "vocabulary" else hidden, mask
            )
            outputs += values.unbind(-1) if spec.outputs else [values.view(groups) if spec.grouped else values]
        return (*outputs, hidden)


class EncoderGraph(nn.Module):
    def __init__(self, model: Model):
        super().__init__()
        self.encoder = model.encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.encoder(input_ids, attention_mask.bool())


class DecoderGraph(nn.Module):
    def __init__(self, model: Model):
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, encoder_attention_mask: Tensor, encoder_hidden_states: Tensor, positions: Tensor
    ) -> Tensor:
        batch = Batch(input_ids, encoder_attention_mask.bool(), decoder_input_ids=input_ids)
        return self.model.logits("lm", self.model.decode(batch, encoder_hidden_states, positions))  # (N, V)


def _encoder_and_decoder(model: Model, ids: Tensor, mask: Tensor, batch: Any, length: Any) -> list[Graph]:
    rows = {0: batch, 1: length}
    encoder = Graph(
        "encoder_model",
        EncoderGraph(model),
        {"input_ids": ids, "attention_mask": mask},
        {"input_ids": rows, "attention_mask": rows},
        ["last_hidden_state"],
    )
    inputs = {
        "input_ids": ids[:, :4],
        "encoder_attention_mask": mask,
        "encoder_hidden_states": torch.zeros(*ids.shape, model.config.hidden),
        POSITIONS: torch.tensor([1, 2, 5]),
    }
    shapes: dict[str, dict[int, Any]] = {
        "input_ids": {0: batch, 1: _dynamic_length("target_length", model.config)},
        "encoder_attention_mask": rows,
        "encoder_hidden_states": rows,
        POSITIONS: {0: torch.export.Dim(POSITIONS)},
    }
    return [encoder, Graph("decoder_model", DecoderGraph(model), inputs, shapes, ["logits"])]


def _dynamic_length(name: str, config: ModelConfig) -> Any:
    """Return a dynamic dimension up to the model's maximum length."""
    return torch.export.Dim(name, max=None if config.positions == "relative" else config.max_positions)


def _sample_length(config: ModelConfig) -> int:
    """Return a length beyond the local attention window, if there is one: a trace of shorter sequences would mask nothing."""
    window = config.local_window // 2 + 2 if any(config.is_local(i) for i in range(config.layers)) else 0
    return min(max(SAMPLE_LENGTH, window), config.max_positions)


def write_graph(graph: Graph, file: Path) -> None:
    try:
        with silence_loggers(), torch.no_grad(), plain_attention():
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
            f"torch {torch.__version__} cannot export this model: {reason}",
            hint="please report this with the model's config.json; use the model with torch meanwhile",
        ) from None
    assert program is not None
    proto = program.model_proto
    if POSITIONS in graph.inputs:
        make_positions_optional(proto)
    save(proto, file)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Replace scaled_dot_product_attention by two matrix products, a sum and a softmax. The exporter's translation has two more
    selections over all (T, T) scores, which take as long as the products."""
    original = F.scaled_dot_product_attention

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
            positions = torch.arange(q.shape[2])
            attn_mask = (positions[:, None] >= positions[None, :])[None, None]
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = (~attn_mask).to(q.dtype) * MASKED
        return (scores if attn_mask is None else scores + attn_mask).softmax(-1) @ v

    F.scaled_dot_product_attention = attend  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = original
