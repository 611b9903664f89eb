"""Figures of a fine-tuned model: curves, confusion, calibration, precision–recall, numbers; and those of a search.

Drawn in the light theme, whose colours the page's dark one replaces. As in `curves`, figures are objects, and a user's words go into them only when matplotlib's own font can write them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unmask.report.curves import THEMES, Events, _Panels, finite, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 6  # lines in one panel: more are not told apart
STYLES = tuple((color, dash) for dash in ("-", "--", ":") for color in ("blue", "orange"))


def plain(name: Any, n: int, what: str = "label") -> str:
    """A name that the font has letters for, and in which nothing begins a formula.

    >>> plain("positive", 1), plain("好评", 2)
    ('positive', 'label 2')
    """
    text = str(name)
    return text if re.fullmatch(r"[A-Za-z0-9 ._+:/-]{1,24}", text) and not text.startswith("_") else f"{what} {n}"


def curves(events: Events, metrics: Sequence[str], total: int | None) -> "Figure":
    """Loss, scores on the dev set, learning rate and gradient norm by step."""
    panels = _Panels(events, None, THEMES["light"])
    page = _page((11, 6.6))
    title = f"{panels.done:,} of {total:,} steps" if total else f"{panels.done:,} steps"
    page.suptitle(title, color=panels.colors["ink"], fontsize=14, fontweight="bold")
    grid = page.add_gridspec(2, 2, height_ratios=[1.4, 1])
    panels.noisy(page.add_subplot(grid[0, 0]), "Loss", "training, smoothed", "loss")
    _scores(panels, page.add_subplot(grid[0, 1]), metrics)
    ax = page.add_subplot(grid[1, 0])
    panels._prepare(ax, "Learning rate", "share of the peak")
    ax.plot(*series(panels.train, "lr_factor"), color=panels.colors["blue"], linewidth=1.8)
    ax.set_ylim(0, 1.08)
    panels.noisy(page.add_subplot(grid[1, 1]), "Gradient norm", "L2 norm, before clipping", "grad_norm")
    return page


def _scores(panels: _Panels, ax: "Axes", metrics: Sequence[str]) -> None:
    panels._prepare(ax, "Scores on the dev set", "")
    low, high = 1.0, 0.0
    for n, (name, (color, dash)) in enumerate(zip(metrics, STYLES), 1):
        steps, values = series(panels.evals, name)
        if steps:
            style = {"color": panels.colors[color], "linestyle": dash, **panels._marker("o", values)}
            ax.plot(steps, values, label=plain(name.replace("_", " "), n, "score"), clip_on=False, **style)
            low, high = min(low, *values), max(high, *values)
    if not ax.has_data():
        return panels._nothing(ax)
    room = 0.1 * (high - low or 0.2)
    ax.set_ylim(low - room, high + room)
    panels._legend(ax, "best")


def confusion(labels: Sequence[Any], matrix: Sequence[Sequence[float]]) -> "Figure":
    """Rows are the truth; shades are shares of a row."""
    import numpy as np

    colors, counts = THEMES["light"], np.asarray(matrix, dtype=float)
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    size = min(12.0, 3.2 + 0.5 * len(labels))
    page = _page((size + 0.8, size))
    ax = page.add_subplot()
    _frame(ax, colors, "", "predicted", "truth")
    ax.grid(visible=False)
    ax.imshow(shares, cmap=_shades(colors), vmin=0, vmax=1)
    names = [plain(label, n) for n, label in enumerate(labels, 1)]
    if len(names) <= 40:
        ax.set_xticks(range(len(names)), names, rotation=0 if len(names) < 5 else 60, ha="center")
        ax.set_yticks(range(len(names)), names)
    if len(names) <= 15:
        for (row, column), count in np.ndenumerate(counts):
            strong = shares[row, column] > 0.55
            color = colors["page"] if strong else colors["ink"]
            ax.text(column, row, f"{count:,.0f}", ha="center", va="center", color=color, fontsize=9)
    return page


def calibration(values: Mapping[str, Any]) -> "Figure":
    """Reliability diagram (Guo et al. 1706.04599): how often the model is right when it says that it is so sure."""
    colors = THEMES["light"]
    page = _page((5.6, 5.2))
    top, bottom = page.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    _frame(top, colors, "", "", "share that is right")
    _frame(bottom, colors, "", "probability of the answer", "records")
    top.plot([0, 1], [0, 1], color=colors["faint"], linestyle=(0, (5, 4)), linewidth=1.2, label="perfect")
    before = (values.get("before") or {}).get("bins")
    if before:
        top.plot(*_points(before), color=colors["orange"], linestyle="--", marker="s", markersize=4, label="untuned")
    bins = [b for b in values.get("bins") or [] if b.get("count")]
    top.plot(*_points(bins), color=colors["blue"], marker="o", linewidth=2, label="the model")
    bottom.bar([b["confidence"] for b in bins], [b["count"] for b in bins], width=0.04, color=colors["blue"])
    top.set(xlim=(0, 1.01), ylim=(0, 1.02))
    _legend(top, colors, "upper left")
    return page


def _points(bins: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    kept = [b for b in bins if b.get("count") and finite(b.get("confidence")) and finite(b.get("accuracy"))]
    return [b["confidence"] for b in kept], [b["accuracy"] for b in kept]


def pr(lines: Sequence[Mapping[str, Any]]) -> "Figure":
    """Precision by recall, a line per label."""
    colors = THEMES["light"]
    page = _page((6.4, 4.8))
    ax = page.add_subplot()
    _frame(ax, colors, "", "recall", "precision")
    for n, (line, (color, dash)) in enumerate(zip(lines[:SHOWN], STYLES), 1):
        label = plain(line.get("label"), n)
        ax.plot(line["recall"], line["precision"], color=colors[color], linestyle=dash, linewidth=1.8, label=label)
    ax.set(xlim=(0, 1.01), ylim=(0, 1.03))
    _legend(ax, colors, "best")
    return page


def scatter(truth: Sequence[float], predicted: Sequence[float]) -> "Figure":
    colors = THEMES["light"]
    page = _page((5.4, 5.0))
    ax = page.add_subplot()
    _frame(ax, colors, "", "truth", "predicted")
    ends = [min([*truth, *predicted]), max([*truth, *predicted])]
    ax.plot(ends, ends, color=colors["faint"], linestyle=(0, (5, 4)), linewidth=1.2)
    ax.scatter(truth, predicted, s=14, color=colors["blue"], alpha=0.45, linewidths=0)
    return page


# ------------------------------------------------------------------------------------------------------- a search


def history(trials: Sequence[Mapping[str, Any]], metric: str) -> "Figure":
    """The score of each trial, and the best so far."""
    from matplotlib.ticker import MaxNLocator

    colors = THEMES["light"]
    page = _page((7.2, 4.2))
    ax = page.add_subplot()
    _frame(ax, colors, "Trials", "trial", plain(metric.replace("_", " "), 1, "score"))
    for state, marker, color in (("complete", "o", "blue"), ("pruned", "x", "orange")):
        found = [(t["trial"], t["score"]) for t in trials if t["state"] == state and finite(t["score"])]
        if found:
            x, y = zip(*found)
            ax.scatter(x, y, marker=marker, color=colors[color], s=26, label=state, zorder=3)
    best, steps = None, []
    for t in trials:
        if t["state"] == "complete" and finite(t["score"]):
            best = t["score"] if best is None else max(best, t["score"])
        steps.append((t["trial"], best))
    kept = [(n, value) for n, value in steps if value is not None]
    if kept:
        ax.step(*zip(*kept), where="post", color=colors["blue"], alpha=0.6, label="best so far")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(ax, colors, "best")
    return page


def importance(shares: Mapping[str, float]) -> "Figure":
    colors = THEMES["light"]
    page = _page((7.2, 0.9 + 0.42 * max(2, len(shares))))
    ax = page.add_subplot()
    _frame(ax, colors, "What mattered", "share of the variance explained (fANOVA)", "")
    names = list(shares)[::-1]
    ax.barh(names, [shares[name] for name in names], color=colors["blue"], height=0.6)
    ax.tick_params(axis="y", labelcolor=colors["ink"])
    return page


def slices(trials: Sequence[Mapping[str, Any]], names: Sequence[str], metric: str) -> "Figure":
    """The score by each setting that was searched."""
    colors, columns = THEMES["light"], 3
    rows = -(-len(names) // columns)
    page = _page((10.5, 3.1 * rows))
    done = [t for t in trials if finite(t["score"])]
    for n, name in enumerate(names, 1):
        ax = page.add_subplot(rows, columns, n)
        _frame(ax, colors, "", name, plain(metric.replace("_", " "), 1, "score") if n % columns == 1 else "")
        for state, marker, color in (("complete", "o", "blue"), ("pruned", "x", "orange")):
            found = [(t[name], t["score"]) for t in done if t["state"] == state and t.get(name) is not None]
            if found:
                x, y = zip(*found)
                ax.scatter(x, y, s=22, marker=marker, color=colors[color])
        if name == "lr":
            ax.set_xscale("log")
    return page


# -------------------------------------------------------------------------------------------------------- dressing


def _page(size: tuple[float, float]) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=size, facecolor=THEMES["light"]["page"], layout="constrained")


def _frame(ax: "Axes", colors: Mapping[str, str], title: str, x: str, y: str) -> None:
    ax.set_facecolor(colors["page"])
    if title:
        ax.set_title(title, loc="left", color=colors["ink"], fontsize=11.5, fontweight="bold")
    ax.set_xlabel(x, color=colors["faint"])
    ax.set_ylabel(y, color=colors["faint"])
    ax.grid(color=colors["grid"], linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", colors=colors["faint"], length=0)
    ax.spines[:].set_visible(False)


def _legend(ax: "Axes", colors: Mapping[str, str], place: Any) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc=place, frameon=False, labelcolor=colors["ink"])


def _shades(colors: Mapping[str, str]) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shares", [colors["page"], colors["blue"]])
