"""Numpy implementation of the Engine protocol for a static copy, written by `unmask export --format static`. It imports neither torch
nor ONNX Runtime.

A static model has one vector per token. The vector of a text is the mean over its tokens; special and unknown tokens do not count.
Every mean is shrunk: `prior_tokens` zero vectors are added, because a text of three words tells less than one of three hundred.
A linear layer turns the vector into the outputs of the task. Bigrams add to them directly, because the mean of vectors does not know
that "not" is followed by "good": each pair of neighboring tokens is hashed to a row of a table with one value per output (as in
fastText, 1607.01759), and the mean of these rows is added. The features of a pair of texts are [a, b, |a - b|, a * b], without bigrams.

| tensor        | shape                | in model.safetensors                                        |
|---------------|----------------------|-------------------------------------------------------------|
| embeddings    | (V, D)               | the name that model2vec reads                               |
| linear.weight | (D or 4 D, outputs)  |                                                             |
| linear.bias   | (outputs,)           |                                                             |
| bigrams       | (buckets, outputs)   | no rows if the model has no bigrams                         |
| special       | (V,)                 | 1 for a token that does not count: special tokens, unknown  |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from unmask.batch import Example
from unmask.errors import UserError, first_line
from unmask.files import read_object
from unmask.hub import resolve
from unmask.inference.engine import TopK
from unmask.inference.exported import FILE, VERSION, check_format
from unmask.json_checks import ABOVE_ZERO, BOOLEAN, COUNT, STRING, check_fields, list_of
from unmask.model.config import preset

if TYPE_CHECKING:
    from unmask.model.generation import GenerationConfig
    from unmask.model.generation_state import ForwardLock, GenerationState

WEIGHTS_FILE = "model.safetensors"
PATTERNS = ["*.json", WEIGHTS_FILE]
MAX_TOKENS = 1_000_000  # per text: a static model has no positions, so a text is never split or cut
HASH_FACTOR = 1_000_003  # a prime larger than most vocabularies, so that few bigrams share a row
DEVICES = ("auto", "cpu")
RULES = {
    "task": STRING, "heads": list_of(STRING), "labels": list_of(STRING), "pairs": BOOLEAN, "separator": list_of(COUNT),
    "prior_tokens": ABOVE_ZERO,
}  # fmt: skip


@dataclass(frozen=True)
class StaticWeights:
    """The tensors of a static model, as numpy arrays."""

    embeddings: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    bigrams: np.ndarray
    special: np.ndarray

    def save(self, folder: Path) -> None:
        tensors = {
            "embeddings": self.embeddings, "linear.weight": self.weight, "linear.bias": self.bias, "bigrams": self.bigrams,
            "special": self.special.astype(np.uint8),
        }  # fmt: skip
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / WEIGHTS_FILE)

    @classmethod
    def load(cls, file: Path, num_outputs: int, pairs: bool) -> StaticWeights:
        names = ("embeddings", "linear.weight", "linear.bias", "bigrams", "special")
        try:
            with safe_open(file, "numpy") as tensors:
                values = [tensors.get_tensor(name) for name in names]
        except (SafetensorError, OSError) as error:
            raise UserError(
                f"cannot read {file}: {first_line(error)}", hint="copy the folder again, or export the model again"
            ) from None
        shapes = [value.shape for value in values]
        sizes = (*shapes[0], 0, 0)
        expected = [
            sizes[:2],
            (sizes[1] * (4 if pairs else 1), num_outputs),
            (num_outputs,),
            (len(values[3]), num_outputs),
            sizes[:1],
        ]
        if shapes != expected or any(value.dtype != np.float32 for value in values[:4]):
            raise UserError(
                f"{file}: the shapes of {', '.join(names)} are {', '.join(map(str, shapes))}",
                expected=f"float32 tensors of the shapes {', '.join(map(str, expected))}",
                hint="copy the folder again, or export the model again",
            )
        embeddings, weight, bias, bigrams, special = values
        return cls(embeddings, weight, bias, bigrams, special.astype(bool))


def open_engine(source: str | Path, device: str = "auto") -> tuple[StaticEngine, Path]:
    """Load a static copy, from a folder or the hub. Return the engine and the local folder."""
    folder = resolve(source, PATTERNS)
    check_format(source, folder, "static")
    if device not in DEVICES:
        raise UserError(f"device {device!r}: a static model runs on the CPU", expected=", ".join(DEVICES))
    return StaticEngine.load(folder), folder


class StaticEngine:
    """
    >>> weights = StaticWeights(np.eye(3, 2, dtype=np.float32), np.eye(2, dtype=np.float32), np.zeros(2, np.float32),
    ...                         np.zeros((0, 2), np.float32), np.array([False, False, True]))
    >>> engine = StaticEngine(weights, {"heads": ["urgency"], "labels": ["no", "yes"], "pairs": False, "separator": [2], "prior_tokens": 4})
    >>> engine.forward_rows(len, [Example(np.array([0, 0, 0, 1, 2]))], 0)[0].tolist()
    [0.375, 0.125]
    """

    kind = "static"
    batch_size: int | None = None

    def __init__(self, weights: StaticWeights, manifest: dict[str, Any]):
        self.weights, self.manifest, self.pairs = weights, manifest, bool(manifest["pairs"])
        self.prior_tokens = float(manifest["prior_tokens"])
        vocab_size, hidden = weights.embeddings.shape
        # The architecture of word2vec: one vector per token, independent of its context.
        self.config = preset(
            "cbow-mini",
            vocab_size=vocab_size,
            hidden=hidden,
            max_positions=MAX_TOKENS,
            labels=tuple(manifest["labels"]),
        )
        self.heads: list[str] = list(manifest["heads"])
        self.generation: dict[str, Any] = {}
        self.forward_lock: ForwardLock = nullcontext
        # The mean commutes with the linear layer, so one text needs one lookup of a few values per token.
        self.table = weights.embeddings if self.pairs else weights.embeddings @ weights.weight

    @classmethod
    def load(cls, folder: Path) -> StaticEngine:
        manifest = read_object(folder / FILE)
        if manifest.get("version") != VERSION:
            raise UserError(
                f"{folder / FILE} has an incompatible version", expected=f"{VERSION}", hint="export the model again"
            )
        check_fields(folder / FILE, manifest, RULES, tuple(RULES))
        weights = StaticWeights.load(folder / WEIGHTS_FILE, len(manifest["labels"]), manifest["pairs"])
        return cls(weights, manifest)

    # -------------------------------------------------------------------------------------------------- methods of Engine

    def forward_rows(
        self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        texts = [self.text_tokens(example) for example in examples]
        with self.forward_lock():
            first = mean_of_rows(self.table, [ids for ids, _ in texts], self.prior_tokens)
            if self.pairs:
                second = mean_of_rows(self.table, [ids for _, ids in texts], self.prior_tokens)
                features = np.concatenate([first, second, np.abs(first - second), first * second], -1)
                first = features @ self.weights.weight
            values = first + self.weights.bias
            if len(self.weights.bigrams):
                rows = [bigram_rows(ids, len(self.weights.bigrams)) for ids, _ in texts]
                values += mean_of_rows(self.weights.bigrams, rows, self.prior_tokens)
        return list(values)

    def logits(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        if head not in self.heads:
            raise self.unsupported(f"head {head}")
        return self.forward_rows(lambda model, batch: None, examples, 0)

    def hidden(self, examples: Sequence[Example], layer: int = -1) -> list[np.ndarray]:
        if layer not in (-1, 0, self.config.layers):
            raise self.unsupported(f"layer {layer}")
        return [self.weights.embeddings[example.input_ids] for example in examples]

    def top_k(self, head: str, examples: Sequence[Example], k: int, allowed: np.ndarray | None = None) -> list[TopK]:
        raise self.unsupported(f"head {head}")

    def token_logprobs(self, head: str, examples: Sequence[Example]) -> list[np.ndarray]:
        raise self.unsupported(f"head {head}")

    def start_generation(
        self, prompts: Sequence[Sequence[int]], options: GenerationConfig, cache: bool = True
    ) -> GenerationState:
        raise self.unsupported("head lm")

    # ------------------------------------------------------------------------------------------------------------ internal

    def unsupported(self, feature: str) -> UserError:
        return UserError(f"a static model has no {feature}", hint="use the model that it was exported from")

    def text_tokens(self, example: Example) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens that count: of the text, or of each text of a pair."""
        ids = example.input_ids
        counts = ~self.weights.special[ids]
        if not self.pairs:
            return ids[counts], ids[:0]
        is_second = example.token_type_ids == 1 if example.token_type_ids is not None else np.zeros(len(ids), bool)
        if not is_second.any():  # RoBERTa has no segments
            is_second = np.arange(len(ids)) >= find_separator(ids, self.manifest["separator"])
        return ids[counts & ~is_second], ids[counts & is_second]

    def contributions(self, example: Example, output: int) -> np.ndarray:
        """Return (T,): how much each token adds to an output; a bigram adds half to each of its tokens. The sum is the output − bias."""
        assert not self.pairs
        positions = np.flatnonzero(~self.weights.special[example.input_ids])
        ids, scores = example.input_ids[positions], np.zeros(len(example))
        scores[positions] = self.table[ids, output] / (len(ids) + self.prior_tokens)
        if len(self.weights.bigrams) and len(ids) > 1:
            rows = bigram_rows(ids, len(self.weights.bigrams))
            values = self.weights.bigrams[rows, output] / (len(rows) + self.prior_tokens)
            scores[positions[:-1]] += values / 2
            scores[positions[1:]] += values / 2
        return scores


def mean_of_rows(table: np.ndarray, rows: Sequence[np.ndarray], prior_tokens: float) -> np.ndarray:
    """Return (N, D): the mean of the table's rows with the indices in each array and of `prior_tokens` zeros.

    >>> mean_of_rows(np.array([[2.0], [4.0]]), [np.array([0, 1]), np.array([], int)], 1).tolist()
    [[2.0], [0.0]]
    """
    lengths = np.array([len(indices) for indices in rows])
    out = np.zeros((len(rows), table.shape[1]), table.dtype)
    if filled := [n for n, length in enumerate(lengths) if length]:
        starts = np.cumsum(lengths[filled]) - lengths[filled]
        sums = np.add.reduceat(table[np.concatenate([rows[n] for n in filled])], starts, axis=0)
        out[filled] = sums / (lengths[filled, None] + prior_tokens)
    return out


def bigram_rows(ids: np.ndarray, buckets: int) -> np.ndarray:
    """Return the row of each pair of neighboring tokens in a table of `buckets` rows: one fewer than there are tokens."""
    return (ids[:-1] * HASH_FACTOR + ids[1:]) % buckets


def find_separator(ids: np.ndarray, separator: Sequence[int]) -> int:
    """Return the first index of the special tokens between two texts, or the number of ids if they do not occur.

    >>> find_separator(np.array([0, 7, 2, 2, 8, 2]), [2, 2])
    2
    """
    found = np.ones(max(0, len(ids) - len(separator) + 1), bool)
    for n, id in enumerate(separator):
        found &= ids[n : n + len(found)] == id
    return int(found.argmax()) if found.any() else len(ids)
