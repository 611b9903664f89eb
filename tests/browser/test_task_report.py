"""The report of a fine-tuned model in real Chromium: user text is never executed, and the page renders in light and dark mode."""

from pathlib import Path

import pytest
from browser.test_report import chromium
from PIL import Image
from report.test_task_report import DETAILS, INJECTIONS, make

from unmask.report import write

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tune on texts that all try to inject code; `own` would change the page title."""
    attacks = [x.replace("own(", "document.title='owned'+(") for x in INJECTIONS]
    rows = [{"location": x, "text": x, "expected": x, "predicted": x, "score": 0.5} for x in attacks]
    labels = [{"label": x, "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1} for x in attacks]
    matrix = {"labels": attacks[:4], "matrix": [[9, 1, 0, 0]] * 4}
    details = DETAILS | {"errors": rows, "examples": rows, "per_label": labels, "confusion": matrix}
    run = make(tmp_path_factory.mktemp("page") / "run", details)
    run.write_json("findings.json", [{"location": x, "message": x, "hint": x} for x in attacks])
    return write(run)


def test_user_text_is_never_executed(report: Path, tmp_path: Path) -> None:
    page = chromium(report, tmp_path, "--dump-dom")
    assert "<title>run – fine-tuning report</title>" in page
    assert "<script" not in page.lower() and '<img src="x"' not in page
    assert "The worst errors" in page and "&lt;script&gt;" in page


@pytest.mark.parametrize("dark", [False, True])
def test_page_renders_in_light_and_dark_mode(report: Path, tmp_path: Path, dark: bool) -> None:
    picture = tmp_path / "page.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    chromium(report, tmp_path, f"--screenshot={picture}", "--window-size=1200,3000", scheme)
    pixels = Image.open(picture).convert("L")
    assert pixels.size == (1200, 3000)
    shades = pixels.resize((120, 300)).getcolors(256)
    assert shades
    assert len(shades) > 40, "an empty page"
    assert (max(shades)[1] < 80) == dark
