"""Initial state of the studio: the best model of the newest run is selected, and every run shows its score."""

import json
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect, sync_playwright
from runs.tiny import labeled, model_folder
from server.serving import server

from unmask import api

pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a run with two parts, the worse of which was written last."""
    root = tmp_path_factory.mktemp("opening")
    start, train, test = model_folder(root / "start"), labeled(root / "a.csv", 24), labeled(root / "b.csv", 9, 500)
    whole = root / "runs" / "quickstart-1"
    for name, accuracy in (("good", 0.875), ("bad", 0.5)):
        api.finetune(start, train=train, test=test, steps=1, batch_size=4, out=whole / name)
        results = json.loads((whole / name / "results.json").read_text())
        results["test"]["accuracy"] = accuracy
        (whole / name / "results.json").write_text(json.dumps(results))
    (whole / "results.json").write_text("{}")
    with server(str(root / "runs"), verb="studio") as running:
        yield running.url


def test_best_model_of_the_newest_run_is_selected(url: str) -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(locale="en-US")
        page.goto(url)
        expect(page.locator("h1")).to_have_text("Task")
        expect(page.locator("#model")).to_have_value("good")
        expect(page.locator("textarea")).to_have_count(1)  # single texts, not pairs
        page.click('nav a[href="#runs"]')
        for name, shown in (("good", "87.5%"), ("bad", "50.0%")):
            row = page.locator(".runs tbody tr", has_text=f"quickstart-1/{name}")
            expect(row.locator(".figure").last).to_have_text(f"{shown}test accuracy")
        browser.close()
