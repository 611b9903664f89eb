"""A word's vectors as a picture: do its senses come apart?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.inference.answers import Occurrence, WordVectors
from unmask.numeric import l2_normalize

CONTEXT_CHARACTERS = 18  # characters of a sentence shown on either side of the word
FONTS = ("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei")  # for Chinese


def project_2d(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N, D) → (N, 2) by the two directions in which they differ most (PCA), and these directions' shares of all variance.

    >>> points, shares = project_2d(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [4.0, 0.0, 1.0]]))
    >>> np.abs(points[:, 0]).round(3).tolist(), shares.round(3).tolist()
    ([2.0, 0.0, 2.0], [1.0, 0.0])
    """
    centred = vectors - vectors.mean(0)
    left, sizes, _ = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-12)
    return np.pad(left * sizes, [(0, 0), (0, 2)])[:, :2], np.pad(shares, (0, 2))[:2]  # one text has one direction


def sense_separation(vectors: np.ndarray, senses: Sequence[str]) -> dict[str, float]:
    """How well given senses come apart, by cosine: the share whose nearest neighbour has the same sense; silhouette (−1 to 1).

    >>> sense_separation(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]), ["a", "a", "b", "b"])["nearest"]
    1.0
    """
    far = 1.0 - l2_normalize(vectors) @ l2_normalize(vectors).T  # (N, N)
    names = np.array(senses)
    same = names[:, None] == names[None]
    others = far + np.eye(len(far)) * 9
    widths = []
    for i, name in enumerate(names):
        own = far[i][same[i] & (np.arange(len(names)) != i)]
        foreign = [far[i][names == other].mean() for other in set(senses) - {name}]
        if len(own) and foreign:
            inner, outer = own.mean(), min(foreign)
            widths.append((outer - inner) / max(inner, outer, 1e-12))
    nearest = float((names[others.argmin(1)] == names).mean())
    return {"nearest": nearest, "silhouette": float(np.mean(widths)) if widths else 0.0}


def plot_occurrences(found: WordVectors, senses: Sequence[str], path: str | Path) -> None:
    """A scatter of the word's places, each with the words around it, coloured by sense where senses are given."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import font_manager

    there = {font.name for font in font_manager.fontManager.ttflist}
    fonts = ["DejaVu Sans", *(name for name in FONTS if name in there)]
    points, shares = project_2d(found.vectors)
    with plt.rc_context({"font.family": fonts, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(figsize=(9, 5.6), layout="constrained")
        kinds = list(dict.fromkeys(senses)) or [""]
        for number, kind in enumerate(kinds):
            own = [n for n in range(len(points)) if not senses or senses[n] == kind]
            axes.scatter(points[own, 0], points[own, 1], s=46, color=f"C{number}", label=kind or None, zorder=3)
        _name(axes, points, [context(place) for place in found.occurrences])
        title = f"“{found.word}”, " + ("what the model gives" if found.layer == -1 else f"layer {found.layer}")
        if senses:
            figures = sense_separation(found.vectors, senses)
            title += (
                f": nearest neighbor of the same sense {figures['nearest']:.0%}, silhouette {figures['silhouette']:.2f}"
            )
            axes.legend(frameon=False, loc="upper center", ncols=len(kinds))
        axes.set_title(title, fontsize=11, loc="left")
        axes.set_xlabel(f"PC 1 ({shares[0]:.0%} of the variance)")
        axes.set_ylabel(f"PC 2 ({shares[1]:.0%})")
        axes.set_xticks([])
        axes.set_yticks([])
        figure.savefig(path, dpi=130)
        plt.close(figure)


def _name(axes: Any, points: np.ndarray, names: Sequence[str]) -> None:
    """Each point's name in a column on its side, with a thin line to it: names in the picture would lie on each other."""
    low, high = points.min(0), points.max(0)
    wide, tall = np.maximum(high - low, 1e-9)
    axes.set_xlim(low[0] - 0.75 * wide, high[0] + 0.75 * wide)
    axes.set_ylim(low[1] - 0.1 * tall, high[1] + 0.2 * tall)
    by_side = np.argsort(points[:, 0], kind="stable")
    half = len(points) // 2
    for own, x, away in (
        (by_side[:half], low[0] - 0.1 * wide, "right"),
        (by_side[half:], high[0] + 0.1 * wide, "left"),
    ):
        heights = np.linspace(low[1], high[1], max(len(own), 2))
        for n, y in zip(own[np.argsort(points[own, 1], kind="stable")], heights):
            axes.plot([points[n, 0], x], [points[n, 1], y], color="0.8", linewidth=0.7, zorder=1)
            axes.text(x, y, f" {names[n]} ", ha=away, va="center", fontsize=8)


def context(place: Occurrence) -> str:
    """
    >>> context(Occurrence(0, "we sat down on the bank of the river and slept", 19, 23))
    '… sat down on the bank of the river and …'
    """
    before, after = place.text[: place.start], place.text[place.end :]
    left = before if len(before) <= CONTEXT_CHARACTERS else "… " + before[-CONTEXT_CHARACTERS:].partition(" ")[2]
    right = after if len(after) <= CONTEXT_CHARACTERS else after[:CONTEXT_CHARACTERS].rpartition(" ")[0] + " …"
    return f"{left}{place.text[place.start : place.end]}{right}"
