"""Terminal output of explain, attention and minimal pairs."""

from __future__ import annotations

import numpy as np
from rich.console import ConsoleRenderable
from rich.table import Table
from rich.text import Text

from unmask.cli.show.render import Bars, Lines, Stack, percent, token_text
from unmask.errors import UserError
from unmask.inference.answers import AccuracyInterval, Attention, Attribution, Explanation, MinimalPairs

MAX_ATTENDED = 4  # attended tokens shown per token
# Minimum |score| relative to the largest, and the style of a token that raises or lowers the target.
STYLES = ((0.6, "black on bright_green", "white on red"), (0.25, "green", "red"))


def explanation_lines(found: Explanation) -> Stack:
    """Show the tokens colored by their score, then the strongest as bars. Without colors, scores are printed as numbers."""
    largest = max((abs(t.score) for t in found.tokens), default=0.0) or 1.0
    colored, plain = Text(), []
    for t in found.tokens:
        colored.append(token_text(t.token).replace("␣", ""), style=_color(t, largest)).append(" ")
        plain.append(f"{token_text(t.token)}({t.score:+.2f})")
    strongest = sorted(found.tokens, key=lambda t: -abs(t.score))[:10]
    rows = [(token_text(t.token), abs(t.score) / largest, f"{t.score:+.3f}", "") for t in strongest]
    title = f"{found.target}: {found.value:.3f}; baseline with every word masked: {found.baseline:.3f}"
    method = f"{found.method}; completeness error {found.delta:+.3f}"
    return Stack(
        [Text(title, style="bold"), Lines([colored], [" ".join(plain)]), Bars(rows), Text(method, style="dim")]
    )


def _color(token: Attribution, largest: float) -> str:
    for minimum, raises, lowers in STYLES:
        if abs(token.score) >= minimum * largest:
            return raises if token.score > 0 else lowers
    return "dim" if token.start == token.end else ""


def attention_table(found: Attention, layer: int | None, head: int | None) -> Stack:
    """Show the tokens that each token attends to most. Layers and heads are counted from 1."""
    layers, heads = found.weights.shape[:2]
    for name, index, count in (("layer", layer, layers), ("head", head, heads)):
        if index is not None and not 1 <= index <= count:
            raise UserError(f"{name} {index} does not exist", expected=f"1 to {count}")
    weights = found.weights[(layer or layers) - 1]  # (heads, T, T)
    weights = weights.mean(0) if head is None else weights[head - 1]
    table = Table.grid(padding=(0, 2, 0, 0))
    plain = []
    names = [token_text(t.token) for t in found.tokens]
    for name, row in zip(names, weights):
        attended = [(names[i], float(row[i])) for i in np.argsort(-row, kind="stable")[:MAX_ATTENDED]]
        cells = [
            Text(f"{other} {percent(weight)}", style="bold" if weight >= 0.3 else "") for other, weight in attended
        ]
        table.add_row(Text(name, style="cyan"), Text("→", style="dim"), *cells)
        plain.append(f"{name}\t→\t" + "\t".join(f"{other} {percent(weight)}" for other, weight in attended))
    which = f"layer {layer or layers} of {layers}, " + (
        f"mean of {heads} heads" if head is None else f"head {head} of {heads}"
    )
    return Stack([Text(which, style="dim"), Lines([table], plain)])


def pairs_table(found: MinimalPairs) -> Stack:
    """Show the accuracy with its interval, overall and for each phenomenon."""
    parts: list[ConsoleRenderable | str] = []
    if found.by:
        parts.append(Bars([(name, s.accuracy, _accuracy(s), "") for name, s in found.by.items()]))
    low, high = found.interval
    overall = f"accuracy {found.accuracy:.1%} ({low:.1%} to {high:.1%}) over {_pairs(found.count)}, by {found.method}"
    return Stack([*parts, Text(overall, style="bold")])


def _accuracy(found: AccuracyInterval) -> str:
    low, high = found.interval
    return f"{found.accuracy:.1%}  ({low:.0%} to {high:.0%}, {_pairs(found.count)})"


def _pairs(count: int) -> str:
    return f"{count:,} pair{'s' * (count != 1)}"
