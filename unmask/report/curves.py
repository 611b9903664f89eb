"""The curves of a run in one figure: loss, accuracy, schedules, gradient norm, speed.

Figures are made as objects, never through pyplot: no global state, no display, safe in threads and notebooks.
No text of the user's goes into them, only numbers and fixed words: matplotlib's own font has no Chinese.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from unmask.train.log import fixed_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Events = Sequence[dict[str, Any]]  # lines of log.jsonl

POINTS = 2000  # drawn per line, at most: more is not seen, and makes the SVG of a long run tens of megabytes

# Lines are blue and orange, which are told apart with any colour vision.
COLORS = ("page", "ink", "faint", "grid", "blue", "orange")
THEMES = {
    "light": dict(zip(COLORS, ("#ffffff", "#1f2933", "#5b6773", "#e4e8ec", "#1f6feb", "#d9480f"))),
    "dark": dict(zip(COLORS, ("#161b22", "#e6edf3", "#9aa5b1", "#2b323b", "#58a6ff", "#ff9d5c"))),
}


def figure(events: Events, unigram: float | None, total: int | None, theme: str = "light") -> "Figure":
    """`unigram`: entropy of the text in nats; `total`: steps planned; either may be unknown."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = _Panels(events, unigram, THEMES[theme])
    layout = ConstrainedLayoutEngine(rect=(0.01, 0.015, 0.98, 0.915))
    page = Figure(figsize=(13, 7.8), facecolor=panels.colors["page"], layout=layout)
    title = f"{panels.done:,} of {total:,} steps" if total else f"{panels.done:,} steps"
    page.suptitle(title, y=0.975, color=panels.colors["ink"], fontsize=15, fontweight="bold")
    grid = page.add_gridspec(2, 3, height_ratios=[1.35, 1], wspace=0.06, hspace=0.08)
    panels.loss(page.add_subplot(grid[0, :2]))
    panels.accuracy(page.add_subplot(grid[0, 2]))
    panels.schedules(page.add_subplot(grid[1, 0]))
    panels.noisy(page.add_subplot(grid[1, 1]), "Gradient norm", "L2 norm, before clipping", "grad_norm")
    panels.noisy(page.add_subplot(grid[1, 2]), "Speed", "tokens per second", "tokens_per_second")
    return page


class _Panels:
    def __init__(self, events: Events, unigram: float | None, colors: dict[str, str]):
        self.train = [e for e in events if e.get("event") == "train"]
        self.evals = [e for e in events if e.get("event") == "eval"]
        self.unigram, self.colors = unigram, colors
        self.done = max((e["step"] for e in (*self.train, *self.evals) if finite(e.get("step"))), default=0)

    def loss(self, ax: "Axes") -> None:
        # With NSP the loss is a sum; only its MLM part can be compared with an entropy of tokens.
        term = "mlm" if any("mlm" in e for e in (*self.train, *self.evals)) else "loss"
        title, unit = ("Masked-token loss", "nats per masked token") if term == "mlm" else ("Loss", "nats")
        self._prepare(ax, title, unit)
        steps, values = series(self.train, term)
        held_steps, held = series(self.evals, term)
        if not steps and not held_steps:
            return self._nothing(ax)
        blue, orange, faint = self.colors["blue"], self.colors["orange"], self.colors["faint"]
        if steps:
            ax.plot(*thin(steps, values), color=blue, alpha=0.25, linewidth=0.8)
            ax.plot(*thin(steps, smooth(values)), color=blue, linewidth=2, label="training, smoothed")
        if held_steps:
            label = f"held-out (last {held[-1]:.2f})"
            ax.plot(held_steps, held, color=orange, label=label, zorder=4, **self._marker("o", held))
        fixed_steps, fixed = series(
            [found | {"step": e.get("step")} for e in self.evals if (found := fixed_of(e))], "mlm"
        )
        if fixed_steps:
            label = f"held-out, fixed masking (last {fixed[-1]:.2f})"
            ax.plot(fixed_steps, fixed, color=orange, linestyle=":", linewidth=1.5, label=label)
            held = held + fixed
        for n, (name, track) in enumerate(mixed_tracks(self.evals).items(), 1):
            mixed_steps, mixed = series(track, term)
            if mixed:  # only plain names: the font has few letters, and $ begins a formula
                plain = name if re.fullmatch(r"[A-Za-z0-9 ._-]+", name) else f"mixed text {n}"
                label = f"held-out of {plain} (last {mixed[-1]:.2f})"
                ax.plot(
                    mixed_steps, mixed, color=orange, linestyle="--", label=label, **self._marker("os^Dv"[n % 5], mixed)
                )
                held = held + mixed
        low, high = min(values + held), max(values + held)
        if term == "mlm" and finite(self.unigram):
            low, high = min(low, self.unigram), max(high, self.unigram)
            ax.axhline(self.unigram, color=faint, linestyle=(0, (5, 4)), linewidth=1.3)
            label = f"unigram entropy {self.unigram:.2f} (token frequencies alone)"
            ax.annotate(label, (self.done, self.unigram), (0, 4), textcoords="offset points", ha="right", color=faint)
        room = 0.08 * (high - low or 1)
        ax.set_ylim(low - room, high + room)
        self._legend(ax, "best")

    def accuracy(self, ax: "Axes") -> None:
        self._prepare(ax, "Held-out accuracy", "per cent correct")
        colors = (self.colors["blue"], self.colors["orange"])
        for name, color, marker in zip(accuracies(self.evals), colors, "os"):
            steps, values = series(self.evals, f"{name}_accuracy")
            percent = [100 * v for v in values]
            ax.plot(
                steps,
                percent,
                color=color,
                label=term_name(name),
                clip_on=False,
                **self._marker(marker, values),
            )
        if not ax.has_data():
            return self._nothing(ax)
        ax.set_ylim(0, min(103, max(10, 1.15 * ax.get_ylim()[1])))
        self._legend(ax, "best")

    def schedules(self, ax: "Axes") -> None:
        self._prepare(ax, "Schedules", "share")
        for key, label, color, dash in (
            ("lr_factor", "learning rate / peak", self.colors["blue"], "-"),
            ("mask_rate", "mask rate", self.colors["orange"], "--"),
        ):
            steps, values = series(self.train, key)
            if steps:
                ax.plot(*thin(steps, values), color=color, linestyle=dash, linewidth=1.8, label=label)
        if not ax.has_data():
            return self._nothing(ax)
        ax.set_ylim(0, 1.36)  # above 1: row lengths, and the legend over them
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
        faint = self.colors["faint"]
        for n, (first, last, length) in enumerate(stretches(self.train)):
            if n:
                ax.axvline(first, ymax=0.82, color=faint, linewidth=0.9, linestyle=":")
            label = f"{length:,} tokens a row" if n == 0 else f"{length:,}"
            ax.text((first + last) / 2, 1.05, label, ha="center", color=faint, fontsize=8.5)
        self._legend(ax, "upper center", ncols=2, fontsize=9)

    def noisy(self, ax: "Axes", title: str, unit: str, key: str) -> None:
        """A quantity of each step: the raw line, light, under the smoothed one."""
        self._prepare(ax, title, unit)
        steps, values = series(self.train, key)
        if not steps:
            return self._nothing(ax)
        smoothed = smooth(values)
        ax.plot(*thin(steps, values), color=self.colors["blue"], alpha=0.25, linewidth=0.8)
        ax.plot(*thin(steps, smoothed), color=self.colors["blue"], linewidth=1.8)
        ax.set_ylim(0, 1.25 * max(smoothed) or 1)  # a lone spike may leave the panel
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")

    def _prepare(self, ax: "Axes", title: str, unit: str) -> None:
        from matplotlib.ticker import MaxNLocator

        ax.set_facecolor(self.colors["page"])
        ax.set_title(title, loc="left", color=self.colors["ink"], fontsize=11.5, fontweight="bold")
        ax.set_xlabel("step", color=self.colors["faint"])
        ax.set_ylabel(unit, color=self.colors["faint"])
        width = max(self.done, 1)
        ax.set_xlim(-0.015 * width, 1.015 * width)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.grid(color=self.colors["grid"], linewidth=0.8)
        ax.set_axisbelow(True)
        ax.tick_params(colors=self.colors["faint"], length=0)
        ax.spines[:].set_visible(False)

    def _nothing(self, ax: "Axes") -> None:
        ax.set_yticks([])
        ax.text(0.5, 0.5, "nothing logged", transform=ax.transAxes, ha="center", color=self.colors["faint"])

    def _marker(self, marker: str, values: Sequence[float]) -> dict[str, Any]:
        """Points are marked as long as the marks stay apart."""
        return {"marker": marker, "markeredgecolor": self.colors["page"]} if len(values) <= 40 else {}

    def _legend(self, ax: "Axes", place: Any, **style: Any) -> None:
        ax.legend(loc=place, frameon=False, labelcolor=self.colors["ink"], **style)


def finite(value: Any) -> TypeGuard[float]:
    """A number, and neither NaN nor infinite: what can be drawn, and what JSON can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def series(events: Events, key: str) -> tuple[list[float], list[float]]:
    """Steps and finite values of `key`.

    >>> series([{"step": 1, "loss": 2.0}, {"step": 2, "loss": float("nan")}, {"step": 3}], "loss")
    ([1], [2.0])
    """
    pairs = [(e["step"], e[key]) for e in events if finite(e.get("step")) and finite(e.get(key))]
    return [step for step, _ in pairs], [value for _, value in pairs]


def mixed_tracks(evals: Events) -> dict[str, list[dict[str, Any]]]:
    """Held-out values of mixed texts, by name, each like an evaluation of its own.

    >>> mixed_tracks([{"step": 5, "loss": 3.0, "heldout[news]": {"loss": 2.0}}])
    {'news': [{'step': 5, 'loss': 2.0}]}
    """
    out: dict[str, list[dict[str, Any]]] = {}
    for e in evals:
        for key, values in e.items():
            if key.startswith("heldout[") and isinstance(values, dict) and finite(values.get("loss")):
                out.setdefault(key[8:-1], []).append({"step": e.get("step"), **values})
    return out


def accuracies(evals: Events) -> list[str]:
    """The terms that held-out accuracies were measured for.

    >>> accuracies([{"mlm_accuracy": 0.2, "nsp_accuracy": 0.5, "loss": 3.0}])
    ['mlm', 'nsp']
    """
    keys = {key for e in evals for key in e if key.endswith("_accuracy") and finite(e[key])}
    return sorted(key.removesuffix("_accuracy") for key in keys)


def term_name(term: str) -> str:
    return term.upper() if len(term) == 3 else term  # mlm, nsp, sop, rtd are abbreviations; classify is a word


def stretches(train: Events) -> list[tuple[float, float, int]]:
    """(first step, last step, row length) of each stretch of equal length.

    >>> stretches([{"step": 1, "length": 64}, {"step": 2, "length": 64}, {"step": 3, "length": 128}])
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
    """Mean over a window, a 25th of the run wide, around each value.

    At the start, where losses are steep, the window shrinks on both sides, so that the line begins where the
    values do; at the end on the right only, so that the last step's noise does not look like a trend.

    >>> smooth([1.0, 2.0, 6.0])
    [1.0, 3.0, 4.0]
    """
    reach = max(1, len(values) // 50)
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    out = []
    for i in range(len(values)):
        r = min(reach, i)
        end = min(i + r + 1, len(values))
        out.append((sums[end] - sums[i - r]) / (end - i + r))
    return out


def thin(steps: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """At most `POINTS` points, evenly spaced, the last one among them.

    >>> [len(x) for x in thin(range(9999), range(9999))]
    [1668, 1668]
    """
    every = max(1, math.ceil(len(steps) / (POINTS - 1)))
    kept = sorted({*range(0, len(steps), every), len(steps) - 1})
    return [steps[i] for i in kept], [values[i] for i in kept]
