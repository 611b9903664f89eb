"""All output of unmask: results go to standard output, messages to standard error.

Text from files, paths and models is never interpreted. rich's markup (`[red]`) and emoji codes (`:100:`, which also matches the
end of `file:100:`) are off. Control characters could recolor, clear or retitle the terminal, so `Safe` replaces them by visible
symbols in every segment that rich prints. rich is imported only when it is used, so that `unmask --help` starts quickly.
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

Update = Callable[[float, float, str], None]  # done, total, message
PROGRESS_SECONDS = 10.0  # between two lines of progress, if there is no terminal
STAGES = {  # title of a progress bar → activity, for the message after an interrupt
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
    "teacher": "computing the teacher's predictions",
    "evaluate": "evaluating",
    "predict": "predicting",
    "export": "exporting",
}
WIDTH = 200  # columns of a table that is written to a file or a pipe

# C0 and C1 controls, line separators, bidi embeddings, overrides and isolates, and surrogates, which cannot be encoded.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, keep: str = "") -> str:
    """Replace each control character, except those in `keep`, by one visible symbol, so that offsets in the text stay valid.

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
    """Return a new rich console for the current stream, because standard output may have been replaced."""
    return _safe()(stderr=stderr, highlight=False, markup=False, emoji=False)


def write(*things: Any) -> None:
    """Write results to standard output: strings as they are, tables and other renderables with rich."""
    if all(isinstance(thing, str) for thing in things):
        sys.stdout.write("".join(visible(thing, "\n\t") + "\n" for thing in things))
        sys.stdout.flush()
        return
    console = make_rich()
    if not console.is_terminal:  # a file or a pipe has no width
        console.width = WIDTH
    for thing in things:
        console.print(thing, soft_wrap=not console.is_terminal)


def plain(value: Any) -> Any:
    """Convert a value for `json.dumps`: use its `as_dict` or, for numpy, `tolist`; otherwise convert it to a string."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    return value.tolist() if hasattr(value, "tolist") else str(value)


def write_json(value: Any, indent: int | None = 1) -> None:
    """Write JSON to standard output. Control characters that JSON leaves unescaped are escaped, which keeps the value."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=plain)
    text = CONTROL.sub(lambda m: m[0] if m[0] == "\n" else f"\\u{ord(m[0]):04x}", text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def make_table(*columns: str) -> Table:
    """Return a table without lines. A column whose name ends in `>` is right-aligned. Without column names there is no header."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        name = column.removesuffix(">")
        table.add_column(name, justify="right" if name != column else "left", overflow="fold")
    return table


class Console:
    """Writes messages to standard error, because standard output is for results. `quiet` prints only warnings and errors."""

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
        self.rich.print(text, style="red", soft_wrap=True)  # never folded, so that a command in it can be pasted

    @contextmanager
    def bar(self, title: str) -> Iterator[Update]:
        """Show progress: a bar on a terminal, otherwise a line every `PROGRESS_SECONDS`. An interrupt message names the activity."""
        with activity(STAGES.get(title, title)):
            if self.quiet:
                yield lambda *_: None
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
            if now - last >= PROGRESS_SECONDS or (done >= total and now - started > 1):
                last = now
                left = (now - started) / done * (total - done) if done else 0
                fraction = done / total if total else 1
                self.say(f"{title} {fraction:4.0%} {message} ({clock(now - started)} elapsed, {clock(left)} left)")

        return update


def brief_progress() -> Any:
    """Return a progress bar that disappears at the end, for slow predictions."""
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
