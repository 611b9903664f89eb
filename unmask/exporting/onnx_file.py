"""An ONNX file: places that may be asked for, weights beside a large one, and 8-bit weights."""

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

AT = "at"
LARGEST = 1_800_000_000  # bytes in one file; protobuf ends at 2 GB


def save(proto: onnx.ModelProto, file: Path, most: int = LARGEST) -> None:
    """One file; above `most` bytes the weights lie beside it, under the name that others look for."""
    for node in [*proto.graph.node, *(node for function in proto.functions for node in function.node)]:
        del node.metadata_props[:]  # torch's stack traces, with paths of this machine
    file.parent.mkdir(parents=True, exist_ok=True)
    if proto.ByteSize() <= most:
        onnx.save(proto, file)
    else:
        beside = f"{file.name}_data"
        onnx.save(proto, file, save_as_external_data=True, all_tensors_to_one_file=True, location=beside)


def free_places(proto: onnx.ModelProto) -> None:
    """Make the input `at` one that may be left out: its default is empty, and an empty one means every place.

    The logits, (N, V) until now, become (N, 1, V), or (B, T, V) where `at` is left out.
    """
    graph = proto.graph
    logits = next(output for output in graph.output if output.name == "logits")
    width = logits.type.tensor_type.shape.dim[-1].dim_value
    for node in graph.node:
        for names in (node.input, node.output):
            for n, name in enumerate(names):
                names[n] = {AT: "at_or_all", "logits": "logits_flat"}.get(name, name)
    graph.initializer.extend(
        [
            helper.make_tensor("at.zero", TensorProto.INT64, [], [0]),
            helper.make_tensor("at.one", TensorProto.INT64, [], [1]),
            helper.make_tensor("at.ones", TensorProto.INT64, [1], [1]),
            helper.make_tensor("at.width", TensorProto.INT64, [1], [width]),
            helper.make_tensor(AT, TensorProto.INT64, [0], []),  # it is among the inputs too, which makes it a default
        ]
    )
    before = [
        _node("Shape", ["input_ids"], "at.shape"),  # (B, T)
        _node("Size", ["input_ids"], "at.places"),
        _node("Size", [AT], "at.count"),
        _node("Equal", ["at.count", "at.zero"], "at.none"),
        _node("Cast", ["at.none"], "at.share", to=TensorProto.INT64),
        _node("Mul", ["at.places", "at.share"], "at.upto"),  # every place, or none
        _node("Range", ["at.zero", "at.upto", "at.one"], "at.all"),
        _node("Concat", [AT, "at.all"], "at_or_all", axis=0),
    ]
    after = [
        _node("Concat", ["at.shape", "at.width"], "at.everywhere", axis=0),
        _node("Reshape", ["at.count", "at.ones"], "at.counted"),
        _node("Concat", ["at.counted", "at.ones", "at.width"], "at.chosen", axis=0),
        _node("Where", ["at.none", "at.everywhere", "at.chosen"], "at.wanted"),
        _node("Reshape", ["logits_flat", "at.wanted"], "logits"),
    ]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    logits.CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", width]))
    onnx.checker.check_model(proto)


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], name=f"make.{output}", **attributes)


def quantize(file: Path) -> None:
    """Weights of matrix products in 8 bits, a scale per column; what flows through them is rounded as it comes (dynamic)."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    proto = onnx.load(file)
    # Shapes that the exporter noted: the quantizer infers its own, and stops where they differ.
    del proto.graph.value_info[:]
    untie(proto)
    save(proto, file)
    large = file.with_name(f"{file.name}_data").exists()
    with quiet():
        quantize_dynamic(
            file, file, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"],
            use_external_data_format=large, extra_options={"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT},
        )  # fmt: skip


def untie(proto: onnx.ModelProto) -> None:
    """Give every product (Gemm) a matrix of its own. The quantizer turns a matrix round in place, also one that the embedding shares."""
    graph = proto.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    readers = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        name = node.input[1] if node.op_type == "Gemm" else ""
        if name in weights and readers[name] > 1:
            copy = onnx.TensorProto()
            copy.CopyFrom(weights[name])
            copy.name = node.input[1] = f"{name}.of.{node.name}"
            graph.initializer.append(copy)


@contextmanager
def quiet() -> Iterator[None]:
    """Without what exporter and quantizer say of themselves."""
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
