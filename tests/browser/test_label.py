"""`unmask label` in real Chromium: label by keys and by mouse, go back, reload, kill the server and resume."""

import csv
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from server.serving import server

pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # for busy machines; normally nothing waits this long
HOSTILE = '<img src=x onerror="window.owned = 1"><script>window.owned = 2</script> & <b>bold</b>'
ROWS = [
    ("The plot is thin, but\nthe actors make up for it.", "", "positive", "0.912"),
    (HOSTILE, "", "negative", "0.55"),
    ("节奏明快，演员的表演也很自然，值得一看。", "", "positive", "0.71"),
    ("A very long text. " * 400, "", "negative", "0.5"),
    ("so so", "mixed", "", ""),
    ("the last one", "", "", ""),
]


def write_rows(path: Path, rows: list[tuple[str, str, str, str]] = ROWS) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label", "suggested", "probability"), *rows])
    return path


def saved(path: Path) -> list[str]:
    """Return the labels in the file, after a check that nothing else changed."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(r["text"], r["suggested"], r["probability"]) for r in rows] == [(t, s, p) for t, _, s, p in ROWS]
    return [row["label"] for row in rows]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Return a page that must stay clean: no errors of scripts, no CSP violations and no code from texts."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-US", color_scheme="light")
    new_page = context.new_page()
    problems: list[str] = []
    new_page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    new_page.on("console", lambda line: problems.append(line.text) if "Content Security" in line.text else None)
    yield new_page
    assert new_page.evaluate("window.owned === undefined") and problems == []
    context.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "to_label.csv")


def started(file: Path, *more: str):  # the real command
    return server(str(file), *more, "--no-browser", verb="label")


def press(page: Page, key: str, number: int) -> None:
    """Press a key and wait for the text with this number (the number after the last text: the end)."""
    page.keyboard.press(key)
    at(page, number)


def at(page: Page, number: int) -> None:
    if number > len(ROWS):
        expect(page.locator("#done")).to_be_visible()
    else:
        expect(page.locator(".progress")).to_contain_text(f"Text {number} of {len(ROWS)}")
        expect(page.locator("#text")).to_have_text(ROWS[number - 1][0].strip())


def test_keys_label_go_back_and_skip(page: Page, file: Path) -> None:
    with started(file, "--labels", "positive,negative", "--then", "unmask learn runs/x") as running:
        page.goto(running.url)
        at(page, 1)
        suggested = page.locator(".labels button.suggested")
        expect(suggested).to_have_text("1positivesuggested 91.2%Enter")
        boxes = [box for button in page.locator(".labels button").all() if (box := button.bounding_box())]
        assert len(boxes) == 2 and all(box["height"] < 70 for box in boxes)  # no name is squeezed
        expect(page.locator("#labeled")).to_have_text("1 of 6 labeled")
        press(page, "2", 2)
        assert saved(file) == ["negative", "", "", "", "mixed", ""]
        expect(page.locator("#labeled")).to_have_text("2 of 6 labeled")
        expect(page.locator("#status")).to_have_text("Saved: negative")
        press(page, "Enter", 3)  # accepts the suggestion
        assert saved(file) == ["negative", "negative", "", "", "mixed", ""]
        press(page, "Backspace", 2)
        expect(page.locator('.labels button[aria-pressed="true"] .name')).to_contain_text("negative")
        press(page, "ArrowLeft", 1)
        page.keyboard.press("u")
        expect(page.locator('.labels button[aria-pressed="true"]')).to_have_count(0)
        assert saved(file) == ["", "negative", "", "", "mixed", ""]
        press(page, "1", 3)  # the next text without a label
        assert saved(file) == ["positive", "negative", "", "", "mixed", ""]
        press(page, " ", 4)
        press(page, "ArrowRight", 5)  # both are skipped
        expect(page.locator(".other")).to_have_text("Label in the file: mixed")
        expect(page.locator('.labels button[aria-pressed="true"]')).to_have_count(0)
        assert saved(file) == ["positive", "negative", "", "", "mixed", ""]
        press(page, "ArrowRight", 6)
        page.keyboard.press("Enter")  # no suggestion
        page.keyboard.press("9")  # no such label
        press(page, "2", 7)
        expect(page.locator("#done")).to_have_text("4 of 6 texts are labeled")
        expect(page.locator("#next")).to_have_text("unmask learn runs/x")
        press(page, "Enter", 3)  # the skipped texts
        page.click('.labels button:has-text("positive")')
        at(page, 4)
        press(page, " ", 5)  # the focus is on the text again, not on the button
        press(page, "ArrowLeft", 4)
        press(page, "Enter", 7)
        assert saved(file) == ["positive", "negative", "positive", "negative", "mixed", "negative"]
        expect(page.locator("#done")).to_have_text("All 6 texts are labeled")
        press(page, "ArrowLeft", 6)


def test_reload_kill_and_resume(page: Page, file: Path) -> None:
    with started(file, "--labels", "positive,negative") as running:
        page.goto(running.url)
        at(page, 1)
        press(page, "1", 2)
        press(page, "ArrowRight", 3)
        page.reload()
        at(page, 3)  # the same text
        expect(page.locator("#labeled")).to_have_text("2 of 6 labeled")
        press(page, "2", 4)
        running.process.send_signal(signal.SIGKILL)
        running.process.wait(30)
        page.keyboard.press("1")
        expect(page.locator(".trouble")).to_contain_text("unmask label")
        at(page, 4)
    assert saved(file) == ["positive", "", "negative", "", "mixed", ""]
    with started(file, "--labels", "positive,negative") as again:
        page.goto(again.url)
        at(page, 2)  # the first one without a label
        press(page, "2", 4)
        assert saved(file) == ["positive", "negative", "negative", "", "mixed", ""]
        again.process.send_signal(signal.SIGINT)
        assert again.process.wait(40) == 0
    said = "".join(again.complained)
    assert f"4 of 6 texts are labeled in {file}" in said
    assert f"to continue: unmask label {file} --labels positive,negative" in said


def test_changed_file_is_not_overwritten(page: Page, file: Path) -> None:
    with started(file, "--labels", "positive,negative") as running:
        page.goto(running.url)
        at(page, 1)
        text = file.read_text("utf-8").replace("the last one", "the very last one")
        file.write_text(text, "utf-8", newline="")
        page.keyboard.press("1")
        expect(page.locator(".trouble")).to_contain_text("another program changed or removed to_label.csv")
        expect(page.locator(".trouble")).to_contain_text("stop this server with Ctrl-C and start it again")
        at(page, 1)
    assert file.read_bytes() == text.encode()


def test_long_text_scrolls_and_stays_beside_the_buttons(page: Page, file: Path) -> None:
    with started(file, "--labels", "positive,negative") as running:
        page.goto(f"{running.url}/#4")
        at(page, 4)
        heights = page.evaluate(
            "[document.querySelector('#text').scrollHeight, document.querySelector('#text').clientHeight]"
        )
        assert heights[0] > 2 * heights[1]
        page.keyboard.press("PageDown")
        until_scrolled = "document.querySelector('#text').scrollTop > 0"
        for _ in range(100):
            if page.evaluate(until_scrolled):
                break
            page.wait_for_timeout(50)
        assert page.evaluate(until_scrolled)
        box = page.locator(".labels button").first.bounding_box()
        assert box and box["y"] + box["height"] < 900


def test_many_labels_have_keys_and_a_search_box(page: Page, file: Path) -> None:
    names = [f"label {n}" for n in range(1, 51)]
    with started(file, "--labels", ",".join(names)) as running:
        page.goto(running.url)
        at(page, 1)
        keys = page.locator(".labels kbd").all_text_contents()
        assert "".join(keys) == "123456789abcdefghijklmnopqrstvwxyz"
        expect(page.locator(".labels button")).to_have_count(50)
        press(page, "z", 2)
        assert saved(file)[0] == "label 34"
        page.keyboard.press("/")
        page.keyboard.type("50")
        expect(page.locator(".labels button")).to_have_count(1)
        press(page, "Enter", 3)
        assert saved(file)[1] == "label 50"
        page.click('.labels button:has-text("label 49")')
        at(page, 4)
        assert saved(file)[2] == "label 49"


def test_languages_themes_and_pictures(browser: Browser, file: Path, tmp_path: Path) -> None:
    """UNMASK_PICTURES=folder keeps the pictures, to look at them."""
    folder = Path(os.environ.get("UNMASK_PICTURES", tmp_path))
    with started(file, "--labels", "positive,negative,mixed") as running:
        for scheme, language, said in (("light", "en-US", "1 of 6 labeled"), ("dark", "zh-CN", "已标注 1 / 6")):
            context = browser.new_context(locale=language, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            for name in ("", "#3", "#4", "#5", "#7"):
                page.goto(f"{running.url}/{name}")
                page.reload()
                expect(page.locator("#labeled")).to_have_text(said)
                page.screenshot(path=folder / f"label-{scheme}{name.replace('#', '-')}.png")
            context.close()
