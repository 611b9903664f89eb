"""Terminal output of fill, score, generate, next-sentence and show-batch: bars, colored tokens, masked rows with a legend.

Everything here is a rich renderable: `rich.print(fills_table(f))`. On a color terminal, the background of a token shows whether it was
masked, replaced or kept. Without colors (a pipe, NO_COLOR, a dumb terminal) the same is written as [MASK:word], {word→other} and (word),
on lines that are not wrapped.

Text from users goes into `Text`, never into markup, because "[MASK]" would be a tag; `visible` replaces control characters.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.table import Table
from rich.text import Text

from unmask.console import visible
from unmask.inference.answers import Continuation, FillMaskResult, MaskedBatch, Row, Score
from unmask.text.token_text import is_ideograph

BAR_WIDTH = 24  # columns of a full bar
EIGHTHS = " ▏▎▍▌▋▊▉█"
# State of a token in a masked row → style on a color terminal, and format without colors.
STYLES = {"masked": "black on bright_cyan", "random": "white on red", "kept": "black on bright_yellow"}
PLAIN = {"masked": "[MASK:{text}]", "random": "{{{text}→{shown}}}", "kept": "({text})"}
MEANING = {"masked": "replaced by [MASK]", "random": "replaced by a random token", "kept": "kept unchanged"}
NEXT = {"next": "B follows A", "other": "B does not follow A"}
# Minimum log-probability in nats, and color: likely, plausible, unlikely, surprising.
HEAT = ((-1.0, "green"), (-3.0, "default"), (-6.0, "yellow"), (-np.inf, "red"))


def bar(fraction: float, width: int = BAR_WIDTH, ascii_only: bool = False) -> str:
    """
    >>> bar(0.5, 4), bar(0.28, 4), bar(0.0, 4), bar(0.5, 4, ascii_only=True)
    ('██', '█▏', '', '##')
    """
    fraction = min(max(fraction, 0.0), 1.0)
    if ascii_only:
        return "#" * round(fraction * width)
    whole, part = divmod(round(fraction * width * 8), 8)
    return EIGHTHS[8] * whole + (EIGHTHS[part] if part else "")


def _plain(console: Console) -> bool:
    return console.color_system is None or console.no_color


@dataclass
class Lines:
    """One output in two forms: for color terminals, and as plain lines that are never wrapped."""

    colored: Sequence[ConsoleRenderable]
    plain: list[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if _plain(console):
            yield from (Text(line, no_wrap=True, overflow="ignore") for line in self.plain)
        else:
            yield from self.colored


@dataclass
class Bars:
    """A table with a bar per row, from (name, fraction, number, remark)."""

    rows: list[tuple[str, float, str, str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table.grid(padding=(0, 0, 0, 2))
        table.add_column(no_wrap=True, min_width=12, max_width=34)
        table.add_column(no_wrap=True, width=BAR_WIDTH + 2)
        table.add_column(justify="right", no_wrap=True)
        for name, fraction, number, remark in self.rows:
            drawn = Text(bar(fraction, ascii_only=options.ascii_only), style="cyan")
            style = "bold red" if remark == "surprising" else "dim"
            table.add_row(Text(f"  {name}"), drawn, Text(number), *([Text(remark, style=style)] if remark else []))
        yield table


@dataclass
class Stack:
    parts: list[ConsoleRenderable | str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in self.parts:
            yield Text(part) if isinstance(part, str) else part


def token_text(token: str) -> str:
    """Make the spaces of a token visible.

    >>> token_text(" states"), token_text("##s")
    ('␣states', '##s')
    """
    return visible(token.replace(" ", "␣"))


def fills_table(fillings: FillMaskResult | Sequence[FillMaskResult]) -> Stack:
    """Show each text, the candidates of each mask with bars, and the filled text if there are several masks."""
    parts: list[ConsoleRenderable | str] = []
    for filling in [fillings] if isinstance(fillings, FillMaskResult) else fillings:
        if parts:
            parts.append("")
        parts.append(marked(filling.text, [(m.start, m.end) for m in filling.masks], "bold cyan"))
        for number, mask in enumerate(filling.masks, 1):
            if len(filling.masks) > 1:
                parts.append(Text(f"mask {number} of {len(filling.masks)}", style="dim"))
            subwords = any(len(c.ids) > 1 for c in mask.candidates)  # then candidates are ordered by the mean per token
            probabilities = [c.mean_token_probability if subwords else c.probability for c in mask.candidates]
            counts = [f"{len(c.ids)} tokens" if len(c.ids) > 1 else "" for c in mask.candidates]
            rows = zip(mask.candidates, probabilities, counts)
            parts.append(Bars([(token_text(c.token), p, percent(p), count) for c, p, count in rows]))
        if filling.joint:
            parts.append(Text("joint fills and their probability", style="dim"))
            for fill in filling.joint:
                probability = f"  {percent(math.exp(fill.logprob))}  "
                parts.append(Text.assemble((probability, "dim"), marked(fill.text, fill.spans, "bold green")))
        elif len(filling.masks) > 1:
            parts += [Text("all masks filled", style="dim"), marked(filling.best, filling.best_spans, "bold green")]
    return Stack(parts)


def next_table(a: str, b: str, answer: dict[str, float]) -> Stack:
    """Show the two texts and the probabilities of `Predictor.next_sentence`."""
    texts = Table.grid(padding=(0, 2, 0, 0))
    texts.add_column(style="dim")
    texts.add_column(overflow="fold")
    for name, text in (("A", a), ("B", b)):
        texts.add_row(name, Text(visible(text)))
    both = Lines([texts], [f"A  {visible(a)}", f"B  {visible(b)}"])
    return Stack([both, Bars([(NEXT[key], p, percent(p), "") for key, p in answer.items()])])


def score_line(score: Score) -> Lines:
    """Show the text with tokens colored by log-probability. Without colors, surprising tokens are *starred*."""
    lowest = np.full(len(score.text), np.inf)  # per character: byte-level tokens can share one
    surprising = np.zeros(len(score.text), bool)
    for t in score.per_token:
        lowest[t.start : t.end] = np.minimum(lowest[t.start : t.end], t.logprob)
        surprising[t.start : t.end] |= t.is_surprising
    text = Text(visible(score.text))
    for i, logprob in enumerate(lowest):
        if np.isfinite(logprob):
            text.stylize(heat(logprob) + (" bold underline" if surprising[i] else ""), i, i + 1)
    edges = np.flatnonzero(np.diff(surprising, prepend=False, append=False))  # start, end, start, end, …
    plain = visible(score.text)
    for i in edges[::-1]:
        plain = f"{plain[:i]}*{plain[i:]}"
    return Lines([text], [plain])


def score_table(score: Score) -> Stack:
    """Show the text, a bar per token (long = surprising), the log-likelihood and the perplexity."""
    kind = "pseudo-perplexity" if score.pseudo else "perplexity"
    full_bar = max(10.0, max(-t.logprob for t in score.per_token))  # nats
    rows = [
        (token_text(t.token), -t.logprob / full_bar, f"{t.logprob:.2f}", "surprising" if t.is_surprising else "")
        for t in score.per_token
    ]
    n = len(rows)
    totals = f"log-likelihood {score.total:.2f} nats over {n} token{'s' * (n != 1)}"
    return Stack([score_line(score), Bars(rows), Text(f"{totals}, {kind} {score.perplexity:,.1f}", style="dim")])


def heat(logprob: float) -> str:
    return next(style for floor, style in HEAT if logprob >= floor)


def batch_rows(batch: MaskedBatch) -> Stack:
    """Show training rows with masked, replaced and kept tokens colored, and a legend with counts."""
    parts: list[ConsoleRenderable | str] = []
    for number, row in enumerate(batch.rows, 1):
        title = [f"row {number}", f"{row.tokens} tokens", *([f"{row.chosen} selected"] if row.chosen else [])]
        if row.is_next is not None:
            title.append(NEXT["next" if row.is_next else "other"])
        if row.note:
            title.append(visible(row.note))
        parts += [Text(" · ".join(title), style="bold"), _row(row), ""]
    states = Counter(part.state for row in batch.rows for part in row.parts)
    if any(states[state] for state in STYLES):
        parts.append(_legend(states))
    return Stack(parts)


def _row(row: Row) -> Lines:
    colored, plain, after_special = Text(), "", False
    for part in row.parts:
        # A space after [CLS], except before Chinese: rich treats it as one long word and would wrap it.
        space = (
            " " if plain and (part.text.startswith(" ") or (after_special and not is_ideograph(part.text[:1]))) else ""
        )
        after_special = part.state == "special"
        text, shown = (visible(t.removeprefix(" ")) or "␣" for t in (part.text, part.shown))
        both = f"{text}→{shown}" if part.state == "random" else text
        colored.append(space).append(both, style=STYLES.get(part.state, "dim" if part.state == "special" else ""))
        plain += space + PLAIN.get(part.state, "{text}").format(text=text, shown=shown)
    return Lines([colored], [plain])


def _legend(states: Counter[str]) -> Lines:
    total = sum(states[state] for state in STYLES)
    colored, plain = [], []
    for state, meaning in MEANING.items():
        count = f"{meaning}: {states[state]:,} ({states[state] / total:.0%})"
        sample = "word→other" if state == "random" else "word"
        colored.append(Text.assemble((sample, STYLES[state]), f" {count}"))
        plain.append(f"{PLAIN[state].format(text='word', shown='other')} {count}")
    return Lines(colored, plain)


def marked(text: str, spans: Sequence[tuple[int, int]], style: str) -> Text:
    marked = Text(visible(text))  # visible() keeps the length, so the spans stay valid
    for start, end in spans:
        marked.stylize(style, start, end)
    return marked


def percent(p: float) -> str:
    """
    >>> percent(0.123), percent(0.00001), percent(1.0)
    ('12.3%', '<0.1%', '100.0%')
    """
    return "<0.1%" if p < 0.0005 else f"{p:.1%}"


def continuation_text(answer: Continuation) -> Text:
    """Show a continuation after its prompt; the output of an encoder–decoder is shown alone."""
    return (
        Text.assemble((answer.text, "dim"), answer.generated_text) if answer.continues else Text(answer.generated_text)
    )
