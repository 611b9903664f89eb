"""The studio in real Chromium, with really trained models: each view used as a person would, by mouse and by keyboard."""

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
expect.set_options(timeout=30_000)  # on a busy machine; nothing waits that long otherwise
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
        found = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-US", color_scheme="light")
    made.set_default_timeout(20_000)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, url: str) -> Iterator[Page]:
    """Where nothing of the page's own may go wrong: no error in the console, no breach of the policy, nothing of a user's run."""
    found = context.new_page()
    said: list[str] = []
    found.on("pageerror", lambda error: said.append(f"error: {error}"))
    found.on("console", lambda line: said.append(line.text) if line.type in ("error", "warning") else None)
    found.on("dialog", lambda dialog: (said.append("a dialog"), dialog.dismiss()))
    found.add_init_script(WATCH)
    found.goto(url)
    yield found
    assert found.evaluate("window.broken") == [] and found.evaluate("window.owned === undefined")
    refused = "status of 422"  # a model that cannot do what a view shows: Chromium notes every such answer
    assert [line for line in said if refused not in line] == []


def go(page: Page, view: str, model: str = "", second: str = "") -> None:
    page.click(f'nav a[href="#{view}"]')
    if model:
        page.select_option("#model", model)
    if second:
        page.select_option("#second", second)


def until(page: Page, condition: str, seconds: float = 60) -> None:
    """playwright's own waiting evaluates text in the page, which its policy forbids."""
    for _ in range(int(seconds * 10)):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(condition)


# -------------------------------------------------------------------------------------------------------------- fill


def test_fill_by_clicks(page: Page) -> None:
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
    page.click(".word.hidden")  # again: the word is back
    expect(page.locator("#text")).to_have_value(SENTENCE)
    expect(page.locator(".hint")).to_be_visible()
    page.click(".paper >> text=Rome")
    word = rows.nth(1).locator(".name").text_content()
    rows.nth(1).click()
    expect(page.locator("#text")).to_have_value(
        re.compile(rf"Ann lives in ?{re.escape((word or '').lstrip('#'))} ?and", re.I)
    )
    expect(page.locator(".word.new")).to_have_count(1)


def test_fill_several_masks_together(page: Page) -> None:
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


def test_fill_with_given_words_only(page: Page) -> None:
    go(page, "fill", "mini")
    page.fill("#text", "Ann lives in [MASK] .")
    page.fill("#only", "Rome, Oslo，bank")
    expect(page.locator(".bars button")).to_have_count(3)
    names = page.locator(".bars .name").all_text_contents()
    assert {text.strip().lower() for text in names} == {"rome", "oslo", "bank"}
    page.fill("#only", "")
    expect(page.locator(".bars button")).to_have_count(5)


def test_a_visit_begins_with_what_the_model_can_do(page: Page, url: str) -> None:
    expect(page.locator("h1")).to_have_text("Fill")  # the first model is "mini"
    page.select_option("#model", "classify")  # remembered
    page.goto("about:blank")
    page.goto(url)
    expect(page.locator("h1")).to_have_text("Task")
    page.click('nav a[href="#meaning"]')
    page.click(".brand")
    expect(page.locator("h1")).to_have_text("Task")


def test_look_begins_with_something_to_explain(page: Page) -> None:
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
    expect(page.locator(".trouble")).to_have_count(1)  # it cannot score


def test_fill_by_keyboard(page: Page) -> None:
    go(page, "fill", "mini")
    page.fill("#text", SENTENCE)
    page.locator(".word", has_text="bank").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".word.hidden")).to_be_focused()
    expect(page.locator(".bars button").first).to_be_visible()
    page.wait_for_timeout(1500)  # an answer that comes now would draw the list anew
    page.locator(".bars button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".bars button").nth(2)).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator(".bars button").last).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".word.hidden")).to_have_count(0)


def test_two_models_side_by_side_and_one_that_cannot(page: Page) -> None:
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


def test_look_at_attention_and_surprise(page: Page) -> None:
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
    lit = page.locator(".line.on")
    assert 0 < lit.count() < page.locator(".line").count()
    assert set(lit.evaluate_all("all => all.map((one) => one.dataset.from)")) == {"4"}
    total = sum(int(text.strip("%")) for text in page.locator(".weight").all_text_contents() if text)
    assert 50 < total <= 112


def test_look_explains_an_answer(page: Page) -> None:
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


def test_meaning_draws_points_and_a_matrix(page: Page) -> None:
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
    expect(page.locator("#points .scatterlayer .point")).to_have_count(5)  # twice in the last sentence
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


def test_task_labels(page: Page) -> None:
    go(page, "task", "classify")
    page.fill("#text", SENTENCE)
    page.click("#ask")
    rows = page.locator(".bars li")
    expect(rows).to_have_count(2)
    expect(page.locator(".bars li.on .name")).to_have_text("bank")


def test_task_entities_are_marked_in_the_text(page: Page) -> None:
    go(page, "task", "tag")
    page.fill("#text", SENTENCE)
    page.click("#ask")
    marks = page.locator(".passage mark")
    expect(marks).to_have_count(2)
    expect(marks.nth(0)).to_have_text("AnnPER")
    expect(marks.nth(1)).to_have_text("RomeLOC")
    expect(page.locator(".figures tr")).to_have_count(2)


def test_task_answer_is_marked_in_its_passage(page: Page) -> None:
    go(page, "task", "answer")
    page.fill("#question", "where does Ann live ?")
    page.fill("#context", f"🙂 {SENTENCE}")  # two units in JavaScript, one character here
    page.click("#ask")
    expect(page.locator(".value")).to_contain_text("Rome")
    expect(page.locator(".passage mark")).to_have_text("Rome")


def test_task_choices_and_ranking(page: Page) -> None:
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


def test_task_of_a_model_that_writes_and_of_one_without_a_task(page: Page) -> None:
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


def test_a_report_opens_without_scripts(page: Page, context: BrowserContext) -> None:
    go(page, "runs")
    page.click(".runs a >> text=pretrain/mini")
    with context.expect_page() as opened:
        page.click("text=Report")
    expect(opened.value.locator("h1")).to_contain_text("mini")
    assert opened.value.evaluate("document.querySelector('img').naturalWidth") > 0


def test_curves_grow_while_a_run_trains(page: Page, root: Path, url: str) -> None:
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


def test_fifty_injections_stay_text(page: Page, root: Path) -> None:
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
    for n in (0, 14):  # plotly's own markup in a label: a link, bold
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


# ------------------------------------------------------------------------------------------------- for every reader


def test_language_and_colours_are_switched_and_remembered(page: Page) -> None:
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


def test_the_reader_of_chinese_gets_chinese(browser: Browser, url: str) -> None:
    page = browser.new_page(locale="zh-CN", color_scheme="dark")
    page.goto(url)
    expect(page.locator("nav")).to_contain_text("词义")
    page.close()


@pytest.mark.parametrize("view", ["fill", "look", "meaning", "task", "runs"])
def test_every_view_fits_a_telephone_and_says_its_names(page: Page, view: str) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    go(page, view, "mini" if view != "runs" else "")
    expect(page.locator("[aria-busy]")).to_have_count(0)
    page.wait_for_timeout(300)  # what is drawn after an answer
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    nameless = """[...document.querySelectorAll('input, select, textarea, button')].filter((one) =>
        !(one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim())).map((one) => one.outerHTML)"""
    assert page.evaluate(nameless) == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")
    if folder := os.environ.get("UNMASK_PICTURES"):  # to look at them
        page.screenshot(path=f"{folder}/{view}-400.png", full_page=True)
