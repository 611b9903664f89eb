"""What a person sees of an answer in the terminal: bars, coloured tokens, a masked batch with its legend.

Everything here is a rich renderable that looks at the console when it is printed: `rich.print(fills_table(f))`.
With colours, a masked batch shows by background what happened to a token; without (a pipe, NO_COLOR, a dumb
terminal) the same is written out, as [MASK:word], {word→other} and (word), on lines that are not wrapped.

Text from outside goes into `Text`, never into markup ("[MASK]" would be a tag), its control characters made `visible`.
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

BAR = 24  # columns of a bar that is full
EIGHTHS = " ▏▎▍▌▋▊▉█"
# What a row's token may be, and how it looks: shape of the plain form, style of the coloured one.
STYLES = {"masked": "black on bright_cyan", "random": "white on red", "kept": "black on bright_yellow"}
PLAIN = {"masked": "[MASK:{text}]", "random": "{{{text}→{shown}}}", "kept": "({text})"}
MEANING = {"masked": "hidden by [MASK]", "random": "replaced by a random token", "kept": "left as it is"}
NEXT = {"next": "B follows A", "other": "B is from elsewhere"}
# Nats below which a token gets the next colour: likely, plausible, unlikely, surprising.
HEAT = ((-1.0, "green"), (-3.0, "default"), (-6.0, "yellow"), (-np.inf, "red"))


def bar(share: float, width: int = BAR, ascii_only: bool = False) -> str:
    """
    >>> bar(0.5, 4), bar(0.28, 4), bar(0.0, 4), bar(0.5, 4, ascii_only=True)
    ('██', '█▏', '', '##')
    """
    share = min(max(share, 0.0), 1.0)
    if ascii_only:
        return "#" * round(share * width)
    whole, part = divmod(round(share * width * 8), 8)
    return EIGHTHS[8] * whole + (EIGHTHS[part] if part else "")


def _plain(console: Console) -> bool:
    return console.color_system is None or console.no_color


@dataclass
class Lines:
    """The same with colours and without; lines for pipes are never wrapped."""

    coloured: Sequence[ConsoleRenderable]
    plain: list[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if _plain(console):
            yield from (Text(line, no_wrap=True, overflow="ignore") for line in self.plain)
        else:
            yield from self.coloured


@dataclass
class Bars:
    """A table of (name, share, figure, remark): the name, a bar, the figure."""

    rows: list[tuple[str, float, str, str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table.grid(padding=(0, 0, 0, 2))
        table.add_column(no_wrap=True, min_width=12, max_width=34)
        table.add_column(no_wrap=True, width=BAR + 2)
        table.add_column(justify="right", no_wrap=True)
        for name, share, figure, remark in self.rows:
            drawn = Text(bar(share, ascii_only=options.ascii_only), style="cyan")
            style = "bold red" if remark == "odd" else "dim"
            table.add_row(Text(f"  {name}"), drawn, Text(figure), *([Text(remark, style=style)] if remark else []))
        yield table


@dataclass
class Stack:
    parts: list[ConsoleRenderable | str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in self.parts:
            yield Text(part) if isinstance(part, str) else part


def token_text(token: str) -> str:
    """A piece in a list: its blanks shown, as a blank alone would be nothing to see.

    >>> token_text(" states"), token_text("##s")
    ('␣states', '##s')
    """
    return visible(token.replace(" ", "␣"))


def fills_table(fillings: FillMaskResult | Sequence[FillMaskResult]) -> Stack:
    """Each text, each mask's candidates with bars, and the whole text filled when it has several masks."""
    parts: list[ConsoleRenderable | str] = []
    for filling in [fillings] if isinstance(fillings, FillMaskResult) else fillings:
        if parts:
            parts.append("")
        parts.append(marked(filling.text, [(m.start, m.end) for m in filling.masks], "bold cyan"))
        for number, mask in enumerate(filling.masks, 1):
            if len(filling.masks) > 1:
                parts.append(Text(f"mask {number} of {len(filling.masks)}", style="dim"))
            several = any(len(c.ids) > 1 for c in mask.candidates)  # then a piece's mean is what they are ordered by
            shares = [c.mean_token_probability if several else c.probability for c in mask.candidates]
            counts = [f"{len(c.ids)} pieces" if len(c.ids) > 1 else "" for c in mask.candidates]
            rows = zip(mask.candidates, shares, counts)
            parts.append(Bars([(token_text(c.token), share, percent(share), count) for c, share, count in rows]))
        if filling.joint:
            parts.append(Text("together, and how likely", style="dim"))
            for way in filling.joint:
                share = f"  {percent(math.exp(way.logprob))}  "
                parts.append(Text.assemble((share, "dim"), marked(way.text, way.spans, "bold green")))
        elif len(filling.masks) > 1:
            parts += [Text("best together", style="dim"), marked(filling.best, filling.best_spans, "bold green")]
    return Stack(parts)


def next_table(a: str, b: str, answer: dict[str, float]) -> Stack:
    """The two texts and `Predictor.next`'s answer."""
    texts = Table.grid(padding=(0, 2, 0, 0))
    texts.add_column(style="dim")
    texts.add_column(overflow="fold")
    for name, text in (("A", a), ("B", b)):
        texts.add_row(name, Text(visible(text)))
    both = Lines([texts], [f"A  {visible(a)}", f"B  {visible(b)}"])
    return Stack([both, Bars([(NEXT[key], p, percent(p), "") for key, p in answer.items()])])


def score_line(score: Score) -> Lines:
    """The text, each token coloured by how likely it is where it stands; in plain form odd ones are *starred*."""
    worst = np.full(len(score.text), np.inf)  # of the tokens that share a character
    odd = np.zeros(len(score.text), bool)
    for t in score.per_token:
        worst[t.start : t.end] = np.minimum(worst[t.start : t.end], t.logprob)
        odd[t.start : t.end] |= t.is_surprising
    text = Text(visible(score.text))
    for i, logprob in enumerate(worst):
        if np.isfinite(logprob):
            text.stylize(heat(logprob) + (" bold underline" if odd[i] else ""), i, i + 1)
    edges = np.flatnonzero(np.diff(odd, prepend=False, append=False))  # start, end, start, end, …
    plain = visible(score.text)
    for i in edges[::-1]:
        plain = f"{plain[:i]}*{plain[i:]}"
    return Lines([text], [plain])


def score_table(score: Score) -> Stack:
    """The line, a bar per token (long = surprising), the sum and the perplexity."""
    kind = "pseudo-perplexity" if score.pseudo else "perplexity"
    worst = max(10.0, max(-t.logprob for t in score.per_token))  # nats of a full bar
    rows = [
        (token_text(t.token), -t.logprob / worst, f"{t.logprob:.2f}", "odd" if t.is_surprising else "")
        for t in score.per_token
    ]
    n = len(rows)
    figures = f"log-likelihood {score.total:.2f} nats over {n} token{'s' * (n != 1)}"
    return Stack([score_line(score), Bars(rows), Text(f"{figures}, {kind} {score.perplexity:,.1f}", style="dim")])


def heat(logprob: float) -> str:
    return next(style for floor, style in HEAT if logprob >= floor)


def batch_rows(batch: MaskedBatch) -> Stack:
    """Training rows: what was masked, replaced and kept, coloured, with a legend that counts."""
    parts: list[ConsoleRenderable | str] = []
    for number, row in enumerate(batch.rows, 1):
        title = [f"row {number}", f"{row.tokens} tokens", *([f"{row.chosen} chosen"] if row.chosen else [])]
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
    coloured, plain, apart = Text(), "", False
    for part in row.parts:
        # A blank after [CLS], but not before Chinese, which is one long word to rich: it would begin a new line.
        blank = " " if plain and (part.text.startswith(" ") or (apart and not is_ideograph(part.text[:1]))) else ""
        apart = part.state == "special"
        text, shown = (visible(t.removeprefix(" ")) or "␣" for t in (part.text, part.shown))
        both = f"{text}→{shown}" if part.state == "random" else text
        coloured.append(blank).append(both, style=STYLES.get(part.state, "dim" if part.state == "special" else ""))
        plain += blank + PLAIN.get(part.state, "{text}").format(text=text, shown=shown)
    return Lines([coloured], [plain])


def _legend(states: Counter[str]) -> Lines:
    total = sum(states[state] for state in STYLES)
    coloured, plain = [], []
    for state, meaning in MEANING.items():
        figures = f"{meaning}: {states[state]:,} ({states[state] / total:.0%})"
        sample = "word→other" if state == "random" else "word"
        coloured.append(Text.assemble((sample, STYLES[state]), f" {figures}"))
        plain.append(f"{PLAIN[state].format(text='word', shown='other')} {figures}")
    return Lines(coloured, plain)


def marked(text: str, spans: Sequence[tuple[int, int]], style: str) -> Text:
    marked = Text(visible(text))  # visible() keeps the length, so the spans hold
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
    """What a causal model adds begins with its own blank, or joins the word; the other kind stands alone."""
    return (
        Text.assemble((answer.text, "dim"), answer.generated_text) if answer.continues else Text(answer.generated_text)
    )
