"""Hugging Face's inference form. `/models/{name}` asks a model for what it is made for, `/models/{name}/pipeline/{task}` for
another thing; `huggingface_hub.InferenceClient(model="http://127.0.0.1:8000/models/NAME")` works for each."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from unmask.errors import nearest
from unmask.server.batching import find
from unmask.server.errors import Refused
from unmask.server.json_io import Answer, Route, answer
from unmask.server.routes.pipelines import PIPELINES, Pipeline, own, possible
from unmask.server.schemas import REFUSALS, Ask, Request, names

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


class AnyRequest(Request):
    """What the model's own pipeline takes."""

    model_config = ConfigDict(extra="allow")
    inputs: Any = Field(examples=["a text"])


def routes(models: Mapping[str, "Predictor"], ask: Ask) -> APIRouter:
    router = APIRouter(route_class=Route, tags=["Hugging Face"], responses=REFUSALS)
    Name = Annotated[str, Path(description="A served model.", json_schema_extra=names(models))]

    def add(task: str, pipeline: Pipeline) -> None:
        async def call(name: Name, body: Any) -> Answer:
            return await answer(await pipeline.run(ask, name, find(models, name), body))

        call.__annotations__["body"] = pipeline.request
        router.add_api_route(
            f"/models/{{name}}/pipeline/{task}",
            call,
            methods=["POST"],
            response_model=pipeline.answer,
            summary=pipeline.about,
            operation_id=task.replace("-", "_"),
        )

    @router.get("/models", summary="What is served, and what each model can do.", operation_id="list_models")
    async def listed() -> Answer:
        return Answer({name: described(predictor) for name, predictor in models.items()})

    @router.get("/models/{name}", summary="One model.", operation_id="get_model")
    async def one(name: Name) -> Answer:
        return Answer(described(find(models, name)))

    @router.post("/models/{name}", summary="Ask a model for what it is made for.", operation_id="ask_model")
    async def ask_own(name: Name, body: AnyRequest) -> Answer:
        predictor = find(models, name)
        task = own(predictor)
        if isinstance(body.inputs, dict) and "source_sentence" in body.inputs:
            task = "sentence-similarity"  # a client that has one address asks both things of vectors
        pipeline = PIPELINES[task]
        request = pipeline.request.model_validate(body.model_dump(exclude_unset=True))
        return await answer(await pipeline.run(ask, name, predictor, request))

    for task, pipeline in PIPELINES.items():
        add(task, pipeline)

    @router.post("/models/{name}/pipeline/{task}", include_in_schema=False)
    async def unknown(name: Name, task: str) -> Answer:
        valid = ", ".join(possible(find(models, name)))
        raise Refused(404, "no_pipeline", f"no pipeline {task!r:.80}{nearest(task, list(PIPELINES))}", expected=valid)

    return router


def described(predictor: "Predictor") -> dict[str, Any]:
    config = predictor.config
    return {
        "family": config.family,
        "parameters": {"layers": config.layers, "hidden": config.hidden, "vocabulary": config.vocab_size},
        "length": config.max_positions,
        "task": predictor.task.name if predictor.task is not None else None,
        "heads": predictor.heads,
        "methods": predictor.methods(),
        "pipeline": own(predictor),
        "pipelines": possible(predictor),
    }
