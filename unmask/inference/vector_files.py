"""What `unmask embed` writes: vectors into a file, a word's places into a picture, or both as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.console import Console, visible, write, write_json
from unmask.errors import UserError
from unmask.inference.inputs import given_texts
from unmask.inference.predictor import Predictor
from unmask.inference.senses import apart, draw


@dataclass
class Wish:
    out: Path | None = None
    pooling: Any = "auto"
    layer: int = -1
    word: str | None = None
    plot: Path | None = None
    overflow: Any = None


def embed(model: Predictor, items: list[str], column: str, wish: Wish, as_json: bool) -> None:
    if wish.out is not None and wish.out.suffix != ".npy":
        raise UserError(f"--out {wish.out}", expected="a name that ends with .npy")
    if wish.plot is not None and wish.word is None:
        raise UserError("--plot without --word", hint="unmask embed MODEL FILE --word bank --plot bank.png")
    if wish.plot is not None and wish.plot.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot {wish.plot}", expected="a name that ends with .png, .svg or .pdf")
    texts, senses = given_texts(items, column)
    if not texts:
        raise UserError("no texts", expected="texts, a file that holds some, or lines on standard input")
    if wish.word is not None:
        return _word(model, texts, senses, wish, as_json)
    vectors = model.embed(texts, wish.pooling, wish.layer, wish.overflow)
    if wish.out is not None:
        _save(wish.out, vectors)
    shown = [vector.tolist() for vector in vectors]
    if as_json:
        write_json({"texts": texts, "vectors": shown}, indent=None)
    elif wish.out is None:
        for text, vector in zip(texts, vectors):
            numbers = " ".join(f"{x:.3f}" for x in vector.reshape(-1)[:6])
            write(f"{visible(text[:60])}  →  {numbers} … ({' × '.join(map(str, vector.shape))} numbers)")


def _word(model: Predictor, texts: list[str], senses: list[str], wish: Wish, as_json: bool) -> None:
    assert wish.word is not None
    found = model.word_vectors(wish.word, texts, wish.layer, wish.overflow or "error")
    own = [senses[place.number] for place in found.occurrences] if senses else []
    figures = apart(found.vectors, own) if len(set(own)) > 1 else {}
    if wish.out is not None:
        _save(wish.out, found.vectors)
    if wish.plot is not None:
        draw(found, own if figures else [], wish.plot)
    if as_json:
        write_json(found.as_dict() | {"senses": own} | figures, indent=None)
        return
    write(f"“{found.word}” stands {len(found.occurrences)} times in {len(texts)} texts")
    if figures:
        write(f"nearest neighbour of the same sense: {figures['nearest']:.0%}, silhouette {figures['silhouette']:.2f}")
    if wish.plot is not None:
        write(f"picture: {wish.plot}")


def _save(path: Path, vectors: Any) -> None:
    """One array; of token vectors, which differ in number, all below each other, and their counts beside it."""
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
        raise UserError(f"cannot write {path}: {error.strerror or error}", hint="another --out") from None
    Console().say(f"{path}: {size}")  # standard output may be JSON
