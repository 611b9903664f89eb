"""Text that the tokenizer does not know: a warning in Python, in the terminal and over HTTP, and examples that it knows."""

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from server.serving import FACTS, base_model, task_model
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.errors import UnknownTextWarning
from unmask.inference.languages import join_words, languages, vocabulary_words
from unmask.inference.predictor import Predictor
from unmask.inference.unknown import WARN_FRACTION, unknown_fraction
from unmask.recipe import TokenizerRecipe
from unmask.server.app import make_app
from unmask.text.tokenizer import Tokenizer

UNKNOWN = "我们今天去看电影。"
KNOWN = FACTS[0]
TEXTS = {
    "en": "The old president of the united states opened his garden to the dogs and ran about the state of the union .",
    "zh": "北京是中国的首都，我们都喜欢去北京看长城。今天天气很好。老人打开门，他的狗跑进了花园。",
    "ru": "Москва является столицей России, и мы любим гулять по Красной площади.",
    "protein": "E V Q L V E S G G G L V Q P G G S L R L S C A A S K F T M D W Y I N H",
}


def train_tokenizer(language: str, kind: str) -> Tokenizer:
    settings = TokenizerRecipe(type=kind, vocab_size=261 if kind == "byte" else 0, min_frequency=1, lowercase=False)
    return Tokenizer.train([TEXTS[language]] * 50, settings)


def unknown_share(tokenizer: Tokenizer, text: str) -> float:
    return unknown_fraction(tokenizer, tokenizer.encode(text))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("unknown")
    base_model(root / "mlm", heads=("mlm", "nsp"))
    base_model(root / "gpt", "gpt2-mini", ("lm",))
    for name in ("classify", "rank"):
        task_model(root / name, root / "mlm", name)
    return root


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Predictor]:
    return {name: unmask.load(folder / name) for name in ("mlm", "gpt", "classify", "rank")}


# ------------------------------------------------------------------------------------------------------------ fraction


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "char"])
def test_foreign_text_is_unknown_and_training_text_is_not(kind: str) -> None:
    english = train_tokenizer("en", kind)
    assert unknown_share(english, TEXTS["en"]) == 0 and unknown_share(english, "") == 0
    assert unknown_share(english, UNKNOWN) > 0.9  # unigram encodes it as one token
    assert unknown_share(english, "我们, 今天. 去看; 电影!") >= WARN_FRACTION  # punctuation is not counted
    assert unknown_share(english, "the president of the 电影") < WARN_FRACTION


@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_byte_level_tokenizers_know_every_text(kind: str) -> None:
    assert unknown_share(train_tokenizer("en", kind), UNKNOWN) == 0


def test_unk_token_that_equals_the_end_token_is_not_counted(models: dict[str, Predictor]) -> None:
    tokenizer = models["gpt"].tokenizer
    assert tokenizer.unk == tokenizer.sep
    assert unknown_share(tokenizer, tokenizer.token(tokenizer.unk) * 5) == 0


# ------------------------------------------------------------------------------------------------------------- Python

METHODS: dict[str, tuple[str, Callable[[Predictor, str], Any]]] = {
    "fill": ("mlm", lambda p, text: p.fill(f"{text} [MASK]")),
    "fills": ("mlm", lambda p, text: p.fill(t for t in [f"{KNOWN} [MASK]", f"{text} [MASK]"])),
    "score": ("mlm", lambda p, text: p.score(text)),
    "next_sentence": ("mlm", lambda p, text: p.next_sentence(KNOWN, text)),
    "embed": ("mlm", lambda p, text: p.embed([KNOWN, text])),
    "similarity": ("mlm", lambda p, text: p.similarity(KNOWN, text)),
    "attention": ("mlm", lambda p, text: p.attention(text)),
    "explain": ("mlm", lambda p, text: p.explain(f"{text} [MASK]", steps=1)),
    "word_vectors": ("mlm", lambda p, text: p.word_vectors(text[:3], [text])),
    "minimal_pairs": ("mlm", lambda p, text: p.minimal_pairs([{"good": text, "bad": KNOWN}])),
    "classify": ("classify", lambda p, text: p.classify(text)),
    "predict": ("classify", lambda p, text: p.predict([{"text": text}, KNOWN])),
    "call": ("classify", lambda p, text: p(text)),
    "rank": ("rank", lambda p, text: p.rank("Ann", [KNOWN, text])),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_warns_only_for_unknown_text(method: str, models: dict[str, Predictor]) -> None:
    name, call = METHODS[method]
    with pytest.warns(UnknownTextWarning, match=r"% of the words of .* are unknown to the model \(\[UNK\]\)") as caught:
        call(models[name], UNKNOWN)
    assert len([w for w in caught if w.category is UnknownTextWarning]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownTextWarning)
        call(models[name], KNOWN)


# ----------------------------------------------------------------------------------------------------------- terminal


@pytest.mark.parametrize(
    "arguments",
    [["fill", "mlm", "{} [MASK]"], ["score", "mlm", "{}"], ["predict", "classify", "{}"], ["predict", "classify", "{}", "--json"]],
    ids=["fill", "score", "predict", "json"],
)  # fmt: skip
def test_terminal_warns_on_every_call(arguments: list[str], folder: Path) -> None:
    verb, model, *rest = arguments
    for text, warned in ((UNKNOWN, True), (UNKNOWN, True), (KNOWN, False)):
        result = CliRunner().invoke(app, [verb, str(folder / model), *(part.format(text) for part in rest)])
        assert result.exit_code == 0, result.output
        assert ("warning: 100% of the words of the text are unknown" in result.stderr) == warned, result.stderr
        assert "unknown to the model" not in result.stdout


# --------------------------------------------------------------------------------------------------------------- HTTP


def test_http_response_has_a_warning_header(models: dict[str, Predictor]) -> None:
    served = make_app({name: models[name] for name in ("mlm", "classify", "gpt")}, allowed_hosts=None)
    requests: dict[str, Callable[[str], Any]] = {
        "/models/mlm": lambda text: {"inputs": f"{text} [MASK]"},
        "/models/classify": lambda text: {"inputs": [KNOWN, text]},
        "/v1/embeddings": lambda text: {"input": text, "model": "mlm"},
        "/embed": lambda text: {"inputs": text, "model": "mlm"},
        "/studio/score": lambda text: {"model": "mlm", "text": text},
        "/studio/task": lambda text: {"model": "classify", "record": {"text": text}},
    }

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://a") as client:
            for path, body in requests.items():
                response = await client.post(path, json=body(UNKNOWN))
                assert response.status_code == 200, response.text
                assert response.headers["x-unmask-warning"].startswith("unknown_tokens: 100% of the words of"), path
                assert "x-unmask-warning" not in (await client.post(path, json=body(KNOWN))).headers, path
            response = await client.post("/models/gpt", json={"inputs": UNKNOWN, "parameters": {"max_new_tokens": 1}})
            assert response.status_code == 200 and "x-unmask-warning" not in response.headers

    try:
        asyncio.run(main())
    finally:
        for predictor in models.values():
            predictor.warns = True


# ----------------------------------------------------------------------------------------------------------- examples


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "char", "bpe"])
def test_examples_are_in_a_language_that_the_model_knows(kind: str) -> None:
    assert languages(train_tokenizer("en", kind))[0] == "en"
    assert languages(train_tokenizer("zh", kind)) == ["zh"]
    for other in ("ru", "protein"):
        tokenizer = train_tokenizer(other, kind)
        assert languages(tokenizer) == []
        words = vocabulary_words(tokenizer)
        assert len(words) == 8 and unknown_share(tokenizer, join_words(tokenizer, words)) == 0
        assert set("".join(words)) <= set(TEXTS[other])


def test_byte_tokenizer_examples_are_in_english() -> None:
    assert languages(train_tokenizer("ru", "byte")) == ["en"]
