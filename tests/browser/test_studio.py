"""The studio in real Chromium with trained models: each view is operated by mouse and by keyboard."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.trained import corpus, train
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from report.test_task_report import INJECTIONS
from server.serving import server

pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # for busy machines; normally nothing waits this long
SENTENCE = "Ann lives in Rome and works in a bank ."
WATCH = """
window.own = (n) => { window.owned = n };
window.broken = [];
document.addEventListener("securitypolicyviolation", (e) => window.broken.push(`${e.violatedDirective} ${e.sourceFile}`));
"""
MODELS = (
    "pretrain/mini",
    "pretrain/gpt",
    *(f"finetune/{name}" for name in ("classify", "tag", "answer", "choose", "rank")),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studio")
    train(folder)
    return folder


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    runs = root / "runs"
    with server(str(runs), *(str(runs / name) for name in MODELS), verb="studio") as running:
        yield running.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    new_context = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-US", color_scheme="light")
    new_context.set_default_timeout(20_000)
    yield new_context
    new_context.close()


@pytest.fixture
def page(context: BrowserContext, url: str) -> Iterator[Page]:
    """Return a page that must stay clean: no console errors, no CSP violations and no code from user text."""
    new_page = context.new_page()
    messages: list[str] = []
    new_page.on("pageerror", lambda error: messages.append(f"error: {error}"))
    new_page.on("console", lambda line: messages.append(line.text) if line.type in ("error", "warning") else None)
    new_page.on("dialog", lambda dialog: (messages.append("a dialog"), dialog.dismiss()))
    new_page.add_init_script(WATCH)
    new_page.goto(url)
    yield new_page
    assert new_page.evaluate("window.broken") == [] and new_page.evaluate("window.owned === undefined")
    unsupported = "status of 422"  # the model does not support the view; Chromium logs every such response
    assert [line for line in messages if unsupported not in line] == []


def go(page: Page, view: str, model: str = "", second: str = "") -> None:
    page.click(f'nav a[href="#{view}"]')
    if model:
        page.select_option("#model", model)
    if second:
        page.select_option("#second", second)


def until(page: Page, condition: str, seconds: float = 60) -> None:
    """Poll `condition`. playwright's own wait evaluates a string in the page, which the page's CSP forbids."""
    for _ in range(int(seconds * 10)):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(condition)


# -------------------------------------------------------------------------------------------------------------- fill


def test_fill_by_mouse(page: Page) -> None:
    go(page, "fill", "mini")
    page.fill("#text", SENTENCE)
    page.click(".paper >> text=Rome")
    expect(page.locator("#text")).to_have_value(SENTENCE.replace("Rome", "[MASK]"))
    expect(page.locator("h3 i")).to_have_text("was “Rome”")
    rows = page.locator(".bars button")
    expect(rows).to_have_count(5)
    shares = [float(text.strip("%<")) for text in page.locator(".bars .figure").all_text_contents()]
    assert shares == sorted(shares, reverse=True)
    widths = [box["width"] for bar in page.locator(".bars .bar > span").all() if (box := bar.bounding_box())]
    assert widths[0] > widths[-1] > 0
    page.click(".word.hidden")  # a second click restores the word
    expect(page.locator("#text")).to_have_value(SENTENCE)
    expect(page.locator(".hint")).to_be_visible()
    page.click(".paper >> text=Rome")
    word = rows.nth(1).locator(".name").text_content()
    rows.nth(1).click()
    expect(page.locator("#text")).to_have_value(
        re.compile(rf"Ann lives in ?{re.escape((word or '').lstrip('#'))} ?and", re.I)
    )
    expect(page.locator(".word.new")).to_have_count(1)


def test_fill_multiple_masks_jointly(page: Page) -> None:
    go(page, "fill", "mini")
    page.fill("#text", "Ann [MASK] in [MASK] and works in a bank .")
    expect(page.locator(".mask ol")).to_have_count(3)
    page.select_option("#num_beams", "5")
    expect(page.locator(".whole button")).to_have_count(5)
    figures = [float(text) for text in page.locator(".whole .figure").all_text_contents()]
    assert figures == sorted(figures, reverse=True)
    best = page.locator(".whole button").first.locator("span").first.text_content()
    page.locator(".whole button").first.click()
    expect(page.locator("#text")).to_have_value(best or "")


def test_fill_from_a_candidate_list(page: Page) -> None:
    go(page, "fill", "mini")
    page.fill("#text", "Ann lives in [MASK] .")
    page.fill("#only", "Rome, Oslo，bank")
    expect(page.locator(".bars button")).to_have_count(3)
    names = page.locator(".bars .name").all_text_contents()
    assert {text.strip().lower() for text in names} == {"rome", "oslo", "bank"}
    page.fill("#only", "")
    expect(page.locator(".bars button")).to_have_count(5)


def test_studio_opens_with_a_view_that_the_model_supports(page: Page, url: str) -> None:
    expect(page.locator("h1")).to_have_text("Fill")  # the first model is "mini"
    page.select_option("#model", "classify")  # the selection is remembered
    page.goto("about:blank")
    page.goto(url)
    expect(page.locator("h1")).to_have_text("Task")
    page.click('nav a[href="#meaning"]')
    page.click(".brand")
    expect(page.locator("h1")).to_have_text("Task")


def test_look_view_starts_with_an_example(page: Page) -> None:
    go(page, "look", "mini")
    for part in ("#score .scored", "#attention .heads button", "#explain .chip"):
        expect(page.locator(part).first).to_be_visible()
    expect(page.locator("#explain")).to_contain_text("With “garden” masked")
    expect(page.locator("#explain .chip", has_text="[MASK]")).to_have_count(1)
    page.fill("#text", "Ann [MASK] in Rome .")
    page.click("#look")
    expect(page.locator("#explain")).not_to_contain_text("masked:")
    page.select_option("#model", "classify")
    expect(page.locator("#explain .chip").first).to_be_visible()
    expect(page.locator(".trouble")).to_have_count(1)  # this model cannot score


def test_fill_by_keyboard(page: Page) -> None:
    go(page, "fill", "mini")
    page.fill("#text", SENTENCE)
    page.locator(".word", has_text="bank").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".word.hidden")).to_be_focused()
    expect(page.locator(".bars button").first).to_be_visible()
    page.wait_for_timeout(1500)  # a late response would re-render the list
    page.locator(".bars button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".bars button").nth(2)).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator(".bars button").last).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".word.hidden")).to_have_count(0)


def test_two_models_are_compared_side_by_side(page: Page) -> None:
    go(page, "fill", "mini", "classify")
    page.fill("#text", "Ann lives in [MASK] .")
    columns = page.locator(".answers section")
    expect(columns).to_have_count(2)
    expect(columns.nth(0).locator(".bars li")).to_have_count(5)
    expect(columns.nth(1).locator(".trouble")).to_contain_text("this model cannot fill a mask")
    expect(columns.nth(1).locator(".trouble code")).to_contain_text("unmask pretrain")
    page.select_option("#second", "mini")
    expect(columns.nth(1).locator(".bars li")).to_have_count(5)


# -------------------------------------------------------------------------------------------------------------- look


def test_look_shows_attention_and_surprisal(page: Page) -> None:
    go(page, "look", "mini")
    page.fill("#text", SENTENCE)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#score .scored")).to_have_count(10)
    expect(page.locator("#attention .heads button")).to_have_count(8)
    expect(page.locator(".token.from")).to_have_count(12)
    drawn = page.locator(".line").count()
    assert drawn > 20
    before = page.locator(".lines path").evaluate_all(
        "all => all.map((one) => one.getAttribute('stroke-opacity')).join()"
    )
    page.locator(".heads button").nth(0).focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".heads button").nth(4)).to_be_focused()
    expect(page.locator("#layer")).to_have_value("1")
    after = page.locator(".lines path").evaluate_all(
        "all => all.map((one) => one.getAttribute('stroke-opacity')).join()"
    )
    assert before != after
    page.locator(".token.from").nth(4).hover()
    highlighted = page.locator(".line.on")
    assert 0 < highlighted.count() < page.locator(".line").count()
    assert set(highlighted.evaluate_all("all => all.map((one) => one.dataset.from)")) == {"4"}
    total = sum(int(text.strip("%")) for text in page.locator(".weight").all_text_contents() if text)
    assert 50 < total <= 112


def test_look_explains_a_prediction(page: Page) -> None:
    go(page, "look", "classify")
    page.fill("#text", SENTENCE)
    page.click("#look")
    expect(page.locator("#explain .chip")).to_have_count(12)
    first = page.locator("#explain .faint").last.text_content()
    page.select_option("#target", "school")
    expect(page.locator("#explain .faint").last).to_contain_text("school")
    assert first is not None and "integrated gradients" in first
    expect(page.locator("#score .trouble")).to_contain_text("cannot score a text")
    page.select_option("#model", "mini")
    page.fill("#text", "Ann lives in [MASK] .")
    page.click("#look")
    expect(page.locator("#explain .chip")).to_have_count(7)


# ------------------------------------------------------------------------------------------------------------ meaning


def test_meaning_shows_a_scatter_plot_and_a_similarity_matrix(page: Page) -> None:
    go(page, "meaning", "mini")
    texts = [
        SENTENCE,
        "the old bank of the river is green .",
        "Ben works in a bank .",
        "no such word",
        "a bank and a bank",
    ]
    page.fill("#sentences", "\n".join(texts))
    page.fill("#word", "bank")
    page.click("#draw")
    expect(page.locator("#points .scatterlayer .point")).to_have_count(5)  # the word occurs twice in the last sentence
    expect(page.locator("#points .held b")).to_have_count(5)
    expect(page.locator("#points .found")).to_contain_text("Sentences without the word: 1")
    expect(page.locator("#matrix .heatmaplayer image")).to_have_count(1)
    expect(page.locator("#matrix .hm text, #matrix .heatmap-label text")).to_have_count(25)
    page.select_option("#layer", "0")
    expect(page.locator("#points .scatterlayer .point")).to_have_count(5)
    page.fill("#word", "zebra")
    page.keyboard.press("Enter")
    expect(page.locator("#points .trouble")).to_contain_text("zebra")


# --------------------------------------------------------------------------------------------------------------- task


def test_task_shows_label_scores(page: Page) -> None:
    go(page, "task", "classify")
    page.fill("#text", SENTENCE)
    page.click("#ask")
    rows = page.locator(".bars li")
    expect(rows).to_have_count(2)
    expect(page.locator(".bars li.on .name")).to_have_text("bank")


def test_task_highlights_entities_in_the_text(page: Page) -> None:
    go(page, "task", "tag")
    page.fill("#text", SENTENCE)
    page.click("#ask")
    marks = page.locator(".passage mark")
    expect(marks).to_have_count(2)
    expect(marks.nth(0)).to_have_text("AnnPER")
    expect(marks.nth(1)).to_have_text("RomeLOC")
    expect(page.locator(".figures tr")).to_have_count(2)


def test_task_highlights_the_answer_in_its_passage(page: Page) -> None:
    go(page, "task", "answer")
    page.fill("#question", "where does Ann live ?")
    page.fill("#context", f"🙂 {SENTENCE}")  # the emoji is two UTF-16 units in JavaScript, but one character in Python
    page.click("#ask")
    expect(page.locator(".value")).to_contain_text("Rome")
    expect(page.locator(".passage mark")).to_have_text("Rome")


def test_task_shows_choices_and_rankings(page: Page) -> None:
    go(page, "task", "choose")
    page.fill("#text", "Ann lives in")
    page.fill("#choices", "the list\nRome\na river")
    page.click("#ask")
    expect(page.locator(".bars li")).to_have_count(3)
    expect(page.locator(".bars li.on")).to_have_count(1)
    go(page, "task", "rank")
    page.fill("#query", "where does Ben live ?")
    page.fill("#passages", "Ann lives in Rome .\nBen lives in Paris .\nthe list is long .")
    page.click("#ask")
    rows = page.locator(".ranked li")
    expect(rows).to_have_count(3)
    figures = [float(text) for text in page.locator(".ranked .figure").all_text_contents()]
    assert figures == sorted(figures, reverse=True)


def test_task_view_of_a_generative_model_and_of_a_model_without_a_task(page: Page) -> None:
    go(page, "task", "gpt")
    page.select_option("#form", "generate")
    page.fill("#text", "Ann lives")
    page.select_option("#length", "20")
    page.click("#ask")
    expect(page.locator(".passage b")).not_to_be_empty()
    go(page, "task", "mini")
    expect(page.locator(".bars li")).to_have_count(1)  # similarity
    page.select_option("#form", "next_sentence")
    expect(page.locator(".bars li")).to_have_count(2)
    go(page, "task", "tag", "mini")
    expect(page.locator(".answers section").nth(1).locator(".trouble")).to_contain_text("not fine-tuned")


# --------------------------------------------------------------------------------------------------------------- runs


def test_runs_are_listed_opened_and_compared(page: Page) -> None:
    go(page, "runs")
    expect(page.locator(".runs tbody tr")).to_have_count(len(MODELS))
    page.click(".runs a >> text=pretrain/mini")
    expect(page.locator('.plot[data-key="loss"] .scatterlayer .trace')).to_have_count(3)
    expect(page.locator("#batch .part.masked").first).to_be_visible()
    page.click("summary")
    expect(page.locator(".settings")).to_contain_text("train.batch_size")
    page.click("text=all runs")
    expect(page.locator("#compare")).to_be_disabled()
    for name in ("finetune/tag", "finetune/classify"):
        page.check(f'input[value="{name}"]')
    page.click("#compare")
    expect(page.locator(".settings tbody")).to_contain_text("task.name")
    expect(page.locator(".settings tbody")).not_to_contain_text("train.batch_size")
    expect(page.locator('.plot[data-key="loss"] .scatterlayer .trace').nth(1)).to_be_attached()


def test_report_is_served_without_scripts(page: Page, context: BrowserContext) -> None:
    go(page, "runs")
    page.click(".runs a >> text=pretrain/mini")
    with context.expect_page() as opened:
        page.click("text=Report")
    expect(opened.value.locator("h1")).to_contain_text("mini")
    assert opened.value.evaluate("document.querySelector('img').naturalWidth") > 0


def test_curves_update_during_training(page: Page, root: Path, url: str) -> None:
    out = root / "runs" / "pretrain" / "live"
    text = corpus(root / "live.txt")
    code = (
        "import sys; from unmask import api; api.pretrain(sys.argv[1], preset='bert-tiny', objective='mlm', steps=100000, batch_size=4, "
        "max_length=32, out=sys.argv[2], overrides=['model.layers=1', 'train.threads=1', 'train.num_evals=1', 'train.max_eval_examples=8'])"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(text), str(out)], stderr=subprocess.DEVNULL) as training:
        try:
            go(page, "runs")
            page.click(".runs a >> text=pretrain/live", timeout=90_000)
            expect(page.locator(".state")).to_have_text("running")
            count = "document.querySelector('.plot[data-key=loss]')?.data?.[0]?.x.length ?? 0"
            until(page, f"{count} > 5")
            until(page, f"{count} > {page.evaluate(count)}")
        finally:
            training.terminate()
            training.wait(60)
    expect(page.locator(".state")).to_have_text("interrupted", timeout=30_000)
    shutil.rmtree(out)


# ------------------------------------------------------------------------------------------------------------- safety


def test_injected_markup_is_shown_as_text(page: Page, root: Path) -> None:
    assert len(INJECTIONS) == 50
    folder = root / "runs" / "x" / "<img src=x onerror=own(1)>"
    folder.mkdir(parents=True)
    values = {f"k{n}": text for n, text in enumerate(INJECTIONS)}
    (folder / "recipe.yaml").write_text(
        json.dumps({"preset": INJECTIONS[0], "objective": INJECTIONS[1], "more": values})
    )
    events = [{"event": "warning", "step": 1, "text": text} for text in INJECTIONS[-5:]]
    events += [{"event": "eval", "step": n, "loss": 1.0, INJECTIONS[1]: 0.5, INJECTIONS[14]: 0.5} for n in (1, 2)]
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    try:
        tags = "[...document.querySelectorAll('body *')].map((one) => one.localName)"
        go(page, "runs")
        page.locator(".runs .name a", has_text="onerror").click()
        expect(page.locator(".warning")).to_have_count(5)
        page.click("summary")
        shown = page.locator(".settings").inner_text()
        assert all(text.split("\u2028")[-1] in shown for text in INJECTIONS)
        expect(page.locator(".plot").nth(1)).to_contain_text("onerror=own(1)")
        assert not {"img", "script", "iframe", "style", "object", "embed", "form", "video"} & set(page.evaluate(tags))
    finally:
        shutil.rmtree(root / "runs" / "x")
    go(page, "meaning", "mini")
    page.fill("#sentences", "\n".join(f"{text} bank" for text in INJECTIONS))
    page.fill("#word", "bank")
    page.click("#draw")
    expect(page.locator("#points .held li")).to_have_count(50)
    points = page.locator("#points .scatterlayer .point")
    expect(points).to_have_count(50)
    for n in (0, 14):  # plotly markup in a label: a link, bold text
        points.nth(n).hover(force=True)
    assert page.locator("a[href^='javascript'], svg a").count() == 0
    go(page, "task", "tag")
    go(page, "fill", "mini")
    for text in INJECTIONS:
        page.fill("#text", f"{text} [MASK]")
        assert (
            page.locator(".paper").inner_text().replace("?", "").strip().startswith(text[:4].strip().replace("?", ""))
        )
    expect(page.locator(".bars li")).to_have_count(5)
    assert not {"img", "script", "iframe", "style"} & set(
        page.evaluate("[...document.querySelectorAll('main *')].map((one) => one.localName)")
    )
    assert page.title() == "Fill · unmask"


# ------------------------------------------------------------------------------------------------- languages, accessibility


def test_language_and_color_scheme_are_remembered(page: Page) -> None:
    go(page, "fill")
    page.click("#language")
    expect(page.locator("h1")).to_have_text("填空")
    expect(page.locator("#language")).to_be_focused()
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    expect(page.locator("h1")).to_have_text("填空")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_chinese_locale_selects_chinese(browser: Browser, url: str) -> None:
    page = browser.new_page(locale="zh-CN", color_scheme="dark")
    page.goto(url)
    expect(page.locator("nav")).to_contain_text("词义")
    page.close()


@pytest.mark.parametrize("view", ["fill", "look", "meaning", "task", "runs"])
def test_every_view_fits_a_phone_and_has_accessible_names(page: Page, view: str) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    go(page, view, "mini" if view != "runs" else "")
    expect(page.locator("[aria-busy]")).to_have_count(0)
    page.wait_for_timeout(300)  # rendering continues after the response
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    nameless = """[...document.querySelectorAll('input, select, textarea, button')].filter((one) =>
        !(one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim())).map((one) => one.outerHTML)"""
    assert page.evaluate(nameless) == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")
    if folder := os.environ.get("UNMASK_PICTURES"):  # save screenshots for review
        page.screenshot(path=f"{folder}/{view}-400.png", full_page=True)
