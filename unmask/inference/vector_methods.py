"""What a Predictor gives of every model, whatever its heads: vectors of texts, of tokens, of a word; and their cosines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

import numpy as np

from unmask.inference import vectors
from unmask.inference.answers import WordVectors
from unmask.inference.engine import Engine
from unmask.inference.inputs import several
from unmask.inference.progress import Update
from unmask.inference.reader import Long, Reader
from unmask.inference.vectors import Pooling
from unmask.numeric import unit
from unmask.tasks.task import Task


class VectorMethods:
    engine: Engine
    reader: Reader
    task: Task | None
    check_known: Callable[[Any], None]

    @overload
    def embed(self, text: str, pooling: Pooling = ..., layer: int = ..., long: Long | None = ...) -> np.ndarray: ...  # type: ignore[overload-overlap]
    @overload
    def embed(
        self,
        text: Iterable[str],
        pooling: Literal["auto", "mean", "cls"] = ...,
        layer: int = ...,
        long: Long | None = ...,
        update: Update | None = ...,
    ) -> np.ndarray: ...
    @overload
    def embed(
        self,
        text: Iterable[str],
        pooling: Literal["token"],
        layer: int = ...,
        long: Long | None = ...,
        update: Update | None = ...,
    ) -> list[np.ndarray]: ...
    def embed(
        self,
        text: str | Iterable[str],
        pooling: Pooling = "auto",
        layer: int = -1,
        long: Long | None = None,
        update: Update | None = None,
    ) -> np.ndarray | list[np.ndarray]:
        """Vectors of what the model gives (layer -1), of its embeddings (0), or of any layer between; float32.

        `auto`: as a folder of sentence vectors says (of length 1), else `mean`.
        `mean` (over all tokens, [CLS] and [SEP] too) and `cls`: (D,) for a text, (N, D) for a list.
        `token`: (T, D) for each text, [CLS] first and [SEP] last.
        `long`: a text too long is read in "windows", or "refuse"d; unless said, a folder of sentence vectors reads its own kind in windows.
        """
        texts = several(text)
        self.check_known(texts)
        out = vectors.embed(self.engine, self.reader, self.task, texts, pooling, layer, long, update)
        return out[0] if isinstance(text, str) else out

    def word_vectors(
        self, word: str, texts: Iterable[str], layer: int = -1, long: Long = "refuse", update: Update | None = None
    ) -> WordVectors:
        """The vectors of a word wherever it stands in the texts: a word of two senses has two kinds of them."""
        given = several(texts)
        self.check_known(given)
        return vectors.word_vectors(self.engine, self.reader, word, given, layer, long, update)

    @overload
    def similarity(self, a: str, b: str) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str]) -> np.ndarray: ...
    def similarity(self, a: str | Iterable[str], b: str | Iterable[str]) -> float | np.ndarray:
        """Cosine of two texts' vectors; for lists of N and M texts, (N, M) of them."""
        x, y = (unit(self.embed(several(texts))) for texts in (a, b))
        if isinstance(a, str) and isinstance(b, str):
            return float((x @ y.T)[0, 0])
        return (x @ y.T)[0] if isinstance(a, str) else (x @ y.T)[:, 0] if isinstance(b, str) else x @ y.T
