"""Figures of results (confusion matrix, calibration, precision–recall, scatter plot) and of a search; saving figures to files.

Figures are created as objects, never through pyplot: no global state, no display, safe in threads and notebooks. They are plotted in
the light theme; `to_dark_theme` replaces its colors. Labels of the user appear only if matplotlib's default font can display them.
"""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.files import write_bytes
from unmask.metrics import finite, metric
from unmask.report.words import spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lines are blue and orange, which are distinguishable with any color vision.
LIGHT = PAGE, INK, FAINT, GRID, BLUE, ORANGE = "#ffffff", "#1f2933", "#5b6773", "#e4e8ec", "#1f6feb", "#d9480f"
DARK = "#161b22", "#e6edf3", "#9aa5b1", "#2b323b", "#58a6ff", "#ff9d5c"
MAX_LINES_PER_PANEL = 6  # more are not distinguishable
STYLES = tuple((color, dash) for dash in ("-", "--", ":") for color in (BLUE, ORANGE))
STATES = (("complete", "o", BLUE), ("pruned", "x", ORANGE))  # states of a search's trials, with marker and color


def save_figure(path: Path, figure: "Figure", page: bool = True) -> dict[str, str]:
    """Save a figure as PNG; for the page, also return it as SVG in both themes. Rendering is slow, so SVG is rendered once."""
    write_bytes(path, _bytes(figure, "png"))
    if not page:
        return {}
    figure.set_layout_engine("none")  # the PNG has already been laid out
    light = _bytes(figure, "svg")
    return {theme: base64.b64encode(svg).decode() for theme, svg in (("light", light), ("dark", to_dark_theme(light)))}


def to_dark_theme(svg: bytes) -> bytes:
    """Replace the colors of the light theme by those of the dark theme.

    >>> to_dark_theme(b"fill: #1f6feb")
    b'fill: #58a6ff'
    """
    dark_by_light = {light.encode(): dark.encode() for light, dark in zip(LIGHT, DARK, strict=True)}
    return re.sub(rb"#[0-9a-f]{6}\b", lambda match: dark_by_light.get(match[0], match[0]), svg)


def _bytes(figure: "Figure", kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def safe_label(name: Any, n: int, noun: str = "label", max_chars: int = 24) -> str:
    """Return `name`, or `noun` and `n` if the font lacks its characters or matplotlib would read a formula in it.

    >>> safe_label("positive", 1), safe_label("好评", 2)
    ('positive', 'label 2')
    """
    text = str(name)
    writable = re.fullmatch(r"[A-Za-z0-9 .+:/-][A-Za-z0-9 ._+:/(),=-]*", text) and len(text) <= max_chars
    return text if writable else f"{noun} {n}"


def detail_figures(details: Mapping[str, Any]) -> "dict[str, Figure]":
    """Plot the details of a split (see `Task.details`)."""
    matrix, points = details.get("confusion") or {}, details.get("scatter") or {}
    plots: dict[str, Figure] = {}
    if matrix.get("labels"):
        plots["confusion"] = confusion(matrix["labels"], matrix["matrix"])
    if (details.get("calibration") or {}).get("bins"):
        plots["calibration"] = calibration(details["calibration"])
    if details.get("pr"):
        plots["pr"] = precision_recall(details["pr"])
    if points.get("truth"):
        plots["scatter"] = scatter(points["truth"], points["predicted"])
    return plots


def confusion(labels: Sequence[Any], matrix: Sequence[Sequence[float]]) -> "Figure":
    """Plot a confusion matrix: rows are true labels, shades are fractions of the row."""
    import numpy as np

    counts = np.asarray(matrix, dtype=float)
    fractions = counts / np.maximum(1, counts.sum(1, keepdims=True))
    size = min(12.0, 3.2 + 0.5 * len(labels))
    page, ax = new_axes((size + 0.8, size), "", "predicted", "true")
    ax.grid(visible=False)
    ax.imshow(fractions, cmap=_shades(), vmin=0, vmax=1)
    names = [safe_label(label, n) for n, label in enumerate(labels, 1)]
    if len(names) <= 40:
        ax.set_xticks(range(len(names)), names, rotation=0 if len(names) < 5 else 60, ha="center")
        ax.set_yticks(range(len(names)), names)
    if len(names) <= 15:
        for (row, column), count in np.ndenumerate(counts):
            color = PAGE if fractions[row, column] > 0.55 else INK
            ax.text(column, row, f"{count:,.0f}", ha="center", va="center", color=color, fontsize=9)
    return page


def calibration(values: Mapping[str, Any]) -> "Figure":
    """Reliability diagram (Guo et al. 1706.04599): accuracy by confidence."""
    page = new_figure((5.6, 5.2))
    top, bottom = page.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    style_axes(top, "", "", "accuracy")
    style_axes(bottom, "", "confidence", "records")
    top.plot([0, 1], [0, 1], color=FAINT, linestyle=(0, (5, 4)), linewidth=1.2, label="perfectly calibrated")
    before = (values.get("before") or {}).get("bins")
    if before:
        top.plot(
            *_points(before), color=ORANGE, linestyle="--", marker="s", markersize=4, label="before temperature scaling"
        )
    bins = [b for b in values.get("bins") or [] if b.get("count")]
    top.plot(*_points(bins), color=BLUE, marker="o", linewidth=2, label="model")
    bottom.bar([b["confidence"] for b in bins], [b["count"] for b in bins], width=0.04, color=BLUE)
    top.set(xlim=(0, 1.01), ylim=(0, 1.02))
    legend(top, "upper left")
    return page


def _points(bins: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    points = [b for b in bins if b.get("count") and finite(b.get("confidence")) and finite(b.get("accuracy"))]
    return [b["confidence"] for b in points], [b["accuracy"] for b in points]


def precision_recall(lines: Sequence[Mapping[str, Any]]) -> "Figure":
    """Plot precision by recall, one line per label."""
    page, ax = new_axes((6.4, 4.8), "", "recall", "precision")
    for n, (line, (color, dash)) in enumerate(zip(lines[:MAX_LINES_PER_PANEL], STYLES), 1):
        label = safe_label(line.get("label"), n)
        ax.plot(line["recall"], line["precision"], color=color, linestyle=dash, linewidth=1.8, label=label)
    ax.set(xlim=(0, 1.01), ylim=(0, 1.03))
    legend(ax, "best")
    return page


def scatter(y_true: Sequence[float], y_pred: Sequence[float]) -> "Figure":
    page, ax = new_axes((5.4, 5.0), "", "true", "predicted")
    ends = [min([*y_true, *y_pred]), max([*y_true, *y_pred])]
    ax.plot(ends, ends, color=FAINT, linestyle=(0, (5, 4)), linewidth=1.2)
    ax.scatter(y_true, y_pred, s=14, color=BLUE, alpha=0.45, linewidths=0)
    return page


# ------------------------------------------------------------------------------------------------------- a search


def search_figures(results: Mapping[str, Any]) -> "dict[str, Figure]":
    """Plot the history of a search, the importance of each hyperparameter, and the score by hyperparameter."""
    trials, score = results["trials"], str(results.get("metric"))
    searched = [key for key in trials[0] if key not in ("trial", "state", "score", "seconds")]
    plots = {"history": history(trials, score)}
    if results.get("importance"):
        plots["importance"] = importance(results["importance"])
    if searched:
        plots["slices"] = slices(trials, searched, score)
    return plots


def history(trials: Sequence[Mapping[str, Any]], score: str) -> "Figure":
    """Plot the score of each trial and the best score so far."""
    from matplotlib.ticker import MaxNLocator

    page, ax = new_axes((7.2, 4.2), "Trials", "trial", safe_label(spaced(score), 1, "score"))
    _trials(ax, trials, "trial", label=True)
    best, steps = None, []
    better = max if metric(score).higher_is_better else min
    for t in trials:
        if t["state"] == "complete" and finite(t["score"]):
            best = t["score"] if best is None else better(best, t["score"])
        steps.append((t["trial"], best))
    points = [(n, value) for n, value in steps if value is not None]
    if points:
        ax.step(*zip(*points), where="post", color=BLUE, alpha=0.6, label="best so far")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(ax, "best")
    return page


def _trials(ax: "Axes", trials: Sequence[Mapping[str, Any]], x: str, label: bool = False) -> None:
    """Plot a point per trial, by one of its settings."""
    for state, marker, color in STATES:
        plotted = [t for t in trials if t["state"] == state and t.get(x) is not None and finite(t["score"])]
        if plotted:
            style = {"s": 26, "label": state, "zorder": 3} if label else {"s": 22}
            ax.scatter([t[x] for t in plotted], [t["score"] for t in plotted], marker=marker, color=color, **style)


def importance(fractions: Mapping[str, float]) -> "Figure":
    size = (7.2, 0.9 + 0.42 * max(2, len(fractions)))
    page, ax = new_axes(size, "Hyperparameter importance", "fraction of variance explained (fANOVA)", "")
    names = list(fractions)[::-1]
    ax.barh(names, [fractions[name] for name in names], color=BLUE, height=0.6)
    ax.tick_params(axis="y", labelcolor=INK)
    return page


def slices(trials: Sequence[Mapping[str, Any]], names: Sequence[str], score: str) -> "Figure":
    """Plot the score by each hyperparameter that was searched."""
    columns = 3
    rows = -(-len(names) // columns)
    page = new_figure((10.5, 3.1 * rows))
    for n, name in enumerate(names, 1):
        ax = page.add_subplot(rows, columns, n)
        style_axes(ax, "", name, safe_label(spaced(score), 1, "score") if n % columns == 1 else "")
        _trials(ax, trials, name)
        if name == "lr":
            ax.set_xscale("log")
    return page


# ----------------------------------------------------------------------------------------------------------- style


def new_figure(size: tuple[float, float], layout: Any = "constrained") -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=size, facecolor=PAGE, layout=layout)


def new_axes(size: tuple[float, float], title: str, x: str, y: str) -> "tuple[Figure, Axes]":
    page = new_figure(size)
    ax = page.add_subplot()
    style_axes(ax, title, x, y)
    return page, ax


def style_axes(ax: "Axes", title: str, x: str, y: str) -> None:
    ax.set_facecolor(PAGE)
    if title:
        ax.set_title(title, loc="left", color=INK, fontsize=11.5, fontweight="bold")
    ax.set_xlabel(x, color=FAINT)
    ax.set_ylabel(y, color=FAINT)
    ax.grid(color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", colors=FAINT, length=0)
    ax.spines[:].set_visible(False)


def legend(ax: "Axes", place: Any, **style: Any) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc=place, frameon=False, labelcolor=INK, **style)


def _shades() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("fractions", [PAGE, BLUE])
