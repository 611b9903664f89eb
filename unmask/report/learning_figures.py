"""Figures of a `learn` run: the score of each step with its interval, and the learning curve."""

from typing import TYPE_CHECKING, Any

from unmask.metrics import finite, metric
from unmask.report.figures import BLUE, FAINT, INK, ORANGE, legend, new_axes, safe_label
from unmask.report.learning import clean, score
from unmask.report.words import spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_NAME_CHARS = 48


def plot(results: dict[str, Any]) -> "dict[str, Figure]":
    r = clean(results)
    plots: dict[str, Figure] = {}
    if len(r["steps"]) > 1:
        plots["steps"] = plot_steps(r)
    if len(r["curve"]["points"]) + len(r["curve"]["predicted"]) > 1:
        plots["learning_curve"] = plot_curve(r)
    return plots


def plot_steps(r: dict[str, Any]) -> "Figure":
    """Plot a dot with an interval per step, from the first at the top to the final model; cross-validated scores are hollow."""
    steps = r["steps"]
    page, ax = new_axes((8.6, 1.1 + 0.46 * len(steps)), "", spaced(r["metric"]), "")
    for n, row in enumerate(steps):
        color = BLUE if n == len(steps) - 1 else FAINT
        hollow = row.get("split") == "cross-validation"
        if finite(row.get("low")) and finite(row.get("high")):
            ax.plot([row["low"], row["high"]], [n, n], color=color, linewidth=2.4, alpha=0.55, solid_capstyle="round")
        ax.plot(row["score"], n, "o", markersize=8, color=color, markerfacecolor="#ffffff" if hollow else color)
        right = max(row["score"], row["high"] if finite(row.get("high")) else row["score"])
        style: dict[str, Any] = {"fontweight": "bold"} if n == len(steps) - 1 else {}
        ax.annotate(
            score(r, row), (right, n), (8, 0), textcoords="offset points", va="center", color=INK, fontsize=10, **style
        )
    names = [safe_label(row["name"], n, "step", MAX_NAME_CHARS) for n, row in enumerate(steps, 1)]
    ax.set_yticks(range(len(steps)), names)
    ax.tick_params(axis="y", labelcolor=INK, labelsize=10)
    ax.get_yticklabels()[-1].set_fontweight("bold")
    ax.grid(visible=False, axis="y")
    ax.set_ylim(len(steps) - 0.4, -0.6)
    left, right = ax.get_xlim()
    ax.set_xlim(left, right + 0.1 * (right - left))  # room for the last number
    _percent(ax, "x", r["metric"])
    return page


def plot_curve(r: dict[str, Any]) -> "Figure":
    """Plot the measured scores by number of labels, and the prediction with its interval."""
    curve = r["curve"]
    r = r | {"metric": curve["metric"]}
    page, ax = new_axes((8.6, 4.2), "", "labels", spaced(r["metric"]))
    level = f"{curve['level']:.0%} interval"
    if curve["fitted"]:
        x, middle, low, high = ([row[key] for row in curve["fitted"]] for key in ("labels", "score", "low", "high"))
        ax.fill_between(x, low, high, color=ORANGE, alpha=0.14, linewidth=0, label=level)
        ax.plot(x, middle, color=ORANGE, linewidth=1.6, linestyle="--")
    points = curve["points"]
    if points:
        x, y = [row["labels"] for row in points], [row["score"] for row in points]
        sd = [row["sd"] if finite(row.get("sd")) else 0.0 for row in points]
        style: dict[str, Any] = {"color": BLUE, "markersize": 6, "capsize": 3, "elinewidth": 1.2}
        ax.errorbar(x, y, sd, fmt="o-" if not curve["fitted"] else "o", label="measured (± sd)", **style)
    for n, row in enumerate(curve["predicted"]):
        low, high = (row[key] if finite(row.get(key)) else row["score"] for key in ("low", "high"))
        error = [[row["score"] - low], [high - row["score"]]]
        label = ("predicted" if curve["fitted"] else f"predicted, {level}") if n == 0 else None
        ax.errorbar([row["labels"]], [row["score"]], error, fmt="D", color=ORANGE, markersize=6, capsize=3, label=label)
        ax.annotate(score(r, row), (row["labels"], row["score"]), (9, -4), textcoords="offset points", color=INK)
    ax.set_xscale("log")
    ticks = sorted({row["labels"] for row in [*points, *curve["predicted"]]})
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.margins(x=0.1)
    _percent(ax, "y", r["metric"])
    legend(ax, "lower right")
    return page


def _percent(ax: "Axes", which: str, name: str) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if metric(name).percent:
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0 if high - low > 0.05 else 1))
