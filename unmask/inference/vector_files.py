"""Output of `unmask embed`: vectors in a .npy file, a plot of a word's occurrences, or JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.console import Console, visible, write, write_json
from unmask.errors import UserError
from unmask.inference.inputs import read_texts_or_files
from unmask.inference.predictor import Predictor
from unmask.inference.sense_plot import plot_occurrences, sense_separation


@dataclass
class EmbedOptions:
    out: Path | None = None
    pooling: Any = "auto"
    layer: int = -1
    word: str | None = None
    plot: Path | None = None
    overflow: Any = None


def embed(model: Predictor, items: list[str], column: str, options: EmbedOptions, as_json: bool) -> None:
    if options.out is not None and options.out.suffix != ".npy":
        raise UserError(f"invalid --out {options.out}", expected="a file name that ends with .npy")
    if options.plot is not None and options.word is None:
        raise UserError("--plot without --word", hint="unmask embed MODEL FILE --word bank --plot bank.png")
    if options.plot is not None and options.plot.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"invalid --plot {options.plot}", expected="a file name that ends with .png, .svg or .pdf")
    texts, senses = read_texts_or_files(items, column)
    if not texts:
        raise UserError("no texts", expected="texts, a file of texts, or lines on standard input")
    if options.word is not None:
        return _embed_word(model, texts, senses, options, as_json)
    vectors = model.embed(texts, options.pooling, options.layer, options.overflow)
    if options.out is not None:
        _save(options.out, vectors)
    if as_json:
        write_json({"texts": texts, "vectors": [vector.tolist() for vector in vectors]}, indent=None)
    elif options.out is None:
        for text, vector in zip(texts, vectors):
            numbers = " ".join(f"{x:.3f}" for x in vector.reshape(-1)[:6])
            write(f"{visible(text[:60])}  →  {numbers} … ({' × '.join(map(str, vector.shape))} numbers)")


def _embed_word(model: Predictor, texts: list[str], senses: list[str], options: EmbedOptions, as_json: bool) -> None:
    assert options.word is not None
    result = model.word_vectors(options.word, texts, options.layer, options.overflow or "error")
    labels = [senses[occurrence.number] for occurrence in result.occurrences] if senses else []
    metrics = sense_separation(result.vectors, labels) if len(set(labels)) > 1 else {}
    if options.out is not None:
        _save(options.out, result.vectors)
    if options.plot is not None:
        plot_occurrences(result, labels if metrics else [], options.plot)
    if as_json:
        write_json(result.as_dict() | {"senses": labels} | metrics, indent=None)
        return
    write(f"“{result.word}” occurs {len(result.occurrences)} times in {len(texts)} texts")
    if metrics:
        write(f"nearest neighbor of the same sense: {metrics['nearest']:.0%}, silhouette {metrics['silhouette']:.2f}")
    if options.plot is not None:
        write(f"plot: {options.plot}")


def _save(path: Path, vectors: Any) -> None:
    """Save vectors (N, D). Token vectors of all texts are concatenated, and a second file has the number of tokens per text."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(vectors, list):
            np.save(path, np.concatenate(vectors))
            np.save(path.with_suffix(".counts.npy"), np.array([len(v) for v in vectors]))
            size = f"{sum(map(len, vectors)):,} × {vectors[0].shape[1]}; tokens per text in {path.stem}.counts.npy"
        else:
            np.save(path, vectors)
            size = f"{' × '.join(f'{n:,}' for n in vectors.shape)}, float32"
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}", hint="choose a different --out") from None
    Console().say(f"{path}: {size}")  # standard output may be JSON
