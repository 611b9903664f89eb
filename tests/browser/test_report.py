"""The HTML report of a run in real Chromium: it renders in light and dark mode, and user text never becomes markup."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from unmask import api

pytestmark = pytest.mark.browser
INJECTION = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on text that tries to inject markup, from a file whose name tries it too."""
    folder = tmp_path_factory.mktemp("page")
    words = ["the cat sat on the mat .", "a dog ran over the road .", INJECTION, "we read about <b>markup</b> & more ."]
    path = folder / "x<script>document.title='owned'<%2fscript>.txt"
    path.write_text("\n".join(f"{words[i % 4]} number {i} ." for i in range(400)))
    run = api.pretrain(
        path, preset="bert-tiny", objective="mlm", tokenizer_type="char", steps=12, batch_size=8, max_length=32, out=folder / "run",
        document_boundary="line", overrides=["train.eval_steps=4"],
    )  # fmt: skip
    return run.path / "report.html"


def chromium(page: Path, folder: Path, *flags: str) -> str:
    browser = shutil.which("chromium")
    assert browser, "make browser installs Chromium"
    done = subprocess.run(
        [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, page.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_page_describes_the_training_run(report: Path, tmp_path: Path) -> None:
    page = chromium(report, tmp_path, "--dump-dom")
    text = re.sub(r"<style.*?</style>|<svg.*?</svg>|<[^>]+>", " ", page, flags=re.S)
    for words in ("bert-tiny", "validation", "12", "unmask fill", "unigram entropy", "perplexity"):
        assert words in text.lower() or words in text, words


def test_user_text_never_becomes_markup(report: Path, tmp_path: Path) -> None:
    page = chromium(report, tmp_path, "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", page, re.S)
    assert title
    assert title[1].strip() != "owned"
    assert '<img src="x"' not in page
    assert "onerror=" not in re.sub(r"&lt;.*?&gt;", "", page)


@pytest.mark.parametrize("dark", [False, True])
def test_page_renders_in_light_and_dark_mode(report: Path, tmp_path: Path, dark: bool) -> None:
    picture = tmp_path / "page.png"
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    chromium(report, tmp_path, f"--screenshot={picture}", "--window-size=1200,2400", *scheme)
    pixels = Image.open(picture).convert("L")
    assert pixels.size == (1200, 2400)
    shades = pixels.resize((120, 240)).getcolors(256)
    assert shades
    assert len(shades) > 40, "an empty page"
    background = max(shades)[1]
    assert (background < 80) == dark
