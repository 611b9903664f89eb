"""OnnxEngine: an exported folder (`unmask export`) behind the face of an Engine. It imports no torch.

export.json says which graphs there are and which of their outputs is which head's; the rest of the folder is a model folder's, without
weights. What a graph has not (other layers, attention, gradients, a prefix mask) is refused with the name of the backend that has it.
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
from unmask.errors import UserError, quote
from unmask.files import read_object
from unmask.hub import resolve
from unmask.inference.engine import LABEL_POSITIONS, MAX_LOGITS, TARGETS, Top, logit_offset, pad_id_of
from unmask.model.config_file import read_config, read_generation
from unmask.model.generation import GenerationConfig
from unmask.model.generation_state import ForwardLock, GraphGenerationState
from unmask.model.head_spec import HEADS
from unmask.numeric import log_softmax
from unmask.registry import TASKS

FILE, VERSION = "export.json", 1
POSITIONS, OLD_POSITIONS = "positions", "at"  # the optional input of a vocabulary head; exports of 0.1 call it "at"
PATTERNS = ["*.json", "onnx/*", "*_Pooling/config.json"]
# Of a forward pass: what flows between layers stays in a CPU's cache, a tenth faster than 4096 (docs/log.md).
TOKENS_PER_PASS = 1024
DEVICES = {"auto": "CPUExecutionProvider", "cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def is_export(folder: str | Path) -> bool:
    return (Path(folder) / FILE).is_file()


def open_engine(source: str | Path, device: str = "auto") -> tuple[OnnxEngine, Path]:
    """An exported folder or a hub name → the engine, and the folder where its files lie."""
    folder = resolve(source, PATTERNS)
    if not is_export(folder):
        raise UserError(
            f"{source} holds no exported graph ({FILE})",
            expected="a folder that unmask export wrote",
            hint=f"unmask export {quote(Path(source))} --format onnx",
        )
    return OnnxEngine(folder, device), folder


class OnnxEngine:
    kind = "onnx"

    def __init__(self, folder: Path, device: str = "auto"):
        self.about = _about(folder / FILE)
        settings = read_object(folder / "config.json")
        self.config = read_config(settings, folder / "config.json")
        self.heads: list[str] = list(self.about["heads"])
        self.generation = read_generation(folder, settings)
        self.sessions = {name: _session(folder / file, device) for name, file in self.about["graphs"].items()}
        optional = {i.name for session in self.sessions.values() for i in session.get_overridable_initializers()}
        self.positions_input = OLD_POSITIONS if OLD_POSITIONS in optional else POSITIONS
        self.forward_lock: ForwardLock = nullcontext
        self._read = threading.local()  # by each thread: the prompts last read, and what the encoder gave

    # ------------------------------------------------------------------------------------------------ the Engine's methods

    def forward_rows(
        self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        """One group of rows, as the task's forward pass gives it; `forward` itself, which is torch's, is not called."""
        width = max(map(len, examples))
        parts = _split_by_total(list(range(len(examples))), [width] * len(examples), TOKENS_PER_PASS)
        return [value for part in parts for value in self._values(collate_numpy([examples[i] for i in part], pad))]

    def top_k(self, head: str, examples: Sequence[Example], k: int, allowed: np.ndarray | None = None) -> list[Top]:
        k = min(k, self.config.vocab_size if allowed is None else int(allowed.sum()))
        out: list[Top] = [(np.empty((0, k), np.int64), np.empty((0, k), np.float32))] * len(examples)
        for i, logits in self._logits_at_positions(head, examples):
            logprobs = log_softmax(logits)
            kept = logprobs if allowed is None else np.where(allowed, logprobs, -np.inf)
            some = np.argpartition(-kept, k - 1, axis=-1)[:, :k]
            ids = np.take_along_axis(some, np.argsort(-np.take_along_axis(kept, some, -1), -1, kind="stable"), -1)
            out[i] = ids, np.take_along_axis(kept, ids, -1)
        return out

    def token_logprobs(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        out = [np.empty(0, np.float32)] * len(examples)
        for i, logits in self._logits_at_positions(head, examples):
            targets = examples[i].labels[TARGETS][:, None]
            out[i] = np.take_along_axis(log_softmax(logits), targets, -1)[:, 0]
        return out

    def hidden(self, examples: Sequence[Example], layer: int = -1) -> list[np.ndarray]:
        if layer not in (-1, self.config.layers):
            raise self.unsupported(f"layer {layer}: it gives the last one")
        out = [np.empty(0, np.float32)] * len(examples)
        for group, arrays in self._groups(examples):
            for i, states in zip(group, self._hidden(arrays)):
                out[i] = states[: len(examples[i])].copy()
        return out

    def logits(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        self._need(head)
        out = [np.empty(0, np.float32)] * len(examples)
        spec = HEADS[head]
        for group, arrays in self._groups(examples):
            for i, row in zip(group, self._head(head, arrays)):
                out[i] = row[0] if spec.grouped else row if spec.reads == "row" else row[: len(examples[i])].copy()
        return out

    # ---------------------------------------------------------------------------------------------------------- generation

    def start_generation(
        self, prompts: Sequence[Sequence[int]], how: GenerationConfig, cache: bool = True
    ) -> GraphGenerationState:
        return GraphGenerationState(self.config, prompts, how, self.last_logits)

    def last_logits(self, ids: np.ndarray, mask: np.ndarray, decoder: np.ndarray | None) -> np.ndarray:
        """(N, V) after the last token of each row: of `ids` (N, T), or of an encoder–decoder's `decoder` (N, U)."""
        rows = ids if decoder is None else decoder
        at = np.arange(1, len(rows) + 1) * rows.shape[1] - 1
        feeds = {"input_ids": rows, self.positions_input: at}
        if decoder is None:
            return self._run("model", ["logits"], feeds | {"attention_mask": mask.astype(np.int64)})[0][:, 0]
        if getattr(self._read, "ids", None) is not ids:  # the same prompts in every step are read once
            self._read.ids, self._read.states = ids, self._hidden({"input_ids": ids, "attention_mask": mask})
        feeds |= {"encoder_hidden_states": self._read.states, "encoder_attention_mask": mask.astype(np.int64)}
        return self._run("decoder_model", ["logits"], feeds)[0][:, 0]

    # -------------------------------------------------------------------------------------------------------------- inside

    def unsupported(self, what: str) -> UserError:
        return UserError(
            f"an exported graph has no {what}",
            hint='load the folder that it was exported from: unmask.load(folder, backend="torch")',
        )

    def _need(self, head: str) -> None:
        if head not in self.heads:
            raise UserError(f"this graph has no head {head}", expected=", ".join(self.heads) or "none")

    def _groups(self, examples: Sequence[Example], most: int = 0) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """(numbers of rows, their arrays), every row once; with `most`, so many chosen places at a time, or one row's."""
        if any(example.prefix_length is not None for example in examples):
            raise self.unsupported("prefix mask")
        pad = pad_id_of(self.config)
        for group in batch_by_length([len(example) for example in examples], TOKENS_PER_PASS):
            for part in _split_by_total(group, [len(examples[i].labels.get(LABEL_POSITIONS, ())) for i in group], most):
                yield part, collate_numpy([examples[i] for i in part], pad)

    def _logits_at_positions(self, head: str, examples: Sequence[Example]) -> Iterator[tuple[int, np.ndarray]]:
        """(number of a row, logits (M, V) at its places): where the model predicts them, which may be the place before."""
        self._need(head)
        (name,) = self.about["outputs"][head]
        before = logit_offset(self.config)
        for group, arrays in self._groups(examples, max(1, MAX_LOGITS // self.config.vocab_size)):
            at = arrays["labels"][LABEL_POSITIONS] - before
            if not len(at):  # an empty one would mean every place
                continue
            found = self._run("model", [name], self._feeds(arrays) | {self.positions_input: at})[0][:, 0]
            ends = np.cumsum([len(examples[i].labels[LABEL_POSITIONS]) for i in group])[:-1]
            yield from zip(group, np.split(found, ends))

    def _values(self, arrays: dict[str, Any]) -> np.ndarray:
        """(B, …), or (B, T, …): what the task's forward pass gives."""
        if self.about["output"] != "vector":
            found = self._head(self.heads[0], arrays)
            return found[:, 0] if self.about["grouped"] else found  # (B, 1) → (B,)
        hidden = self._hidden(arrays)
        if self.about["pooling"] == "cls":
            return hidden[:, 0]
        kept = self._mask(arrays).astype(np.float32)
        return np.einsum("btd,bt->bd", hidden, kept) / kept.sum(1)[:, None]

    def _hidden(self, arrays: dict[str, Any]) -> np.ndarray:
        name = "encoder_model" if "encoder_model" in self.sessions else "model"
        return self._run(name, ["last_hidden_state"], self._feeds(arrays))[0]

    def _head(self, head: str, arrays: dict[str, Any]) -> np.ndarray:
        values = self._run("model", self.about["outputs"][head], self._feeds(arrays))
        return values[0] if len(values) == 1 else np.stack(values, -1)

    def _mask(self, arrays: dict[str, Any]) -> np.ndarray:
        return (
            np.ones_like(arrays["input_ids"])
            if (mask := arrays.get("attention_mask")) is None
            else mask.astype(np.int64)
        )

    def _feeds(self, arrays: dict[str, Any]) -> dict[str, np.ndarray]:
        ids = arrays["input_ids"]
        feeds = {"input_ids": ids, "attention_mask": self._mask(arrays)}
        if self.config.segments > 1:
            feeds["token_type_ids"] = (
                np.zeros_like(ids) if arrays.get("token_type_ids") is None else arrays["token_type_ids"]
            )
        # A question of one choice each: (B, 1, T).
        grouped = any(HEADS[head].grouped for head in self.heads)
        return {name: value[:, None] for name, value in feeds.items()} if grouped else feeds

    def _run(self, name: str, outputs: Sequence[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        import onnxruntime

        how = onnxruntime.RunOptions()
        how.only_execute_path_to_fetches = True  # no vocabulary logits for one who wants vectors
        length, most = feeds["input_ids"].shape[-1], self.config.max_positions
        if self.config.positions != "relative" and length > most:
            raise UserError(f"a sequence of {length} tokens", expected=f"at most {most}, the model's positions")
        with self.forward_lock():
            return self.sessions[name].run(list(outputs), feeds, how)


def _about(file: Path) -> dict[str, Any]:
    """What export.json says. The graphs lie in onnx/ beside it: a path that leads elsewhere would open what is not the model's."""
    found = read_object(file)
    known = found.get("version") == VERSION and {"task", "pooling", "heads", "graphs", "outputs"} <= set(found)
    graphs = found.get("graphs") if known else None
    if not isinstance(graphs, dict) or not set(graphs) & {"model", "decoder_model"}:
        raise UserError(f"{file} is not of this version", expected=f"version {VERSION}", hint="export the model again")
    for name in graphs.values():
        if not isinstance(name, str) or not re.fullmatch(r"onnx/\w[\w.-]*", name):
            raise UserError(f"{file} names the file {name!r}", expected="plain names of files in onnx/")
    spec = None if found["task"] is None or "output" in found else TASKS[found["task"]].SPEC
    older = {
        "output": None if spec is None else spec.output,
        "grouped": spec is not None and spec.grouped,
        "validation": found.get("compared"),
    }
    return older | found


def _split_by_total(group: list[int], counts: Sequence[int], most: int) -> Iterator[list[int]]:
    """
    >>> list(_split_by_total([4, 5, 6], [2, 2, 9], most=4))
    [[4, 5], [6]]
    """
    part: list[int] = []
    held = 0
    for i, k in zip(group, counts):
        if part and most and held + k > most:
            yield part
            part, held = [], 0
        part.append(i)
        held += k
    yield part


def _session(file: Path, device: str) -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise UserError("onnxruntime is not installed", hint="pip install 'unmask[onnx]'") from None
    provider = DEVICES.get(device)
    if provider not in onnxruntime.get_available_providers():
        raise UserError(f"device {device!r}: this onnxruntime has no such device", expected="auto, cpu")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3  # errors
    # As for torch (unmask/__init__.py): as many threads as the user sets, and none that spins while it waits.
    settings.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(file, settings, providers=[provider])
    except Exception as error:  # onnxruntime has an exception class for each of its codes, and no common one
        reason = str(error).splitlines()[0]
        raise UserError(f"cannot read {file}: {reason}", hint="copy the folder, or export the model, again") from None
