"""embed: vectors of texts, of their tokens, and of a word in its sentences, from any layer."""

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
from unmask.inference.reader import Overflow, Reader, chosen
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
    """(N, D) float32, or by `token` a list of (T, D)."""
    if pooling not in get_args(Pooling):
        raise UserError(f"pooling {pooling!r}", expected=", ".join(get_args(Pooling)))
    if overflow is not None:
        chosen(overflow)
    own = task if task is not None and task.spec.output == "vector" and pooling == "auto" else None
    if own and layer == -1:
        return _task_vectors(engine, own.with_overflow(overflow), texts, update)
    kind = own.bound.pooling if own else "mean" if pooling == "auto" else pooling
    found = hidden(engine, reader, texts, layer, overflow or "error", update, kind)
    if kind == "token":
        return found
    out = np.stack(found) if found else np.empty((0, engine.config.hidden), np.float32)
    return l2_normalize(out, own.bound.normalize) if own else out


def _task_vectors(engine: Engine, task: Task, texts: list[str], update: Update | None) -> np.ndarray:
    """(N, D) float32, as a model gives them that is fine-tuned for vectors."""
    name = task.spec.inputs[0].key
    found = task.predict(engine, [{name: text} for text in texts], update) if texts else []
    return np.array([one["vector"] for one in found], np.float32).reshape(len(found), engine.config.hidden)


def hidden(
    engine: Engine,
    reader: Reader,
    texts: list[str],
    layer: int,
    overflow: Overflow,
    update: Update | None,
    kind: str = "token",
) -> list[np.ndarray]:
    """Each text's vectors: (T, D) of its tokens, special ones first and last, or one (D,) of them.

    Of a long text each token's vector is from the window in which it stands most inside; one vector is the windows' mean.
    """
    if not isinstance(layer, Integral):
        raise UserError(f"layer {layer!r}", expected=f"a whole number, -1 to {engine.config.layers}")
    rows: list[Example] = []
    cuts = []
    for encoding in reader.encode(texts, overflow):
        spans, deciding = word_windows(len(encoding), np.arange(len(encoding)), reader.max_text_tokens)
        cuts.append((len(rows), spans, deciding))
        rows += [reader.row(encoding.ids[start:end]) for start, end in spans]

    def reduced(states: np.ndarray) -> np.ndarray:  # (T, D) of a row
        return states.mean(0) if kind == "mean" else states[0].copy() if kind == "cls" else states

    lengths = [len(row) for row in rows]
    found = map_in_chunks(rows, lengths, lambda some: [reduced(h) for h in engine.hidden(some, layer)], update)
    before, out = len(reader.first), []
    for first, spans, deciding in cuts:
        own = found[first : first + len(spans)]
        if len(own) == 1:
            out.append(own[0])
        elif kind != "token":
            out.append(np.mean(own, 0))
        else:
            tokens = [own[k][i - spans[k][0] + before] for i, k in enumerate(deciding)]
            out.append(np.stack([*own[0][:before], *tokens, own[-1][-1]]))
    return out


def word_vectors(
    engine: Engine, reader: Reader, word: str, texts: list[str], layer: int, overflow: Overflow, update: Update | None
) -> WordVectors:
    """Wherever the word stands in the texts, in upper or lower case: the mean of its tokens' vectors there."""
    if not word.strip():
        raise UserError("an empty word", expected='a word that stands in the texts, e.g. "bank"')
    bound = "" if is_ideograph(word) else r"\b"
    pattern = re.compile(f"{bound}{re.escape(word.strip())}{bound}", re.IGNORECASE)
    chosen = [n for n, text in enumerate(texts) if pattern.search(text)]
    if not chosen:
        raise UserError(f"the word {word!r} stands in none of the {len(texts):,} texts", expected="texts that hold it")
    kept = [texts[n] for n in chosen]
    places, vectors = [], []
    before = len(reader.first)
    states = hidden(engine, reader, kept, layer, overflow, update)
    for number, text, encoding, own in zip(chosen, kept, reader.tokenizer.encode_batch(kept), states):
        for match in pattern.finditer(text):
            first, end = match.span()
            tokens = [i for i, (a, b) in enumerate(encoding.offsets, before) if a < end and b > first]
            if tokens:  # those that share a character with the word
                places.append(Occurrence(number, text, first, end))
                vectors.append(own[tokens].mean(0))
    if not vectors:
        raise UserError(f"the tokenizer drops {word!r}: it has no token there", expected="a word of known characters")
    return WordVectors(word.strip(), layer, places, np.stack(vectors))
