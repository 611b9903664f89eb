"""The studio backend: static files under a strict CSP, model routes, and translations in both languages."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from near import gap
from server.serving import FACTS, base_model, server
from starlette.testclient import TestClient
from typer.testing import CliRunner

from unmask.cli import app as cli
from unmask.server.app import make_app
from unmask.server.studio.page_files import PAGE

TEXT = FACTS[0]  # "Ann lives in Rome ."


class Page:
    """Client for the studio server that sends the requests of the page."""

    def __init__(self, url: str):
        self.client = httpx.Client(base_url=url, timeout=60)

    def get(self, path: str, **values: Any) -> httpx.Response:
        return self.client.get(path, params=values or None)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(f"/studio/{path}", json={"model": "mlm"} | body)

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.post(path, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("studio")
    (root / "runs").mkdir()
    base_model(root / "mlm", heads=("mlm", "pooler", "nsp"))
    base_model(root / "gpt", "gpt2-mini", ("lm",))
    return root


@pytest.fixture(scope="module")
def page(models: Path) -> Iterator[Page]:
    with server(str(models / "runs"), str(models / "mlm"), str(models / "gpt"), verb="studio") as running:
        yield Page(running.url)


# ------------------------------------------------------------------------------------------------------------ files


def test_page_and_assets_are_served_with_a_strict_csp(page: Page) -> None:
    html = page.get("/")
    assert html.status_code == 200 and html.headers["content-type"].startswith("text/html")
    policy = html.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    for path in PAGE.iterdir():
        answer = page.get(f"/studio/page/{path.name}")
        assert answer.status_code == 200 and answer.headers["x-content-type-options"] == "nosniff"
    assert page.get("/studio/page/main.js").headers["content-type"].startswith("text/javascript")
    assert b"plotly.js" in page.get("/studio/plotly.js").content[:200]


@pytest.mark.parametrize("name", ["../routes.py", "..%2froutes.py", "%2e%2e/routes.py", "nothing.js", "..", "a%00b"])
def test_other_files_are_not_served(page: Page, name: str) -> None:
    assert page.get(f"/studio/page/{name}").status_code == 404


def test_page_has_no_inline_script_style_or_handler() -> None:
    for path in PAGE.glob("*.html"):
        html = path.read_text("utf-8")
        inline = r"<style|\son\w+=|style=|javascript:|<script(?![^>]*\bsrc=)|https?://(?!www\.w3\.org)"
        assert not re.search(inline, html), path.name
    for path in PAGE.glob("*.js"):
        code = path.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code), (
            path.name
        )


# ------------------------------------------------------------------------------------------------------- translations


def table(language: str) -> dict[str, str]:
    text = (PAGE / f"{language}.js").read_text("utf-8")
    return json.loads(text[text.index("{") :].rstrip().removesuffix(";"))


def test_both_languages_have_the_same_keys_and_placeholders() -> None:
    english, chinese = table("en"), table("zh")
    assert list(english) == list(chinese)
    for key, text in english.items():
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(re.findall(r"\{\w+\}", chinese[key])), key
    untranslated = [
        key for key, text in chinese.items() if re.search("[a-z]{4}", text) and not re.search("[\u4e00-\u9fff]", text)
    ]
    assert set(untranslated) <= {"switch.language", "keys.send", "look.value"}


def test_translation_keys_are_all_used_and_all_defined() -> None:
    code = "".join(path.read_text("utf-8") for path in PAGE.glob("*.js") if path.stem not in ("en", "zh"))
    keys = table("en")
    plain = set(re.findall(r"\bt\(\s*\"([\w.]+)\"", code)) | set(re.findall(r"\"(look\.(?:pseudo|perplexity))\"", code))
    plain |= {f"{key}.example" for key in re.findall(r"\bexample\(\s*\"([\w.]+)\"", code)}
    assert plain <= set(keys), plain - set(keys)
    dynamic = [
        re.sub(r"\$\{[^}]*\}", r"[\\w.]+", pattern.replace(".", r"\."))
        for pattern in re.findall(r"t\(\s*`([^`]+)`", code)
        + [f"{key}.example" for key in re.findall(r"\bexample\(\s*`([^`]+)`", code)]
    ]
    unused = [key for key in keys if key not in plain and not any(re.fullmatch(pattern, key) for pattern in dynamic)]
    assert not unused


# ------------------------------------------------------------------------------------------------------------- models


def test_models_list_their_capabilities(page: Page) -> None:
    mlm, gpt = page.get("/studio/models").json()
    assert (
        "fill" in mlm["methods"]
        and [form["name"] for form in mlm["forms"]] == ["similarity", "next_sentence"]
        and mlm["task"] is None
    )
    assert (
        "generate" in [form["method"] for form in gpt["forms"]] and "fill" not in gpt["methods"] and gpt["mask"] is None
    )


def test_fill_masks_independently_and_with_beam_search(page: Page) -> None:
    response = page.ask("fill", text="Ann [MASK] in [MASK] .", top_k=3, num_beams=4)
    assert [len(mask["candidates"]) for mask in response["masks"]] == [3, 3] and 1 <= len(response["joint"]) <= 4


def test_attention_is_returned_as_bytes(page: Page) -> None:
    import base64

    response = page.ask("attention", text=TEXT)
    layers, heads, size, _ = response["shape"]
    shades = np.frombuffer(base64.b64decode(response["shades"]), np.uint8).reshape(response["shape"])
    assert (layers, heads) == (2, 2) and size == len(response["tokens"])
    assert np.abs(shades.sum(-1) / 255 - 1).max() < size / 255


def test_embeddings_of_a_word_in_many_sentences(page: Page) -> None:
    texts = [f"{name} lives in Rome ." for name in ("Ann", "Ben", "Cleo")]
    response = page.ask("word", word="LIVES", sentences=[texts[0], "nothing of it", *texts[1:]], layer=1)
    assert [occurrence["number"] for occurrence in response["occurrences"]] == [0, 2, 3] and np.array(
        response["points"]
    ).shape == (
        3,
        2,
    )
    few = page.post("word", word="lives", sentences=texts[:2])
    assert few.status_code == 422 and "occurs 2 times" in few.json()["error"]["message"]


def test_sentence_similarities(page: Page) -> None:
    similarity = np.array(page.ask("similarity", sentences=FACTS[:2])["similarity"])
    assert similarity.shape == (2, 2) and gap(np.diag(similarity), 1) <= 1e-5


def test_unsupported_task_returns_the_error_of_the_model(page: Page) -> None:
    answer = page.post("task", record={"text": TEXT})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert "not fine-tuned" in error["message"] and "unmask finetune" in error["hint"]


def test_causal_model_generates(page: Page) -> None:
    response = page.ask("task", model="gpt", method="generate", record={"text": "Ann lives"}, length=4)
    assert response["text"] == "Ann lives" and len(response["tokens"]) <= 4


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("fill", {"text": "a [MASK]", "top_k": 0}),
        ("fill", {"text": "a [MASK]", "tpo": 3}),
        ("fill", {"text": 3}),
        ("fill", {}),
        ("word", {"word": "", "sentences": ["a"]}),
        ("word", {"word": "a", "sentences": []}),
        ("word", {"word": "lives", "sentences": FACTS[:3], "layer": 99}),
        ("similarity", {"sentences": ["a"]}),
        ("explain", {"parts": []}),
        ("task", {"method": "similarity", "record": {"a": ["a"], "b": ["b"]}}),
        ("task", {"method": "similarity", "record": {"a": "a"}}),
        ("task", {"method": "next_sentence", "record": {"a": "a", "b": "b", "c": "c"}}),
        ("task", {"method": "generate", "record": {"a": ["a"]}}),
        ("task", {"method": "nonsense", "record": {"a": "a"}}),
    ],
    ids=range(14),
)
def test_invalid_requests_are_rejected(page: Page, path: str, body: dict[str, Any]) -> None:
    answer = page.post(path, **body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["message"]


def test_unknown_model_is_reported(page: Page) -> None:
    for path, body in (("fill", {"text": "[MASK]"}), ("word", {"word": "a", "sentences": ["a a"]})):
        answer = page.post(path, **({"model": "nothing"} | body))
        assert answer.status_code == 404 and "nothing" in answer.json()["error"]["message"]


def test_missing_runs_folder_suggests_a_command(page: Page) -> None:
    bare = TestClient(make_app({}, allowed_hosts=None))
    assert bare.get("/studio/runs").json()["error"]["hint"] == "unmask studio runs/"
    assert bare.get("/studio/models").json() == []
    assert page.get("/studio/runs").json() == {"folder": "runs", "runs": []}
    assert page.get("/studio/run", name="../x").status_code == 422


# ------------------------------------------------------------------------------------------------------- command line


def test_invalid_folder_is_reported_without_a_traceback(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["studio", str(tmp_path / "none")])
    assert result.exit_code == 2 and "is not a folder" in result.output
