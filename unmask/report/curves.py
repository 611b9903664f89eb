"""Plot the curves of a run in one figure, by step: loss, scores, schedules, gradient norm, speed.

The user's text does not appear in the figure, except plain names: matplotlib's default font has no Chinese characters.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from unmask.metrics import finite
from unmask.report.figures import BLUE, FAINT, INK, ORANGE, PAGE, STYLES, legend, new_figure, safe_label, style_axes
from unmask.report.words import accuracies, mixed_tracks, spaced
from unmask.train.log import fixed_masking_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Events = Sequence[dict[str, Any]]  # lines of log.jsonl

MAX_POINTS_PER_LINE = 2000  # more are not visible, and the SVG of a long run would have tens of megabytes


def plot_pretraining(events: Events, unigram: float | None, total: int | None) -> "Figure":
    """Plot a pre-training run. `unigram` is the unigram entropy in nats, `total` the planned steps; either may be None."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = _Panels(events)
    page = new_figure((13, 7.8), ConstrainedLayoutEngine(rect=(0.01, 0.015, 0.98, 0.915)))
    page.suptitle(panels.title(total), y=0.975, color=INK, fontsize=15, fontweight="bold")
    grid = page.add_gridspec(2, 3, height_ratios=[1.35, 1], wspace=0.06, hspace=0.08)
    panels.loss(page.add_subplot(grid[0, :2]), unigram)
    panels.accuracy(page.add_subplot(grid[0, 2]))
    panels.schedules(page.add_subplot(grid[1, 0]))
    panels.smoothed_panel(page.add_subplot(grid[1, 1]), "Gradient norm", "L2 norm, before clipping", "grad_norm")
    panels.smoothed_panel(page.add_subplot(grid[1, 2]), "Speed", "tokens per second", "tokens_per_second")
    return page


def plot_finetuning(events: Events, scores: Sequence[str], total: int | None) -> "Figure":
    """Plot a fine-tuning run. `scores` are the names of the metrics that were measured on the dev set."""
    panels = _Panels(events)
    page = new_figure((11, 6.6))
    page.suptitle(panels.title(total), color=INK, fontsize=14, fontweight="bold")
    grid = page.add_gridspec(2, 2, height_ratios=[1.4, 1])
    panels.smoothed_panel(page.add_subplot(grid[0, 0]), "Loss", "training, smoothed", "loss")
    panels.scores(page.add_subplot(grid[0, 1]), scores)
    panels.learning_rate(page.add_subplot(grid[1, 0]))
    panels.smoothed_panel(page.add_subplot(grid[1, 1]), "Gradient norm", "L2 norm, before clipping", "grad_norm")
    return page


class _Panels:
    def __init__(self, events: Events):
        self.train = [e for e in events if e.get("event") == "train"]
        self.evals = [e for e in events if e.get("event") == "eval"]
        self.done = max((e["step"] for e in (*self.train, *self.evals) if finite(e.get("step"))), default=0)

    def title(self, total: int | None) -> str:
        return f"{self.done:,} of {total:,} steps" if total else f"{self.done:,} steps"

    def loss(self, ax: "Axes", unigram: float | None) -> None:
        # With NSP the loss is a sum; only its MLM part can be compared with an entropy of tokens.
        term = "mlm" if any("mlm" in e for e in (*self.train, *self.evals)) else "loss"
        title, unit = ("Masked-token loss", "nats per masked token") if term == "mlm" else ("Loss", "nats")
        self._prepare(ax, title, unit)
        steps, values = series(self.train, term)
        if steps:
            ax.plot(*downsample(steps, values), color=BLUE, alpha=0.25, linewidth=0.8)
            ax.plot(*downsample(steps, smooth(values)), color=BLUE, linewidth=2, label="training, smoothed")
        for label, held_steps, held, style in self._validation_curves(term):
            if held:
                ax.plot(held_steps, held, color=ORANGE, label=f"{label} (last {held[-1]:.2f})", **style)
                values = values + held
        if not values:
            return _mark_empty(ax)
        low, high = min(values), max(values)
        if term == "mlm" and finite(unigram):
            low, high = min(low, unigram), max(high, unigram)
            ax.axhline(unigram, color=FAINT, linestyle=(0, (5, 4)), linewidth=1.3)
            label = f"unigram entropy {unigram:.2f} (token frequencies alone)"
            ax.annotate(label, (self.done, unigram), (0, 4), textcoords="offset points", ha="right", color=FAINT)
        room = 0.08 * (high - low or 1)
        ax.set_ylim(low - room, high + room)
        legend(ax, "best")

    def _validation_curves(self, term: str) -> Iterator[tuple[str, list[float], list[float], dict[str, Any]]]:
        """Yield (label, steps, losses, style) for each validation text."""
        steps, losses = series(self.evals, term)
        yield "validation", steps, losses, {"zorder": 4, **_marker("o", losses)}
        fixed = [values | {"step": e.get("step")} for e in self.evals if (values := fixed_masking_values(e))]
        yield "validation, fixed masking", *series(fixed, "mlm"), {"linestyle": ":", "linewidth": 1.5}
        for n, (name, track) in enumerate(mixed_tracks(self.evals).items(), 1):
            steps, losses = series(track, term)
            style = {"linestyle": "--", **_marker("os^Dv"[n % 5], losses)}
            yield f"validation of {safe_label(name, n, 'mixed text', 200)}", steps, losses, style

    def accuracy(self, ax: "Axes") -> None:
        self._prepare(ax, "Validation accuracy", "percent correct")
        for (term, title), color, marker in zip(accuracies(self.evals).items(), (BLUE, ORANGE), "os"):
            steps, values = series(self.evals, f"{term}_accuracy")
            style = {"color": color, "clip_on": False, **_marker(marker, values)}
            ax.plot(steps, [100 * v for v in values], label=title, **style)
        if not ax.has_data():
            return _mark_empty(ax)
        ax.set_ylim(0, min(103, max(10, 1.15 * ax.get_ylim()[1])))
        legend(ax, "best")

    def schedules(self, ax: "Axes") -> None:
        self._prepare(ax, "Schedules", "fraction")
        for key, label, color, dash in (
            ("lr_factor", "learning rate / peak", BLUE, "-"),
            ("mask_rate", "mask rate", ORANGE, "--"),
        ):
            steps, values = series(self.train, key)
            if steps:
                ax.plot(*downsample(steps, values), color=color, linestyle=dash, linewidth=1.8, label=label)
        if not ax.has_data():
            return _mark_empty(ax)
        ax.set_ylim(0, 1.36)  # above 1: row lengths, and the legend over them
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
        for n, (first, last, length) in enumerate(length_phases(self.train)):
            if n:
                ax.axvline(first, ymax=0.82, color=FAINT, linewidth=0.9, linestyle=":")
            label = f"{length:,} tokens per row" if n == 0 else f"{length:,}"
            ax.text((first + last) / 2, 1.05, label, ha="center", color=FAINT, fontsize=8.5)
        legend(ax, "upper center", ncols=2, fontsize=9)

    def smoothed_panel(self, ax: "Axes", title: str, unit: str, key: str) -> None:
        """Plot a value of each step: a light raw line under a smoothed one."""
        self._prepare(ax, title, unit)
        steps, values = series(self.train, key)
        if not steps:
            return _mark_empty(ax)
        smoothed = smooth(values)
        ax.plot(*downsample(steps, values), color=BLUE, alpha=0.25, linewidth=0.8)
        ax.plot(*downsample(steps, smoothed), color=BLUE, linewidth=1.8)
        ax.set_ylim(0, 1.25 * max(smoothed) or 1)  # a lone spike may leave the panel
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")

    def scores(self, ax: "Axes", names: Sequence[str]) -> None:
        self._prepare(ax, "Dev scores", "")
        low, high = 1.0, 0.0
        for n, (name, (color, dash)) in enumerate(zip(names, STYLES), 1):
            steps, values = series(self.evals, name)
            if steps:
                style = {"color": color, "linestyle": dash, "clip_on": False, **_marker("o", values)}
                ax.plot(steps, values, label=safe_label(spaced(name), n, "score"), **style)
                low, high = min(low, *values), max(high, *values)
        if not ax.has_data():
            return _mark_empty(ax)
        room = 0.1 * (high - low or 0.2)
        ax.set_ylim(low - room, high + room)
        legend(ax, "best")

    def learning_rate(self, ax: "Axes") -> None:
        self._prepare(ax, "Learning rate", "fraction of peak")
        ax.plot(*series(self.train, "lr_factor"), color=BLUE, linewidth=1.8)
        ax.set_ylim(0, 1.08)

    def _prepare(self, ax: "Axes", title: str, unit: str) -> None:
        from matplotlib.ticker import MaxNLocator

        style_axes(ax, title, "step", unit)
        width = max(self.done, 1)
        ax.set_xlim(-0.015 * width, 1.015 * width)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _mark_empty(ax: "Axes") -> None:
    ax.set_yticks([])
    ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center", color=FAINT)


def _marker(marker: str, values: Sequence[float]) -> dict[str, Any]:
    """Return the style of point markers; no markers above 40 points, because they would overlap."""
    return {"marker": marker, "markeredgecolor": PAGE} if len(values) <= 40 else {}


def series(events: Events, key: str) -> tuple[list[float], list[float]]:
    """Return the steps and finite values of `key`.

    >>> series([{"step": 1, "loss": 2.0}, {"step": 2, "loss": float("nan")}, {"step": 3}], "loss")
    ([1], [2.0])
    """
    pairs = [(e["step"], e[key]) for e in events if finite(e.get("step")) and finite(e.get(key))]
    return [step for step, _ in pairs], [value for _, value in pairs]


def length_phases(train: Events) -> list[tuple[float, float, int]]:
    """Return (first step, last step, row length) for each phase with the same row length.

    >>> length_phases([{"step": 1, "length": 64}, {"step": 2, "length": 64}, {"step": 3, "length": 128}])
    [(1, 2, 64), (3, 3, 128)]
    """
    out: list[tuple[float, float, int]] = []
    for step, length in zip(*series(train, "length")):
        if out and out[-1][2] == length:
            out[-1] = (out[-1][0], step, out[-1][2])
        else:
            out.append((step, step, int(length)))
    return out


def smooth(values: Sequence[float]) -> list[float]:
    """Return the moving average, over a window of 4% of the run.

    At the start, where losses are steep, the window shrinks on both sides, so that the line starts at the first value.
    At the end it shrinks only on the right, so that the noise of the last step does not look like a trend.

    >>> smooth([1.0, 2.0, 6.0])
    [1.0, 3.0, 4.0]
    """
    import numpy as np

    n = np.arange(len(values))
    reach = np.minimum(max(1, len(values) // 50), n)
    end, sums = np.minimum(n + reach + 1, len(values)), np.cumsum([0.0, *values])
    return ((sums[end] - sums[n - reach]) / (end - n + reach)).tolist()


def downsample(steps: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return at most `MAX_POINTS_PER_LINE` evenly spaced points, including the last one.

    >>> [len(x) for x in downsample(range(9999), range(9999))]
    [1668, 1668]
    """
    every = max(1, math.ceil(len(steps) / (MAX_POINTS_PER_LINE - 1)))
    kept = sorted({*range(0, len(steps), every), len(steps) - 1})
    return [steps[i] for i in kept], [values[i] for i in kept]
