"""text-embeddings-inference's form: /embed, /rerank, /predict, /similarity, /info.

That server has one model; here `model` names one of several, and without it the first that can do what is asked answers.
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
from unmask.server.batching import find
from unmask.server.json_io import Answer, Route, Strict, answer
from unmask.server.routes.understanding import Labelled, Ranked, Sentences, cosines, labels
from unmask.server.schemas import REFUSALS, Ask, Cutting, Several, Text, Texts, sized

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

OneOrTwo = Annotated[list[Text], Field(min_length=1, max_length=2)]


class Asked(Strict):
    model: str | None = Field(default=None, description="A served model; else the first that can do it.")


class Embed(Asked, Cutting):
    inputs: Text | Texts
    normalize: bool = True
    dimensions: int | None = Field(default=None, ge=1)


class Rerank(Asked):
    query: Text
    texts: Texts
    raw_scores: bool = Field(default=False, description="As the model gives them; else between 0 and 1.")
    return_text: bool = False
    truncate: bool = Field(default=True, description="Long passages lose their end, as the model was trained.")


class Reranked(Ranked):
    text: str | None = None


class Predict(Asked):
    inputs: Text | OneOrTwo | Several[OneOrTwo] = Field(
        description="A text; a text and its pair; or a list of such lists."
    )
    raw_scores: Literal[False] = False
    truncate: bool = Field(default=True, description="Long texts are read as the model was trained to.")


class Similarity(Asked):
    inputs: Sentences


def routes(models: Mapping[str, "Predictor"], ask: Ask) -> APIRouter:
    router = APIRouter(route_class=Route, tags=["text-embeddings-inference"], responses=REFUSALS)

    choose = partial(_choose, models)

    @router.post("/embed", summary="A vector per text.", response_model=list[list[float]], operation_id="embed")
    async def embed(body: Embed) -> Answer:
        name = choose(body.model)
        texts = [body.inputs] if isinstance(body.inputs, str) else list(body.inputs)
        found = await ask(name, "embed", await body.cut(models[name], texts))
        return await answer(lambda: sized(np.stack(found), body.dimensions, body.normalize))

    @router.post("/rerank", summary="Put passages in order.", response_model=list[Reranked], operation_id="rerank")
    async def rerank(body: Rerank) -> Answer:
        found = await ask(choose(body.model, "text-ranking"), "predict", (body.query, list(body.texts)))

        def ranked() -> list[dict[str, Any]]:
            scores = np.array(found["scores"], np.float64)
            shown = scores if body.raw_scores else 1 / (1 + np.exp(-scores))
            rows = [{"index": n, "score": float(shown[n])} for n in found["order"]]
            return [row | {"text": body.texts[row["index"]]} if body.return_text else row for row in rows]

        return await answer(ranked)

    @router.post("/predict", summary="Label texts or pairs.", response_model=list[Labelled], operation_id="predict")
    async def predict(body: Predict) -> Answer:
        name = choose(body.model, "text-classification")
        many = isinstance(body.inputs, list) and isinstance(body.inputs[0], list)
        items: list[Any] = list(body.inputs) if many else [body.inputs]
        asked = [item if isinstance(item, str) else item[0] if len(item) == 1 else tuple(item) for item in items]
        found = await ask(name, "predict", asked)
        return await answer(lambda: [labels(each) for each in found] if many else labels(found[0]))

    @router.post("/similarity", summary="Cosines of texts.", response_model=list[float], operation_id="similarity")
    async def similarity(body: Similarity) -> Answer:
        return await answer(await cosines(ask, choose(body.model), body.inputs))

    @router.get("/info", summary="The first model, and the server.", operation_id="info")
    async def info() -> Answer:
        name, predictor = next(iter(models.items()), (None, None))
        return Answer(
            {
                "model_id": name,
                "model_type": predictor.task.name if predictor is not None and predictor.task is not None else None,
                "max_input_length": predictor.config.max_positions if predictor is not None else None,
                "models": list(models),
                "version": __version__,
            }
        )

    return router


def _choose(models: Mapping[str, "Predictor"], name: str | None, pipeline: str = "") -> str:
    """The model that is named, or the first for the pipeline; for vectors any will do, one that is made for them first."""
    if name is None:
        served = {n: p.task.SPEC.usage.served for n, p in models.items() if p.task is not None}
        fits = [n for n, own in served.items() if own == (pipeline or "feature-extraction")]
        name = next(iter([*fits, *(models if not pipeline else ())]), None)
    if name is None:
        task = task_for(pipeline or "feature-extraction")
        raise UserError(
            f"no served model is fine-tuned for {task}", hint=f"unmask finetune MODEL --task {task} --train FILE"
        )
    predictor = find(models, name)
    if pipeline:
        predictor.need_pipeline(pipeline)
    return name
