"""ONNX Runtime implementation of the Engine protocol, for a folder written by `unmask export`. It does not import torch.

export.json lists the graphs and the outputs of each head. Otherwise the folder is a model folder without weights. Unsupported
features (other layers, attention, gradients, a prefix mask) raise an error that names the torch backend.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from unmask.batch import Example, batch_by_length, collate_numpy
from unmask.errors import UserError
from unmask.files import read_object
from unmask.hub import resolve
from unmask.inference.engine import LABEL_POSITIONS, MAX_LOGITS, TARGETS, TopK, logit_offset, pad_id_of
from unmask.inference.exported import FILE, VERSION, check_format
from unmask.model.config_file import read_config, read_generation
from unmask.model.generation import GenerationConfig
from unmask.model.generation_state import ForwardLock, GraphGenerationState
from unmask.model.head_spec import HEADS
from unmask.numeric import log_softmax
from unmask.registry import TASKS

POSITIONS, OLD_POSITIONS = "positions", "at"  # optional input of a vocabulary head, and its name in version 0.1
PATTERNS = ["*.json", "onnx/*", "*_Pooling/config.json", "linear.safetensors"]
# Per forward pass: the activations fit into a CPU's cache, about 10% faster than 4096 (docs/log.md).
TOKENS_PER_PASS = 1024
DEVICES = {"auto": "CPUExecutionProvider", "cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def open_engine(source: str | Path, device: str = "auto") -> tuple[OnnxEngine, Path]:
    """Load an exported folder or hub name. Return the engine and the local folder."""
    folder = resolve(source, PATTERNS)
    check_format(source, folder, "onnx")
    return OnnxEngine(folder, device), folder


class OnnxEngine:
    kind = "onnx"
    batch_size: int | None = None

    def __init__(self, folder: Path, device: str = "auto"):
        self.manifest = _read_manifest(folder / FILE)
        settings = read_object(folder / "config.json")
        self.config = read_config(settings, folder / "config.json")
        self.heads: list[str] = list(self.manifest["heads"])
        self.generation = read_generation(folder, settings)
        self.sessions = {name: _session(folder / file, device) for name, file in self.manifest["graphs"].items()}
        optional = {i.name for session in self.sessions.values() for i in session.get_overridable_initializers()}
        self.positions_input = OLD_POSITIONS if OLD_POSITIONS in optional else POSITIONS
        self.forward_lock: ForwardLock = nullcontext
        self._encoded = threading.local()  # per thread: the last prompts, and their encoder states

    # -------------------------------------------------------------------------------------------------- methods of Engine

    def forward_rows(
        self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        """Run the graph over one batch. The graph contains the task's forward pass, so the torch function `forward` is ignored."""
        width = max(map(len, examples))
        parts = _split_by_total(list(range(len(examples))), [width] * len(examples), TOKENS_PER_PASS)
        return [value for part in parts for value in self._values(collate_numpy([examples[i] for i in part], pad))]

    def top_k(self, head: str, examples: Sequence[Example], k: int, allowed: np.ndarray | None = None) -> list[TopK]:
        k = min(k, self.config.vocab_size if allowed is None else int(allowed.sum()))
        out: list[TopK] = [(np.empty((0, k), np.int64), np.empty((0, k), np.float32))] * len(examples)
        for i, logits in self._logits_at_positions(head, examples):
            logprobs = log_softmax(logits)
            if allowed is not None:
                logprobs = np.where(allowed, logprobs, -np.inf)
            top = np.argpartition(-logprobs, k - 1, axis=-1)[:, :k]  # (M, k), not sorted
            ids = np.take_along_axis(top, np.argsort(-np.take_along_axis(logprobs, top, -1), -1, kind="stable"), -1)
            out[i] = ids, np.take_along_axis(logprobs, ids, -1)
        return out

    def token_logprobs(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        out = [np.empty(0, np.float32)] * len(examples)
        for i, logits in self._logits_at_positions(head, examples):
            targets = examples[i].labels[TARGETS][:, None]
            out[i] = np.take_along_axis(log_softmax(logits), targets, -1)[:, 0]
        return out

    def hidden(self, examples: Sequence[Example], layer: int = -1) -> list[np.ndarray]:
        if layer not in (-1, self.config.layers):
            raise self.unsupported(f"layer {layer}, only the last one")
        out = [np.empty(0, np.float32)] * len(examples)
        for group, arrays in self._batches(examples):
            for i, states in zip(group, self._hidden(arrays)):
                out[i] = states[: len(examples[i])].copy()
        return out

    def logits(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        self._require_head(head)
        out = [np.empty(0, np.float32)] * len(examples)
        spec = HEADS[head]
        for group, arrays in self._batches(examples):
            for i, row in zip(group, self._head(head, arrays)):
                out[i] = row[0] if spec.grouped else row if spec.reads == "row" else row[: len(examples[i])].copy()
        return out

    # ---------------------------------------------------------------------------------------------------------- generation

    def start_generation(
        self, prompts: Sequence[Sequence[int]], options: GenerationConfig, cache: bool = True
    ) -> GraphGenerationState:
        return GraphGenerationState(self.config, prompts, options, self.last_logits)

    def last_logits(self, ids: np.ndarray, mask: np.ndarray, decoder: np.ndarray | None) -> np.ndarray:
        """Return logits (N, V) after the last token of each row: of `ids` (N, T), or of `decoder` (N, U) for an encoder–decoder."""
        rows = ids if decoder is None else decoder
        last_positions = np.arange(1, len(rows) + 1) * rows.shape[1] - 1  # in the flattened rows
        feeds = {"input_ids": rows, self.positions_input: last_positions}
        if decoder is None:
            return self._run("model", ["logits"], feeds | {"attention_mask": mask.astype(np.int64)})[0][:, 0]
        if getattr(self._encoded, "ids", None) is not ids:  # encode the prompts once, not in every step
            self._encoded.ids, self._encoded.states = ids, self._hidden({"input_ids": ids, "attention_mask": mask})
        feeds |= {"encoder_hidden_states": self._encoded.states, "encoder_attention_mask": mask.astype(np.int64)}
        return self._run("decoder_model", ["logits"], feeds)[0][:, 0]

    # ------------------------------------------------------------------------------------------------------------ internal

    def unsupported(self, feature: str) -> UserError:
        return UserError(
            f"an exported graph has no {feature}",
            hint='load the folder it was exported from: unmask.load(folder, backend="torch")',
        )

    def _require_head(self, head: str) -> None:
        if head not in self.heads:
            raise UserError(f"this graph has no head {head}", expected=", ".join(self.heads) or "none")

    def _batches(
        self, examples: Sequence[Example], max_positions: int = 0
    ) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Yield (indices of examples, their arrays). A batch has at most `max_positions` label positions, or one example."""
        if any(example.prefix_length is not None for example in examples):
            raise self.unsupported("prefix mask")
        pad = pad_id_of(self.config)
        for group in batch_by_length([len(example) for example in examples], TOKENS_PER_PASS, self.batch_size):
            counts = [len(examples[i].labels.get(LABEL_POSITIONS, ())) for i in group]
            for part in _split_by_total(group, counts, max_positions):
                yield part, collate_numpy([examples[i] for i in part], pad)

    def _logits_at_positions(self, head: str, examples: Sequence[Example]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (index of an example, logits (M, V) for its label positions)."""
        self._require_head(head)
        (name,) = self.manifest["outputs"][head]
        offset = logit_offset(self.config)
        for group, arrays in self._batches(examples, max(1, MAX_LOGITS // self.config.vocab_size)):
            positions = arrays["labels"][LABEL_POSITIONS] - offset
            if not len(positions):  # an empty input would mean every position
                continue
            logits = self._run("model", [name], self._feeds(arrays) | {self.positions_input: positions})[0][:, 0]
            ends = np.cumsum([len(examples[i].labels[LABEL_POSITIONS]) for i in group])[:-1]
            yield from zip(group, np.split(logits, ends))

    def _values(self, arrays: dict[str, Any]) -> np.ndarray:
        """Return the values of the task's forward pass: (B, …), or (B, T, …)."""
        if self.manifest["output"] != "vector":
            values = self._head(self.heads[0], arrays)
            return values[:, 0] if self.manifest["grouped"] else values  # (B, 1) → (B,)
        hidden = self._hidden(arrays)
        if self.manifest["pooling"] == "cls":
            return hidden[:, 0]
        mask = self._mask(arrays).astype(np.float32)
        return np.einsum("btd,bt->bd", hidden, mask) / mask.sum(1)[:, None]

    def _hidden(self, arrays: dict[str, Any]) -> np.ndarray:
        name = "encoder_model" if "encoder_model" in self.sessions else "model"
        return self._run(name, ["last_hidden_state"], self._feeds(arrays))[0]

    def _head(self, head: str, arrays: dict[str, Any]) -> np.ndarray:
        values = self._run("model", self.manifest["outputs"][head], self._feeds(arrays))
        return values[0] if len(values) == 1 else np.stack(values, -1)

    def _mask(self, arrays: dict[str, Any]) -> np.ndarray:
        mask = arrays.get("attention_mask")
        return np.ones_like(arrays["input_ids"]) if mask is None else mask.astype(np.int64)

    def _feeds(self, arrays: dict[str, Any]) -> dict[str, np.ndarray]:
        ids = arrays["input_ids"]
        feeds = {"input_ids": ids, "attention_mask": self._mask(arrays)}
        if self.config.segments > 1:
            segments = arrays.get("token_type_ids")
            feeds["token_type_ids"] = np.zeros_like(ids) if segments is None else segments
        # The graph of a grouped head takes (B, choices, T); here every row is one choice.
        grouped = any(HEADS[head].grouped for head in self.heads)
        return {name: value[:, None] for name, value in feeds.items()} if grouped else feeds

    def _run(self, name: str, outputs: Sequence[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True  # do not compute vocabulary logits for vectors
        length, limit = feeds["input_ids"].shape[-1], self.config.max_positions
        if self.config.positions != "relative" and length > limit:
            raise UserError(f"a sequence of {length} tokens is too long", expected=f"at most {limit} tokens")
        with self.forward_lock():
            return self.sessions[name].run(list(outputs), feeds, options)


def _read_manifest(file: Path) -> dict[str, Any]:
    """Read export.json. Graphs must be in the folder onnx/ next to the file, so that a manifest cannot open other files."""
    manifest = read_object(file)
    is_known = manifest.get("version") == VERSION and {"task", "pooling", "heads", "graphs", "outputs"} <= set(manifest)
    graphs = manifest.get("graphs") if is_known else None
    if not isinstance(graphs, dict) or not set(graphs) & {"model", "decoder_model"}:
        raise UserError(f"{file} has an incompatible version", expected=f"{VERSION}", hint="export the model again")
    for name in graphs.values():
        if not isinstance(name, str) or not re.fullmatch(r"onnx/\w[\w.-]*", name):
            raise UserError(f"{file} has an invalid graph file {name!r}", expected="onnx/NAME.onnx")
    spec = None if manifest["task"] is None or "output" in manifest else TASKS[manifest["task"]].SPEC
    defaults = {  # older exports do not have these keys
        "output": None if spec is None else spec.output,
        "grouped": spec is not None and spec.grouped,
        "validation": manifest.get("compared"),
    }
    return defaults | manifest


def _split_by_total(items: list[int], counts: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Split items into parts whose counts add up to at most `limit` (0: no limit). A part has at least one item.

    >>> list(_split_by_total([4, 5, 6], [2, 2, 9], limit=4))
    [[4, 5], [6]]
    """
    part: list[int] = []
    total = 0
    for item, count in zip(items, counts):
        if part and limit and total + count > limit:
            yield part
            part, total = [], 0
        part.append(item)
        total += count
    yield part


def _session(file: Path, device: str) -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise UserError("onnxruntime is not installed", hint="pip install 'unmask[onnx]'") from None
    provider = DEVICES.get(device)
    if provider not in onnxruntime.get_available_providers():
        raise UserError(f"device {device!r} is not available in this onnxruntime", expected="auto, cpu")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3  # errors
    # As for torch (unmask/__init__.py): use OMP_NUM_THREADS threads, which do not spin while they wait.
    settings.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(file, settings, providers=[provider])
    except Exception as error:  # onnxruntime's exception classes have no common base
        reason = str(error).splitlines()[0]
        raise UserError(
            f"cannot read {file}: {reason}", hint="copy the folder again, or export the model again"
        ) from None
