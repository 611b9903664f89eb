"""The command that labels texts in the browser: label."""

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.options import command, split_commas
from unmask.cli.serving import Host, KeyFile, Port, find_key, require_server_extras
from unmask.console import Console, write
from unmask.errors import command as shell_command
from unmask.errors import quote

if TYPE_CHECKING:
    from unmask.labels.label_file import LabelFile

SHUTDOWN_TIMEOUT = 5.0  # seconds

File = Annotated[
    Path,
    typer.Argument(help="csv, tsv or jsonl file with a text column, or txt with one text per line.", metavar="FILE"),
]
Labels = Annotated[
    str | None,
    typer.Option(
        help="Labels to choose from, comma-separated.",
        show_default="those in the file, most frequent first",
        metavar="A,B,…",
    ),
]
LabelColumn = Annotated[
    str, typer.Option(help="Column of the labels; added if the file does not have it.", metavar="NAME")
]
Then = Annotated[
    str | None,
    typer.Option(
        help="Command to show at the end.", show_default="unmask finetune MODEL --train FILE", metavar="COMMAND"
    ),
]


@command(
    "unmask label to_label.csv --labels positive,negative",
    "unmask label train.jsonl --text-column review --label-column stars --no-browser",
    "unmask label texts.txt --labels spam,ham      # writes the labels to texts.txt.csv",
)
def label(
    file: File,
    labels: Labels = None,
    text_column: Annotated[str, typer.Option(help="Column that contains the texts.", metavar="NAME")] = "text",
    label_column: LabelColumn = "label",
    then: Then = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    api_key_file: KeyFile = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page in the browser.")] = False,
) -> None:
    """Label texts in the browser, one key per label.

    Each label is saved in FILE at once; other columns do not change. The same command continues at the first text without a label.
    """
    require_server_extras()
    from unmask.labels.label_file import LabelFile, labels_path
    from unmask.server.labeling import make_label_app
    from unmask.server.run import Access, run_app

    target = labels_path(file)
    opened = LabelFile(target, text_column, label_column, [name for name in split_commas(labels) or [] if name])
    options = {"--labels": labels, "--text-column": text_column, "--label-column": label_column, "--then": then}
    commands = {
        "resume": resume_command(file, options),
        "next": then or shell_command("unmask finetune MODEL --train", target),
    }
    access = Access(host, port, find_key(host, None, api_key_file, risk="read and label the texts"))
    app = make_label_app(opened, commands=commands, api_key=access.api_key, allowed_hosts=access.host_headers())

    def ready(url: str) -> None:
        write(f"unmask label shows {file} at {url}", *(f"  {note}" for note in notes(opened, file, target)))
        if not no_browser and can_open_browser():
            import webbrowser

            threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()  # it may wait for the browser

    def stopped() -> None:
        left = opened.num_labeled < len(opened)
        Console().say(f"{progress(opened)} in {target}")
        Console().say(f"to continue: {commands['resume']}" if left else f"next: {commands['next']}")
        if left and then:
            Console().say(f"or, with these labels: {then}")

    run_app(app, access, SHUTDOWN_TIMEOUT, ready, stopped)


def resume_command(file: Path, options: dict[str, str | None]) -> str:
    """Return the command with the options that differ from their defaults.

    >>> resume_command(Path("a.csv"), {"--labels": "pos,neg", "--text-column": "text", "--then": None})
    'unmask label a.csv --labels pos,neg'
    """
    usual = {"--text-column": "text", "--label-column": "label"}
    changed = [f"{name} {quote(value)}" for name, value in options.items() if value and value != usual.get(name)]
    return " ".join([shell_command("unmask label", file), *changed])


def progress(opened: "LabelFile") -> str:
    return f"{opened.num_labeled:,} of {len(opened):,} texts are labeled"


def notes(opened: "LabelFile", file: Path, target: Path) -> list[str]:
    """Return the lines that are printed below the address."""
    lines = [progress(opened), f"labels: {', '.join(opened.labels)}"]
    if opened.num_empty:
        lines.append(f"rows without a text, which are left out: {opened.num_empty:,}")
    if target != file:
        lines.append(f"labels are saved in {target}")
    if opened.adds_column:
        lines.append(f"the first label adds the column {opened.label_column!r}")
    if opened.converted_from:
        lines.append(f"the first label converts {target} from {opened.converted_from} to UTF-8")
    return [*lines, "Ctrl-C stops"]


def can_open_browser() -> bool:
    """Return whether there is a screen. Without one, `webbrowser` would start a text browser in this terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
