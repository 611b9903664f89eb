"""The API of text-embeddings-inference: /embed, /rerank, /predict, /similarity, /info.

That server has one model. Here the field `model` selects one of several; the default is the first that supports the request.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import Field

from unmask import __version__
from unmask.errors import UserError
from unmask.inference.task_methods import task_for
from unmask.server.batching import find_model
from unmask.server.json_io import JSONResponse, StrictModel, StrictRoute, json_response
from unmask.server.routes.nlu import LabelScore, RankedPassage, SentencePairs, cosine_similarities, label_scores
from unmask.server.schemas import ERROR_RESPONSES, NonEmptyList, Submit, Text, Texts, TruncationOptions, resize

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

OneOrTwo = Annotated[list[Text], Field(min_length=1, max_length=2)]


class TEIRequest(StrictModel):
    model: str | None = Field(
        default=None, description="Name of a served model; default: the first that supports the request."
    )


class EmbedRequest(TEIRequest, TruncationOptions):
    inputs: Text | Texts
    normalize: bool = True
    dimensions: int | None = Field(default=None, ge=1)


class RerankRequest(TEIRequest):
    query: Text
    texts: Texts
    raw_scores: bool = Field(default=False, description="Return raw scores instead of sigmoid scores.")
    return_text: bool = False
    truncate: bool = Field(default=True, description="Ignored: long passages are truncated, as in training.")


class RerankedPassage(RankedPassage):
    text: str | None = None


class PredictRequest(TEIRequest):
    inputs: Text | OneOrTwo | NonEmptyList[OneOrTwo] = Field(
        description="A text; a text and its pair; or a list of such lists."
    )
    raw_scores: Literal[False] = False
    truncate: bool = Field(default=True, description="Ignored: long texts are handled as in training.")


class SimilarityRequest(TEIRequest):
    inputs: SentencePairs


def routes(models: Mapping[str, "Predictor"], submit: Submit) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["text-embeddings-inference"], responses=ERROR_RESPONSES)

    select = partial(_select_model, models)

    @router.post("/embed", summary="Embed texts.", response_model=list[list[float]], operation_id="embed")
    async def embed(body: EmbedRequest) -> JSONResponse:
        name = select(body.model)
        texts = [body.inputs] if isinstance(body.inputs, str) else list(body.inputs)
        results = await submit(name, "embed", await body.apply_truncation(models[name], texts))
        return await json_response(lambda: resize(np.stack(results), body.dimensions, body.normalize))

    @router.post("/rerank", summary="Rank passages.", response_model=list[RerankedPassage], operation_id="rerank")
    async def rerank(body: RerankRequest) -> JSONResponse:
        result = await submit(select(body.model, "text-ranking"), "predict", (body.query, list(body.texts)))

        def build() -> list[dict[str, Any]]:
            scores = np.array(result["scores"], np.float64)
            scores = scores if body.raw_scores else 1 / (1 + np.exp(-scores))
            rows = [{"index": n, "score": float(scores[n])} for n in result["order"]]
            return [row | {"text": body.texts[row["index"]]} if body.return_text else row for row in rows]

        return await json_response(build)

    @router.post(
        "/predict", summary="Classify texts or pairs.", response_model=list[LabelScore], operation_id="predict"
    )
    async def predict(body: PredictRequest) -> JSONResponse:
        name = select(body.model, "text-classification")
        is_list = isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
        items: list[Any] = list(body.inputs) if is_list else [body.inputs]
        inputs = [item if isinstance(item, str) else item[0] if len(item) == 1 else tuple(item) for item in items]
        results = await submit(name, "predict", inputs)
        return await json_response(
            lambda: [label_scores(each) for each in results] if is_list else label_scores(results[0])
        )

    @router.post("/similarity", summary="Cosine similarities.", response_model=list[float], operation_id="similarity")
    async def similarity(body: SimilarityRequest) -> JSONResponse:
        return await json_response(await cosine_similarities(submit, select(body.model), body.inputs))

    @router.get("/info", summary="Describe the first model and the server.", operation_id="info")
    async def info() -> JSONResponse:
        name, predictor = next(iter(models.items()), (None, None))
        return JSONResponse(
            {
                "model_id": name,
                "model_type": predictor.task.name if predictor is not None and predictor.task is not None else None,
                "max_input_length": predictor.config.max_positions if predictor is not None else None,
                "models": list(models),
                "version": __version__,
            }
        )

    return router


def _select_model(models: Mapping[str, "Predictor"], name: str | None, pipeline: str = "") -> str:
    """Return `name`, or by default the first model for the pipeline. Any model embeds; an embedding model is preferred."""
    if name is None:
        served = {n: p.task.SPEC.usage.served_pipeline for n, p in models.items() if p.task is not None}
        matching = [n for n, default in served.items() if default == (pipeline or "feature-extraction")]
        name = next(iter([*matching, *(models if not pipeline else ())]), None)
    if name is None:
        task = task_for(pipeline or "feature-extraction")
        raise UserError(
            f"no served model is fine-tuned for {task}", hint=f"unmask finetune MODEL --task {task} --train FILE"
        )
    predictor = find_model(models, name)
    if pipeline:
        predictor.require_pipeline(pipeline)
    return name
