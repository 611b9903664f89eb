"""Everything that unmask prints goes through here: results to standard output, messages to standard error.

Text from files, paths and models is never interpreted: rich's markup (`[red]`) and emoji codes (`:100:`, which also
matches the end of `file:100:`) are off, and control characters, which could recolour, clear or retitle the terminal, are
replaced by visible signs. `Safe` does that for every segment that rich prints, so no caller has to remember it.
rich is imported when something is printed with it: `unmask --help` does not wait for it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from unmask.stopping import activity

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.table import Table

Update = Callable[[float, float, str], None]  # done, total, what is going on
SECONDS = 10.0  # between two lines of progress, where there is no terminal
STAGES = {  # title of a bar → what was going on, when it is stopped
    "tokenizer": "training the tokenizer",
    "vocabulary": "choosing words for the vocabulary",
    "prepare": "preparing the text",
    "pretrain": "training",
    "finetune": "training",
    "dev": "evaluating on the dev set",
    "test": "evaluating on the test set",
    "search": "searching",
    "words": "indexing the passages",
    "vectors": "embedding the passages",
    "teacher": "asking the teacher",
    "evaluate": "evaluating",
    "predict": "predicting",
    "export": "exporting",
}
WIDTH = 200  # columns of a table that goes to a file or a pipe

# C0 and C1 controls, line separators, bidi embeddings, overrides and isolates, and surrogates, which no stream can encode.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, keep: str = "") -> str:
    """Control characters as pictures, one for one, so that positions in the text hold; those in `keep` stay.

    >>> visible("a\\nb\\x1b[31m\\x7f\\x9b\\u202e"), visible("a\\nb", keep="\\n")
    ('a␊b␛[31m␡��', 'a\\nb')
    """
    return CONTROL.sub(lambda m: m[0] if m[0] in keep else _picture(m[0]), text)


def _picture(character: str) -> str:
    if character < " ":
        return chr(0x2400 + ord(character))
    return "␡" if character == "\x7f" else "\ufffd"


@cache
def _safe() -> type[RichConsole]:
    from rich.console import Console as RichConsole
    from rich.segment import Segment
    from rich.text import Text

    class Safe(RichConsole):
        def render_str(self, text: str, **settings: Any) -> Text:
            return super().render_str(visible(text, "\n\t"), **settings)

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                yield segment if control or not CONTROL.search(text) else Segment(visible(text, "\n"), style)

    return Safe


def make_rich(stderr: bool = False) -> RichConsole:
    """The only rich console there is: looks at the stream as it is now, since standard output may have been replaced."""
    return _safe()(stderr=stderr, highlight=False, markup=False, emoji=False)


def write(*things: Any) -> None:
    """Results to standard output: text as it is, tables and other renderables as rich draws them."""
    if all(isinstance(thing, str) for thing in things):
        sys.stdout.write("".join(visible(thing, "\n\t") + "\n" for thing in things))
        sys.stdout.flush()
        return
    console = make_rich()
    if not console.is_terminal:  # a file or a pipe has no edge to fold at
        console.width = WIDTH
    for thing in things:
        console.print(thing, soft_wrap=not console.is_terminal)


def plain(value: Any) -> Any:
    """What JSON shows of a value that it does not know: objects by their `as_dict`, numpy's numbers and arrays as they are, all else as text."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    return value.tolist() if hasattr(value, "tolist") else str(value)


def write_json(value: Any, indent: int | None = 1) -> None:
    """JSON to standard output, of objects their `as_dict`. What JSON leaves unescaped and a terminal would obey is escaped: the value stays the same."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=plain)
    text = CONTROL.sub(lambda m: m[0] if m[0] == "\n" else f"\\u{ord(m[0]):04x}", text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def make_table(*columns: str) -> Table:
    """A table without lines; a column whose name ends in `>` is right-aligned, and without columns there is no header."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        name = column.removesuffix(">")
        table.add_column(name, justify="right" if name != column else "left", overflow="fold")
    return table


class Console:
    """`quiet` says nothing but warnings. Everything goes to standard error: standard output is for results."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet

    @cached_property
    def rich(self) -> RichConsole:
        return make_rich(stderr=True)

    def say(self, text: str) -> None:
        if not self.quiet:
            self.rich.print(text, soft_wrap=not self.rich.is_terminal)

    def warn(self, text: str) -> None:
        self.rich.print(f"warning: {text}", style="yellow", soft_wrap=not self.rich.is_terminal)

    def fail(self, text: str) -> None:
        self.rich.print(text, style="red", soft_wrap=True)  # never folded: a command in it has to be pasted whole

    @contextmanager
    def bar(self, title: str) -> Iterator[Update]:
        """Work of known length: a bar on a terminal, a line now and then elsewhere. Named when it is stopped."""
        with activity(STAGES.get(title, title)):
            if self.quiet:
                yield lambda *told: None
            elif self.rich.is_terminal:
                with self._progress() as progress:
                    task = progress.add_task(visible(title), total=None, message="")

                    def update(done: float, total: float, message: str = "") -> None:
                        progress.update(task, completed=done, total=total, message=visible(message))

                    yield update
            else:
                yield self._lines(title)

    def _progress(self) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[message]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.rich,
        )

    def _lines(self, title: str) -> Update:
        started = last = time.monotonic()

        def update(done: float, total: float, message: str = "") -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= SECONDS or (done >= total and now - started > 1):
                last = now
                left = (now - started) / done * (total - done) if done else 0
                share = done / total if total else 1
                self.say(f"{title} {share:4.0%} {message} ({clock(now - started)} elapsed, {clock(left)} left)")

        return update


def brief_progress() -> Any:
    """A bar that disappears when it is done, for answers that take long."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=make_rich(stderr=True), transient=True)


def clock(seconds: float) -> str:
    """
    >>> clock(75), clock(3700)
    ('1:15', '1:01:40')
    """
    s = int(seconds)
    return f"{s // 3600}:{s % 3600 // 60:02d}:{s % 60:02d}" if s >= 3600 else f"{s // 60}:{s % 60:02d}"
