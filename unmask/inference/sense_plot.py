"""Scatter plot of a word's vectors, and metrics of how well they separate its senses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.inference.answers import Occurrence, WordVectors
from unmask.numeric import l2_normalize

CONTEXT_CHARACTERS = 18  # on either side of the word
FONTS = ("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei")  # for Chinese


def project_2d(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project (N, D) to (N, 2) by PCA. Return the points, and the fraction of the variance of each component (2,).

    >>> points, explained = project_2d(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [4.0, 0.0, 1.0]]))
    >>> np.abs(points[:, 0]).round(3).tolist(), explained.round(3).tolist()
    ([2.0, 0.0, 2.0], [1.0, 0.0])
    """
    centered = vectors - vectors.mean(0)
    u, s, _ = np.linalg.svd(centered.astype(np.float64), full_matrices=False)
    explained = s**2 / max(float((s**2).sum()), 1e-12)
    return np.pad(u * s, [(0, 0), (0, 2)])[:, :2], np.pad(explained, (0, 2))[:2]  # one vector has only one component


def sense_separation(vectors: np.ndarray, senses: Sequence[str]) -> dict[str, float]:
    """Return, by cosine distance, the fraction of vectors whose nearest neighbor has the same sense, and the silhouette (−1 to 1).

    >>> sense_separation(np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]), ["a", "a", "b", "b"])["nearest"]
    1.0
    """
    distances = 1.0 - l2_normalize(vectors) @ l2_normalize(vectors).T  # (N, N)
    labels = np.array(senses)
    silhouettes = []
    for i, label in enumerate(labels):
        same = distances[i][(labels == label) & (np.arange(len(labels)) != i)]
        others = [distances[i][labels == other].mean() for other in set(senses) - {label}]
        if len(same) and others:
            inner, outer = same.mean(), min(others)
            silhouettes.append((outer - inner) / max(inner, outer, 1e-12))
    neighbors = (distances + np.eye(len(labels)) * 9).argmin(1)  # the diagonal is larger than any cosine distance
    nearest = float((labels[neighbors] == labels).mean())
    return {"nearest": nearest, "silhouette": float(np.mean(silhouettes)) if silhouettes else 0.0}


def plot_occurrences(occurrences: WordVectors, senses: Sequence[str], path: str | Path) -> None:
    """Plot the occurrences of a word with their contexts, colored by sense if given."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    fonts = ["DejaVu Sans", *(name for name in FONTS if name in installed)]
    points, explained = project_2d(occurrences.vectors)
    with plt.rc_context({"font.family": fonts, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(figsize=(9, 5.6), layout="constrained")
        labels = list(dict.fromkeys(senses)) or [""]
        for number, label in enumerate(labels):
            group = points[[not senses or senses[n] == label for n in range(len(points))]]
            axes.scatter(group[:, 0], group[:, 1], s=46, color=f"C{number}", label=label or None, zorder=3)
        _annotate(axes, points, [context(occurrence) for occurrence in occurrences.occurrences])
        layer = "output of the encoder" if occurrences.layer == -1 else f"layer {occurrences.layer}"
        title = f"“{occurrences.word}”, {layer}"
        if senses:
            metrics = sense_separation(occurrences.vectors, senses)
            title += (
                f": nearest neighbor of the same sense {metrics['nearest']:.0%}, silhouette {metrics['silhouette']:.2f}"
            )
            axes.legend(frameon=False, loc="upper center", ncols=len(labels))
        axes.set_title(title, fontsize=11, loc="left")
        axes.set_xlabel(f"PC 1 ({explained[0]:.0%} of the variance)")
        axes.set_ylabel(f"PC 2 ({explained[1]:.0%})")
        axes.set_xticks([])
        axes.set_yticks([])
        figure.savefig(path, dpi=130)
        plt.close(figure)


def _annotate(axes: Any, points: np.ndarray, texts: Sequence[str]) -> None:
    """Write the text of each point in a column on the left or right, with a line to the point, so that texts do not overlap."""
    low, high = points.min(0), points.max(0)
    width, height = np.maximum(high - low, 1e-9)
    axes.set_xlim(low[0] - 0.75 * width, high[0] + 0.75 * width)
    axes.set_ylim(low[1] - 0.1 * height, high[1] + 0.2 * height)
    order = np.argsort(points[:, 0], kind="stable")
    half = len(points) // 2
    for column, x, alignment in (
        (order[:half], low[0] - 0.1 * width, "right"),
        (order[half:], high[0] + 0.1 * width, "left"),
    ):
        heights = np.linspace(low[1], high[1], max(len(column), 2))
        for n, y in zip(column[np.argsort(points[column, 1], kind="stable")], heights):
            axes.plot([points[n, 0], x], [points[n, 1], y], color="0.8", linewidth=0.7, zorder=1)
            axes.text(x, y, f" {texts[n]} ", ha=alignment, va="center", fontsize=8)


def context(occurrence: Occurrence) -> str:
    """Return the word with the text around it, shortened to whole words.

    >>> context(Occurrence(0, "we sat down on the bank of the river and slept", 19, 23))
    '… sat down on the bank of the river and …'
    """
    text, start, end = occurrence.text, occurrence.start, occurrence.end
    before, after = text[:start], text[end:]
    left = before if len(before) <= CONTEXT_CHARACTERS else "… " + before[-CONTEXT_CHARACTERS:].partition(" ")[2]
    right = after if len(after) <= CONTEXT_CHARACTERS else after[:CONTEXT_CHARACTERS].rpartition(" ")[0] + " …"
    return f"{left}{text[start:end]}{right}"
