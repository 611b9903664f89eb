"""Post-processing of ONNX files: an optional input, external weights for large models, int8 quantization."""

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from unmask.inference.onnx_engine import POSITIONS

MAX_FILE_BYTES = 1_800_000_000  # protobuf's limit is 2 GB


def save(proto: onnx.ModelProto, file: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
    """Write one file; above `max_bytes`, the weights go to FILE_data next to it, the name that other programs expect."""
    for node in [*proto.graph.node, *(node for function in proto.functions for node in function.node)]:
        del node.metadata_props[:]  # torch's stack traces, with paths of this machine
    file.parent.mkdir(parents=True, exist_ok=True)
    if proto.ByteSize() <= max_bytes:
        onnx.save(proto, file)
    else:
        location = f"{file.name}_data"
        onnx.save(proto, file, save_as_external_data=True, all_tensors_to_one_file=True, location=location)


def make_positions_optional(proto: onnx.ModelProto) -> None:
    """Give the input `positions` a default: an empty tensor, which selects all positions.

    The logits change from (N, V) to (N, 1, V), or (B, T, V) if `positions` is not given.
    """
    graph = proto.graph
    logits = next(output for output in graph.output if output.name == "logits")
    vocab_size = logits.type.tensor_type.shape.dim[-1].dim_value
    for node in graph.node:
        for names in (node.input, node.output):
            for n, name in enumerate(names):
                names[n] = {POSITIONS: "pos.selected", "logits": "pos.logits"}.get(name, name)

    def constant(name: str, shape: Sequence[int], values: Sequence[int]) -> TensorProto:
        return helper.make_tensor(name, TensorProto.INT64, shape, values)

    graph.initializer.extend(
        [
            constant("pos.zero", [], [0]),
            constant("pos.one", [], [1]),
            constant("pos.ones", [1], [1]),
            constant("pos.vocab_size", [1], [vocab_size]),
            constant(POSITIONS, [0], []),  # an initializer with the name of an input is its default
        ]
    )
    before = [
        _node("Shape", ["input_ids"], "pos.shape"),  # (B, T)
        _node("Size", ["input_ids"], "pos.size"),
        _node("Size", [POSITIONS], "pos.count"),
        _node("Equal", ["pos.count", "pos.zero"], "pos.is_empty"),
        _node("Cast", ["pos.is_empty"], "pos.factor", to=TensorProto.INT64),
        _node("Mul", ["pos.size", "pos.factor"], "pos.limit"),  # B · T, or 0 if positions are given
        _node("Range", ["pos.zero", "pos.limit", "pos.one"], "pos.all"),
        _node("Concat", [POSITIONS, "pos.all"], "pos.selected", axis=0),
    ]
    after = [
        _node("Concat", ["pos.shape", "pos.vocab_size"], "pos.shape_all", axis=0),
        _node("Reshape", ["pos.count", "pos.ones"], "pos.counts"),
        _node("Concat", ["pos.counts", "pos.ones", "pos.vocab_size"], "pos.shape_given", axis=0),
        _node("Where", ["pos.is_empty", "pos.shape_all", "pos.shape_given"], "pos.shape_out"),
        _node("Reshape", ["pos.logits", "pos.shape_out"], "logits"),
    ]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    logits.CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", vocab_size]))
    onnx.checker.check_model(proto)


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], name=f"make.{output}", **attributes)


def quantize(file: Path) -> None:
    """Quantize the weights of matrix products to int8, one scale per column; activations are quantized dynamically."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    proto = onnx.load(file)
    del proto.graph.value_info[:]  # the exporter's shapes: the quantizer infers shapes and fails if they differ
    untie(proto)
    save(proto, file)
    large = file.with_name(f"{file.name}_data").exists()
    with silence_loggers():
        quantize_dynamic(
            file, file, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"],
            use_external_data_format=large, extra_options={"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT},
        )  # fmt: skip


def untie(proto: onnx.ModelProto) -> None:
    """Give every Gemm its own weight. The quantizer transposes a weight in place, also one that is shared with the embedding."""
    graph = proto.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    uses = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        name = node.input[1] if node.op_type == "Gemm" else ""
        if name in weights and uses[name] > 1:
            copy = onnx.TensorProto()
            copy.CopyFrom(weights[name])
            copy.name = node.input[1] = f"{name}.of.{node.name}"
            graph.initializer.append(copy)


@contextmanager
def silence_loggers() -> Iterator[None]:
    """Suppress warnings and log lines of the exporter and the quantizer."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export", "root")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)
