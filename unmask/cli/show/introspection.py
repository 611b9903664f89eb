"""What a person sees in the terminal of a look inside: attribution colours, where tokens look, minimal pairs."""

from __future__ import annotations

import numpy as np
from rich.console import ConsoleRenderable
from rich.table import Table
from rich.text import Text

from unmask.cli.show.render import Bars, Lines, Stack, percent, token_text
from unmask.errors import UserError
from unmask.inference.answers import AccuracyInterval, Attention, Attribution, Explanation, MinimalPairs

LOOKS = 4  # tokens that one is shown to look at
# Fraction of the greatest score from which a token has the colour of a rank: raises, lowers.
STRENGTHS = ((0.6, "black on bright_green", "white on red"), (0.25, "green", "red"))


def explanation_lines(found: Explanation) -> Stack:
    """The tokens coloured by what they did, then the strongest as bars; in plain form scores are written out."""
    most = max((abs(t.score) for t in found.tokens), default=0.0) or 1.0
    coloured, plain = Text(), []
    for t in found.tokens:
        coloured.append(token_text(t.token).replace("␣", ""), style=_colour(t, most)).append(" ")
        plain.append(f"{token_text(t.token)}({t.score:+.2f})")
    strongest = sorted(found.tokens, key=lambda t: -abs(t.score))[:10]
    rows = [(token_text(t.token), abs(t.score) / most, f"{t.score:+.3f}", "") for t in strongest]
    told = f"{found.target}: {found.value:.3f}, with every word hidden {found.baseline:.3f}"
    exact = f"{found.method}; the scores miss the difference by {found.delta:+.3f}"
    return Stack([Text(told, style="bold"), Lines([coloured], [" ".join(plain)]), Bars(rows), Text(exact, style="dim")])


def _colour(token: Attribution, most: float) -> str:
    for strength, up, down in STRENGTHS:
        if abs(token.score) >= strength * most:
            return up if token.score > 0 else down
    return "dim" if token.start == token.end else ""


def attention_table(found: Attention, layer: int | None, head: int | None) -> Stack:
    """Of every token those that it takes most from; layers and heads are counted from 1."""
    layers, heads = found.weights.shape[:2]
    for name, given, most in (("layer", layer, layers), ("head", head, heads)):
        if given is not None and not 1 <= given <= most:
            raise UserError(f"{name} {given}", expected=f"1 to {most}")
    weights = found.weights[(layer or layers) - 1]  # (heads, T, T)
    weights = weights.mean(0) if head is None else weights[head - 1]
    table = Table.grid(padding=(0, 2, 0, 0))
    plain = []
    names = [token_text(t.token) for t in found.tokens]
    for name, row in zip(names, weights):
        looks = [(names[i], float(row[i])) for i in np.argsort(-row, kind="stable")[:LOOKS]]
        cells = [Text(f"{other} {percent(share)}", style="bold" if share >= 0.3 else "") for other, share in looks]
        table.add_row(Text(name, style="cyan"), Text("→", style="dim"), *cells)
        plain.append(f"{name}\t→\t" + "\t".join(f"{other} {percent(share)}" for other, share in looks))
    which = f"layer {layer or layers} of {layers}, " + (
        f"mean of {heads} heads" if head is None else f"head {head} of {heads}"
    )
    return Stack([Text(which, style="dim"), Lines([table], plain)])


def pairs_table(found: MinimalPairs) -> Stack:
    """The accuracy with its interval, and that of each phenomenon."""
    shown: list[ConsoleRenderable | str] = []
    if found.by:
        shown.append(Bars([(name, s.accuracy, _figure(s), "") for name, s in found.by.items()]))
    low, high = found.interval
    whole = f"accuracy {found.accuracy:.1%} ({low:.1%} to {high:.1%}) over {_pairs(found.count)}, by {found.method}"
    return Stack([*shown, Text(whole, style="bold")])


def _figure(share: AccuracyInterval) -> str:
    low, high = share.interval
    return f"{share.accuracy:.1%}  ({low:.0%} to {high:.0%}, {_pairs(share.count)})"


def _pairs(count: int) -> str:
    return f"{count:,} pair{'s' * (count != 1)}"
