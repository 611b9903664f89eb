"""Terminal output of explain, attention and minimal pairs."""

from __future__ import annotations

import numpy as np
from rich.console import ConsoleRenderable
from rich.table import Table
from rich.text import Text

from unmask.cli.show.render import Bars, Lines, Stack, percent, token_text
from unmask.errors import UserError
from unmask.inference.answers import AccuracyInterval, Attention, Attribution, Explanation, MinimalPairs
from unmask.metrics import format_count

MAX_ATTENDED = 4  # attended tokens shown per token
# Minimum |score| relative to the largest, and the style of a token that raises or lowers the target.
STYLES = ((0.6, "black on bright_green", "white on red"), (0.25, "green", "red"))


def explanation_lines(explanation: Explanation) -> Stack:
    """Show the tokens colored by their score, then the strongest as bars. Without colors, scores are printed as numbers."""
    largest = max((abs(t.score) for t in explanation.tokens), default=0.0) or 1.0
    colored, plain = Text(), []
    for t in explanation.tokens:
        colored.append(token_text(t.token).replace("␣", ""), style=_color(t, largest)).append(" ")
        plain.append(f"{token_text(t.token)}({t.score:+.2f})")
    strongest = sorted(explanation.tokens, key=lambda t: -abs(t.score))[:10]
    rows = [(token_text(t.token), abs(t.score) / largest, f"{t.score:+.3f}", "") for t in strongest]
    title = (
        f"{explanation.target}: {explanation.value:.3f}; baseline with every word masked: {explanation.baseline:.3f}"
    )
    method = f"{explanation.method}; completeness error {explanation.delta:+.3f}"
    return Stack(
        [Text(title, style="bold"), Lines([colored], [" ".join(plain)]), Bars(rows), Text(method, style="dim")]
    )


def _color(token: Attribution, largest: float) -> str:
    for minimum, raises, lowers in STYLES:
        if abs(token.score) >= minimum * largest:
            return raises if token.score > 0 else lowers
    return "dim" if token.start == token.end else ""


def attention_table(attention: Attention, layer: int | None, head: int | None) -> Stack:
    """Show the tokens that each token attends to most. Layers and heads are counted from 1."""
    layers, heads = attention.weights.shape[:2]
    for name, index, count in (("layer", layer, layers), ("head", head, heads)):
        if index is not None and not 1 <= index <= count:
            raise UserError(f"{name} {index} does not exist", expected=f"1 to {count}")
    weights = attention.weights[(layer or layers) - 1]  # (heads, T, T)
    weights = weights.mean(0) if head is None else weights[head - 1]
    table = Table.grid(padding=(0, 2, 0, 0))
    plain = []
    names = [token_text(t.token) for t in attention.tokens]
    for name, row in zip(names, weights):
        attended = [(names[i], float(row[i])) for i in np.argsort(-row, kind="stable")[:MAX_ATTENDED]]
        cells = [
            Text(f"{attended_token} {percent(weight)}", style="bold" if weight >= 0.3 else "")
            for attended_token, weight in attended
        ]
        table.add_row(Text(name, style="cyan"), Text("→", style="dim"), *cells)
        plain.append(
            f"{name}\t→\t" + "\t".join(f"{attended_token} {percent(weight)}" for attended_token, weight in attended)
        )
    title = f"layer {layer or layers} of {layers}, " + (
        f"mean of {heads} heads" if head is None else f"head {head} of {heads}"
    )
    return Stack([Text(title, style="dim"), Lines([table], plain)])


def pairs_table(result: MinimalPairs) -> Stack:
    """Show the accuracy with its interval, overall and for each phenomenon."""
    parts: list[ConsoleRenderable | str] = []
    if result.by:
        parts.append(Bars([(name, s.accuracy, _accuracy(s), "") for name, s in result.by.items()]))
    low, high = result.interval
    overall = f"accuracy {result.accuracy:.1%} ({low:.1%} to {high:.1%}) over {format_count(result.count, 'pair')}, by {result.method}"
    return Stack([*parts, Text(overall, style="bold")])


def _accuracy(result: AccuracyInterval) -> str:
    low, high = result.interval
    return f"{result.accuracy:.1%}  ({low:.0%} to {high:.0%}, {format_count(result.count, 'pair')})"
