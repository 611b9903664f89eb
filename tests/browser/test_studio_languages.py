"""Studio examples and notes follow the language of the model, not of the user interface. Real Chromium, untrained models."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from server.serving import SHAPE, server

from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.text.tokenizer import Tokenizer

pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)
TEXTS = {
    "english": "The president of the United States lives in the White House. The old man opened the door and his dog ran "
    "into the garden. She opened an account at the bank.",
    "chinese": "中国的首都是北京，那里有很多名胜古迹。老人打开门，他的狗跑进了花园。我每天早上吃一个苹果。",
    "protein": "E V Q L V E S G G G L V Q P G G S L R L S C A A S K F T M D W Y I N H",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("languages")
    for name, text in TEXTS.items():
        settings = TokenizerRecipe(type="wordpiece", vocab_size=0, min_frequency=1, lowercase=False)
        tokenizer = Tokenizer.train([text] * 20, settings)
        config = preset("bert-tiny", **SHAPE, vocab_size=tokenizer.size, pad_id=tokenizer.pad)
        hf.save(Model(config, ("mlm",)).init(0), root / name, tokenizer)
    with server(*(str(root / name) for name in TEXTS)) as running:
        yield running.url


@pytest.fixture(scope="module", params=["en-US", "zh-CN"])
def page(request: pytest.FixtureRequest, url: str) -> Iterator[Page]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        new_page = browser.new_page(locale=request.param, viewport={"width": 1200, "height": 900})
        new_page.goto(url)
        yield new_page
        browser.close()


def open_view(page: Page, view: str, model: str) -> None:
    page.click(f'nav a[href="#{view}"]')
    page.select_option("#model", model)
    expect(page.locator("[aria-busy]")).to_have_count(0)


@pytest.mark.parametrize(("view", "field"), [("fill", "#text"), ("look", "#text"), ("meaning", "#sentences")])
def test_example_is_in_the_language_of_the_model(page: Page, view: str, field: str) -> None:
    for model in TEXTS:  # an example that the user has not edited changes with the model
        open_view(page, view, model)
        shown = page.locator(field).input_value().replace("[MASK]", "")
        letters = {letter for letter in shown if letter.isalpha()}
        kinds = {"english": str.isascii, "chinese": lambda c: "一" <= c <= "龥", "protein": TEXTS["protein"].count}
        assert letters and all(map(kinds[model], letters)), shown


def test_user_text_is_kept_when_the_model_changes(page: Page) -> None:
    open_view(page, "look", "english")
    page.fill("#text", "The old dog")
    open_view(page, "look", "chinese")
    expect(page.locator("#text")).to_have_value("The old dog")
    page.fill("#text", "")


def test_text_with_unknown_words_shows_a_note(page: Page) -> None:
    open_view(page, "fill", "english")
    page.fill("#text", "我们今天去看[MASK]影。")
    expect(page.locator(".note")).to_have_count(1)
    expect(page.locator(".note")).to_contain_text("100%")
    page.fill("#text", "The old [MASK] opened the door")
    expect(page.locator(".bars button").first).to_be_visible()
    expect(page.locator(".note")).to_have_count(0)
    open_view(page, "look", "english")
    page.fill("#text", "我们今天去看电影")
    page.click("#look")
    expect(page.locator(".note")).to_have_count(3)  # surprisal, attention, attribution
