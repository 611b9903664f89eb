"""The page at `/` and what it asks for below `/studio/`.

The page is plain HTML, CSS and ES modules in `page/`; nothing in it is made by the server, so that no text of a user's
ever becomes markup. Models are asked through `ask`, the server's own queue; mistakes are answered by the server's handlers.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from unmask.errors import UserError
from unmask.inference.methods import GENERATE
from unmask.inference.predictor import Predictor
from unmask.inference.senses import project
from unmask.server.batching import find
from unmask.server.json_io import Answer, Route, answer
from unmask.server.routes.understanding import Record, check_keys
from unmask.server.studio import models as told
from unmask.server.studio.runs import Runs, readable

Ask = Callable[..., Awaitable[Any]]
PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
DRAWN = 128  # tokens between which attention is drawn, at most
SENTENCES = 200  # at most in the view of meanings
# A report is one file with its style and its pictures inside, and without scripts.
REPORT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"

Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Query(max_length=1000)]


class Question(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str


class FillQuestion(Question):
    text: Text
    top: int = Field(5, ge=1, le=50)
    joint: int = Field(0, ge=0, le=20)
    grow: int = Field(1, ge=1, le=5)
    candidates: list[Text] = Field([], max_length=200)


class TextQuestion(Question):
    text: Text
    pair: Text | None = None


class ExplainQuestion(Question):
    parts: list[Text | list[Text]] = Field(min_length=1, max_length=3)
    target: str | None = None


class WordQuestion(Question):
    word: Annotated[str, Field(min_length=1, max_length=200)]
    sentences: list[Text] = Field(min_length=1, max_length=SENTENCES)
    layer: int = -1


class SimilarityQuestion(Question):
    sentences: list[Text] = Field(min_length=2, max_length=SENTENCES)


class TaskQuestion(Question):
    method: str = "predict"
    record: Record = Field(min_length=1)  # field → what is typed
    length: int = Field(40, ge=1, le=512)


def routes(models: Mapping[str, Predictor], runs: Path | None, ask: Ask) -> APIRouter:
    """`ask(model, method, *args, **settings)` gives one answer; `runs` is the folder that the view of runs shows."""
    router = APIRouter(route_class=Route, include_in_schema=False)
    _files(router)
    _questions(router, models, ask)
    _looks(router, ask)
    _runs(router, runs)
    return router


def _files(router: APIRouter) -> None:
    @router.get("/")
    def page() -> Response:
        return _file("index.html")

    @router.get("/studio/page/{name}")
    def part(name: str) -> Response:
        return _file(name)

    @router.get("/studio/plotly.js")
    def plotly() -> Response:
        return FileResponse(_plotly(), media_type="text/javascript", headers={"Cache-Control": "max-age=3600"})


def _file(name: str) -> Response:
    known = {path.name: path for path in PAGE.iterdir()}
    if name not in known:
        return Response(status_code=404)
    kind = KINDS.get(known[name].suffix, "application/octet-stream")
    return Response(known[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


@cache
def _plotly() -> Path:
    try:
        import plotly
    except ImportError:
        raise UserError("plots need the package plotly", hint="pip install 'unmask[serve]'") from None
    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def _questions(router: APIRouter, models: Mapping[str, Predictor], ask: Ask) -> None:
    @router.get("/studio/models")
    def listed() -> Response:
        return Answer([told.describe(name, predictor) for name, predictor in models.items()])

    @router.post("/studio/fill")
    async def fill(q: FillQuestion) -> Response:
        more: dict[str, Any] = {"num_beams": q.joint} if q.joint else {}
        more |= {"max_subwords": q.grow} if q.grow > 1 else {}
        more |= {"candidates": tuple(q.candidates)} if q.candidates else {}
        return await _asked(ask(q.model, "fill", q.text, top_k=q.top, **more))

    @router.post("/studio/score")
    async def score(q: TextQuestion) -> Response:
        return await _asked(ask(q.model, "score", q.text))

    @router.post("/studio/similarity")
    async def similarity(q: SimilarityQuestion) -> Response:
        found = await ask(q.model, "similarity", q.sentences, q.sentences)
        return await answer(lambda: {"similarity": found})

    @router.post("/studio/task")
    async def task(q: TaskQuestion) -> Response:
        parts = list(q.record.values())
        if q.method == GENERATE:
            if len(parts) != 1 or not isinstance(parts[0], str):
                raise UserError(f"{len(parts)} parts for {q.method}", expected="one text")
            return await _asked(ask(q.model, q.method, parts[0], max_new_tokens=q.length))
        if q.method in told.FORMS:
            if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
                raise UserError(f"{len(parts)} parts for {q.method}", expected="two texts")
            return Answer({q.method: await ask(q.model, q.method, *parts)})
        if q.method != "predict":
            raise UserError(f"unknown method {q.method!r:.80}", expected=", ".join(["predict", *told.FORMS]))
        check_keys(q.record, [field.key for field in find(models, q.model).need_task().spec.inputs])
        return await _asked(ask(q.model, q.method, q.record))


def _looks(router: APIRouter, ask: Ask) -> None:
    """What is inside a model."""

    @router.post("/studio/attention")
    async def attention(q: TextQuestion) -> Response:
        found = await ask(q.model, "attention", q.text, **({"pair": q.pair} if q.pair else {}))
        weights = np.asarray(found.weights)  # (layers, heads, T, T)
        if weights.shape[-1] > DRAWN:
            raise UserError(
                f"{weights.shape[-1]} tokens are too many to draw lines between", expected=f"at most {DRAWN} tokens"
            )

        # A byte each: 256 shades are more than an eye tells apart, and JSON of the numbers would be 10 times as long.
        def drawn() -> dict[str, Any]:
            shades = np.rint(weights * 255).clip(0, 255).astype(np.uint8)
            tokens = [asdict(token) for token in found.tokens]
            data = base64.b64encode(shades.tobytes()).decode()
            return {"tokens": tokens, "shape": list(shades.shape), "shades": data}

        return await answer(drawn)

    @router.post("/studio/explain")
    async def explain(q: ExplainQuestion) -> Response:
        return await _asked(ask(q.model, "explain", *q.parts, target=q.target or None))

    @router.post("/studio/word")
    async def word(q: WordQuestion) -> Response:
        """Points (x, y) of a word in many sentences: its vectors at a layer, flattened."""
        found = await ask(q.model, "word_vectors", q.word, q.sentences, layer=q.layer)
        if len(found.occurrences) < 3:
            raise UserError(
                f"{q.word!r} stands in {len(found.occurrences)} places", expected="three or more, to see which are near"
            )

        def projected() -> dict[str, Any]:
            points, shares = project(found.vectors)
            return {"places": [asdict(place) for place in found.occurrences], "points": points, "shares": shares}

        return await answer(projected)


async def _asked(asking: Awaitable[Any]) -> Response:
    """A Predictor's answer as it is."""
    found = await asking
    return await answer(lambda: found)


def _runs(router: APIRouter, root: Path | None) -> None:
    found = Runs(root) if root is not None else None

    def runs() -> Runs:
        if found is None:
            raise UserError("this server shows no runs", hint="unmask studio runs/")
        return found

    @router.get("/studio/runs")
    def listed() -> Response:
        return Answer({"folder": readable(runs().root.name), "runs": runs().entries()})

    @router.get("/studio/run")
    def details(name: Name) -> Response:
        return Answer(runs().details(name))

    @router.get("/studio/log")
    def log(name: Name, offset: Annotated[int, Query(ge=0)] = 0, file: Name = "") -> Response:
        return Answer(runs().log(name, offset, file))

    @router.get("/studio/batch")
    def batch(name: Name) -> Response:
        return Answer(runs().batch(name))

    @router.get("/studio/compare")
    def compare(a: Name, b: Name) -> Response:
        return Answer({"settings": runs().compare(a, b)})

    @router.get("/studio/report")
    def report(name: Name) -> Response:
        return Response(runs().report(name), media_type="text/html", headers={"Content-Security-Policy": REPORT})
