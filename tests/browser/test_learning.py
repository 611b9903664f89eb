"""The report of a `learn` run in real Chromium: user text is never executed, and the page renders in light and dark mode."""

from pathlib import Path

import pytest
from browser.test_report import chromium
from PIL import Image
from report.learned import RESULTS, make
from report.test_task_report import INJECTIONS

from unmask.report import write

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    attacks = [x.replace("own(", "document.title='owned'+(") for x in INJECTIONS]
    rows = [{"location": x, "text": x, "label": x, "suggested": x, "probability": 0.5} for x in attacks]
    tables = {"to_label": {"file": attacks[0], "texts": rows}, "suspects": {"file": attacks[1], "records": rows}}
    return write(make(tmp_path_factory.mktemp("page") / "run", {**RESULTS, **tables, "commands": attacks}))


def test_user_text_is_never_executed(report: Path, tmp_path: Path) -> None:
    page = chromium(report, tmp_path, "--dump-dom")
    assert "<title>run – learning report</title>" in page
    assert "<script" not in page.lower() and '<img src="x"' not in page
    assert "Labels that look wrong" in page and "&lt;script&gt;" in page


@pytest.mark.parametrize("dark", [False, True])
def test_page_renders_in_light_and_dark_mode(report: Path, tmp_path: Path, dark: bool) -> None:
    picture = tmp_path / "page.png"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    chromium(report, tmp_path, f"--screenshot={picture}", "--window-size=1200,3000", scheme)
    shades = Image.open(picture).convert("L").resize((120, 300)).getcolors(256)
    assert shades
    assert len(shades) > 40, "an empty page"
    assert (max(shades)[1] < 80) == dark
