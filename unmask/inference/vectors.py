"""Vectors of texts, of their tokens, and of the occurrences of a word, from any layer."""

from __future__ import annotations

import re
from numbers import Integral
from typing import Literal, get_args

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError
from unmask.inference.answers import Occurrence, WordVectors
from unmask.inference.engine import Engine
from unmask.inference.progress import Update, map_in_chunks
from unmask.inference.reader import Overflow, Reader, check_overflow
from unmask.numeric import l2_normalize
from unmask.tasks.task import Task
from unmask.text.token_text import is_ideograph
from unmask.text.windows import word_windows

Pooling = Literal["auto", "mean", "cls", "token"]


def embed(
    engine: Engine,
    reader: Reader,
    task: Task | None,
    texts: list[str],
    pooling: Pooling = "auto",
    layer: int = -1,
    overflow: Overflow | None = None,
    update: Update | None = None,
) -> np.ndarray | list[np.ndarray]:
    """Return (N, D) float32, or a list of (T, D) for the pooling `token`."""
    if pooling not in get_args(Pooling):
        raise UserError(f"invalid pooling {pooling!r}", expected=", ".join(get_args(Pooling)))
    if overflow is not None:
        check_overflow(overflow)
    vector_task = task if task is not None and task.spec.output == "vector" and pooling == "auto" else None
    if vector_task and layer == -1:
        return _task_vectors(engine, vector_task.with_overflow(overflow), texts, update)
    resolved = vector_task.bound.pooling if vector_task else "mean" if pooling == "auto" else pooling
    vectors = hidden_states(engine, reader, texts, layer, overflow or "error", update, resolved)
    if resolved == "token":
        return vectors
    out = np.stack(vectors) if vectors else np.empty((0, engine.config.hidden), np.float32)
    return l2_normalize(out, vector_task.bound.normalize) if vector_task else out


def _task_vectors(engine: Engine, task: Task, texts: list[str], update: Update | None) -> np.ndarray:
    """Return (N, D) float32: the predictions of a model fine-tuned for vectors."""
    name = task.spec.inputs[0].key
    predictions = task.predict(engine, [{name: text} for text in texts], update) if texts else []
    vectors = [prediction["vector"] for prediction in predictions]
    return np.array(vectors, np.float32).reshape(len(vectors), engine.config.hidden)


def hidden_states(
    engine: Engine,
    reader: Reader,
    texts: list[str],
    layer: int,
    overflow: Overflow,
    update: Update | None,
    pooling: str = "token",
) -> list[np.ndarray]:
    """Return the vectors of each text: (T, D) of its tokens, including special tokens, or (D,) if pooled.

    In a long text, the vector of a token comes from the window in which it has the most context on both sides. A pooled vector is
    the mean over the windows.
    """
    if not isinstance(layer, Integral):
        raise UserError(f"invalid layer {layer!r}", expected=f"an integer from -1 to {engine.config.layers}")
    rows: list[Example] = []
    windows = []  # for each text: index of its first row, spans of its windows, window of each token
    for encoding in reader.encode(texts, overflow):
        spans, window_of_token = word_windows(len(encoding), np.arange(len(encoding)), reader.max_text_tokens)
        windows.append((len(rows), spans, window_of_token))
        rows += [reader.row(encoding.ids[start:end]) for start, end in spans]

    def pool(states: np.ndarray) -> np.ndarray:  # (T, D) of a row
        return states.mean(0) if pooling == "mean" else states[0].copy() if pooling == "cls" else states

    lengths = [len(row) for row in rows]
    pooled = map_in_chunks(rows, lengths, lambda chunk: [pool(h) for h in engine.hidden(chunk, layer)], update)
    offset, out = len(reader.first), []
    for first, spans, window_of_token in windows:
        vectors = pooled[first : first + len(spans)]
        if len(vectors) == 1:
            out.append(vectors[0])
        elif pooling != "token":
            out.append(np.mean(vectors, 0))
        else:
            tokens = [vectors[k][i - spans[k][0] + offset] for i, k in enumerate(window_of_token)]
            out.append(np.stack([*vectors[0][:offset], *tokens, vectors[-1][-1]]))
    return out


def word_vectors(
    engine: Engine, reader: Reader, word: str, texts: list[str], layer: int, overflow: Overflow, update: Update | None
) -> WordVectors:
    """Return a vector for each occurrence of the word, ignoring case: the mean over the tokens that overlap with it."""
    if not word.strip():
        raise UserError("an empty word", expected='a word of the texts, e.g. "bank"')
    boundary = "" if is_ideograph(word) else r"\b"
    pattern = re.compile(f"{boundary}{re.escape(word.strip())}{boundary}", re.IGNORECASE)
    numbers = [n for n, text in enumerate(texts) if pattern.search(text)]
    if not numbers:
        raise UserError(f"the word {word!r} occurs in none of the {len(texts):,} texts", expected="texts with the word")
    matching = [texts[n] for n in numbers]
    occurrences, vectors = [], []
    offset = len(reader.first)
    states = hidden_states(engine, reader, matching, layer, overflow, update)
    for number, text, encoding, hidden in zip(numbers, matching, reader.tokenizer.encode_batch(matching), states):
        for match in pattern.finditer(text):
            start, end = match.span()
            tokens = [i for i, (a, b) in enumerate(encoding.offsets, offset) if a < end and b > start]
            if tokens:
                occurrences.append(Occurrence(number, text, start, end))
                vectors.append(hidden[tokens].mean(0))
    if not vectors:
        raise UserError(f"the tokenizer drops {word!r}, so it has no vector", expected="a word of known characters")
    return WordVectors(word.strip(), layer, occurrences, np.stack(vectors))
