"""The page at `/` and its API below `/studio/`.

The page is plain HTML, CSS and ES modules in `page/`. The server renders nothing into it, so that no text of a user ever
becomes markup. Models are called through `submit`, the server's queue; errors are handled by the server's handlers.
"""

import base64
from collections.abc import Awaitable, Mapping
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
from unmask.inference.sense_plot import project_2d
from unmask.server.batching import find_model
from unmask.server.json_io import JSONResponse, StrictRoute, json_response
from unmask.server.routes.nlu import Record, check_fields
from unmask.server.schemas import Submit
from unmask.server.studio import model_info
from unmask.server.studio.page_files import add_page
from unmask.server.studio.runs import Runs, replace_surrogates

MAX_ATTENTION_TOKENS = 128
MAX_SENTENCES = 200  # maximum number of sentences in the view of word meanings
# A report is one file with its style and images inside, and without scripts.
REPORT_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"

Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Query(max_length=1000)]


class StudioRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str


class FillRequest(StudioRequest):
    text: Text
    top_k: int = Field(5, ge=1, le=50)
    num_beams: int = Field(0, ge=0, le=20)
    max_subwords: int = Field(1, ge=1, le=5)
    candidates: list[Text] = Field([], max_length=200)


class TextRequest(StudioRequest):
    text: Text
    pair: Text | None = None


class ExplainRequest(StudioRequest):
    parts: list[Text | list[Text]] = Field(min_length=1, max_length=3)
    target: str | None = None


class WordRequest(StudioRequest):
    word: Annotated[str, Field(min_length=1, max_length=200)]
    sentences: list[Text] = Field(min_length=1, max_length=MAX_SENTENCES)
    layer: int = -1


class SimilarityRequest(StudioRequest):
    sentences: list[Text] = Field(min_length=2, max_length=MAX_SENTENCES)


class TaskRequest(StudioRequest):
    method: str = "predict"
    record: Record = Field(min_length=1)
    length: int = Field(40, ge=1, le=512)


def routes(models: Mapping[str, Predictor], runs: Path | None, submit: Submit) -> APIRouter:
    """Return the routes of the studio. `runs` is the folder that the view of runs lists."""
    router = APIRouter(route_class=StrictRoute, include_in_schema=False)
    _add_files(router)
    _add_predictions(router, models, submit)
    _add_introspection(router, submit)
    _add_runs(router, runs)
    return router


def _add_files(router: APIRouter) -> None:
    add_page(router, "index.html")

    @router.get("/studio/plotly.js")
    def plotly() -> Response:
        return FileResponse(_plotly(), media_type="text/javascript", headers={"Cache-Control": "max-age=3600"})


@cache
def _plotly() -> Path:
    try:
        import plotly
    except ImportError:
        raise UserError("plotly is not installed", hint="pip install 'unmask[serve]'") from None
    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def _add_predictions(router: APIRouter, models: Mapping[str, Predictor], submit: Submit) -> None:
    @router.get("/studio/models")
    def list_models() -> Response:
        return JSONResponse([model_info.describe(name, predictor) for name, predictor in models.items()])

    @router.post("/studio/fill")
    async def fill(q: FillRequest) -> Response:
        settings: dict[str, Any] = {"top_k": q.top_k, "num_beams": q.num_beams, "max_subwords": q.max_subwords}
        settings |= {"candidates": tuple(q.candidates)} if q.candidates else {}
        return await _respond(submit(q.model, "fill", q.text, **settings))

    @router.post("/studio/score")
    async def score(q: TextRequest) -> Response:
        return await _respond(submit(q.model, "score", q.text))

    @router.post("/studio/similarity")
    async def similarity(q: SimilarityRequest) -> Response:
        matrix = await submit(q.model, "similarity", q.sentences, q.sentences)
        return await json_response(lambda: {"similarity": matrix})

    @router.post("/studio/task")
    async def task(q: TaskRequest) -> Response:
        values = list(q.record.values())
        if q.method == "predict":
            check_fields(q.record, [field.key for field in find_model(models, q.model).require_task().spec.inputs])
            return await _respond(submit(q.model, q.method, q.record))
        if q.method not in model_info.FORMS:
            expected = ", ".join(["predict", *model_info.FORMS])
            raise UserError(f"unknown method {q.method!r:.80}", expected=expected)
        num_texts = len(model_info.FORMS[q.method])
        if len(values) != num_texts or not all(isinstance(value, str) for value in values):
            raise UserError(f"wrong inputs for {q.method}", expected="one text" if num_texts == 1 else "two texts")
        if q.method == GENERATE:
            return await _respond(submit(q.model, q.method, values[0], max_new_tokens=q.length))
        return JSONResponse({q.method: await submit(q.model, q.method, *values)})


def _add_introspection(router: APIRouter, submit: Submit) -> None:
    @router.post("/studio/attention")
    async def attention(q: TextRequest) -> Response:
        result = await submit(q.model, "attention", q.text, **({"pair": q.pair} if q.pair else {}))
        weights = np.asarray(result.weights)  # (layers, heads, T, T)
        if weights.shape[-1] > MAX_ATTENTION_TOKENS:
            raise UserError(
                f"the text has {weights.shape[-1]} tokens, too many to plot attention",
                expected=f"at most {MAX_ATTENTION_TOKENS} tokens",
            )

        # One byte per weight: 256 shades are more than the eye distinguishes, and JSON numbers would be 10 times as long.
        def build() -> dict[str, Any]:
            shades = np.rint(weights * 255).clip(0, 255).astype(np.uint8)
            tokens = [asdict(token) for token in result.tokens]
            data = base64.b64encode(shades.tobytes()).decode()
            return {"tokens": tokens, "shape": list(shades.shape), "shades": data}

        return await json_response(build)

    @router.post("/studio/explain")
    async def explain(q: ExplainRequest) -> Response:
        return await _respond(submit(q.model, "explain", *q.parts, target=q.target or None))

    @router.post("/studio/word")
    async def word(q: WordRequest) -> Response:
        """Project the vectors of a word in many sentences, at one layer, to points (x, y)."""
        result = await submit(q.model, "word_vectors", q.word, q.sentences, layer=q.layer)
        if len(result.occurrences) < 3:
            raise UserError(f"{q.word!r} occurs {len(result.occurrences)} times", expected="at least 3 occurrences")

        def build() -> dict[str, Any]:
            points, explained = project_2d(result.vectors)
            occurrences = [asdict(occurrence) for occurrence in result.occurrences]
            return {"occurrences": occurrences, "points": points, "explained_variance": explained}

        return await json_response(build)


async def _respond(pending: Awaitable[Any]) -> Response:
    """Return a Predictor's result as JSON."""
    result = await pending
    return await json_response(lambda: result)


def _add_runs(router: APIRouter, root: Path | None) -> None:
    opened = Runs(root) if root is not None else None

    def runs() -> Runs:
        if opened is None:
            raise UserError("this server has no folder of runs", hint="unmask studio runs/")
        return opened

    @router.get("/studio/runs")
    def list_runs() -> Response:
        return JSONResponse({"folder": replace_surrogates(runs().root.name), "runs": runs().entries()})

    @router.get("/studio/run")
    def details(name: Name) -> Response:
        return JSONResponse(runs().details(name))

    @router.get("/studio/log")
    def log(name: Name, offset: Annotated[int, Query(ge=0)] = 0, file: Name = "") -> Response:
        return JSONResponse(runs().log(name, offset, file))

    @router.get("/studio/batch")
    def batch(name: Name) -> Response:
        return JSONResponse(runs().batch(name))

    @router.get("/studio/compare")
    def compare(a: Name, b: Name) -> Response:
        return JSONResponse({"settings": runs().compare(a, b)})

    @router.get("/studio/report")
    def report(name: Name) -> Response:
        return Response(runs().report(name), media_type="text/html", headers={"Content-Security-Policy": REPORT_CSP})
