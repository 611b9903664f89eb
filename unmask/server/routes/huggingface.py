"""Hugging Face's inference API. `/models/{name}` runs a model's default pipeline, `/models/{name}/pipeline/{task}` another one;
`huggingface_hub.InferenceClient(model="http://127.0.0.1:8000/models/NAME")` works for each."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from unmask.errors import nearest
from unmask.server.batching import find_model
from unmask.server.errors import RequestError
from unmask.server.json_io import JSONResponse, StrictRoute, json_response
from unmask.server.routes.pipelines import PIPELINES, Pipeline, default_pipeline, supported_pipelines
from unmask.server.schemas import ERROR_RESPONSES, PipelineRequest, Submit, model_enum

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


class AnyRequest(PipelineRequest):
    """A request for the model's default pipeline."""

    model_config = ConfigDict(extra="allow")
    inputs: Any = Field(examples=["a text"])


def routes(models: Mapping[str, "Predictor"], submit: Submit) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["Hugging Face"], responses=ERROR_RESPONSES)
    Name = Annotated[str, Path(description="Name of a served model.", json_schema_extra=model_enum(models))]

    def add(task: str, pipeline: Pipeline) -> None:
        async def call(name: Name, body: Any) -> JSONResponse:
            return await json_response(await pipeline.run(submit, name, find_model(models, name), body))

        call.__annotations__["body"] = pipeline.request
        router.add_api_route(
            f"/models/{{name}}/pipeline/{task}",
            call,
            methods=["POST"],
            response_model=pipeline.response,
            summary=pipeline.summary,
            operation_id=task.replace("-", "_"),
        )

    @router.get("/models", summary="List the models and what they support.", operation_id="list_models")
    async def list_models() -> JSONResponse:
        return JSONResponse({name: describe(predictor) for name, predictor in models.items()})

    @router.get("/models/{name}", summary="Describe a model.", operation_id="get_model")
    async def get_model(name: Name) -> JSONResponse:
        return JSONResponse(describe(find_model(models, name)))

    @router.post("/models/{name}", summary="Run a model's default pipeline.", operation_id="run_model")
    async def run_default(name: Name, body: AnyRequest) -> JSONResponse:
        predictor = find_model(models, name)
        task = default_pipeline(predictor)
        if isinstance(body.inputs, dict) and "source_sentence" in body.inputs:
            task = "sentence-similarity"  # InferenceClient uses one URL for vectors and for similarities
        pipeline = PIPELINES[task]
        request = pipeline.request.model_validate(body.model_dump(exclude_unset=True))
        return await json_response(await pipeline.run(submit, name, predictor, request))

    for task, pipeline in PIPELINES.items():
        add(task, pipeline)

    @router.post("/models/{name}/pipeline/{task}", include_in_schema=False)
    async def unknown(name: Name, task: str) -> JSONResponse:
        expected = ", ".join(supported_pipelines(find_model(models, name)))
        message = f"no pipeline {task!r:.80}{nearest(task, list(PIPELINES))}"
        raise RequestError(404, "no_pipeline", message, expected=expected)

    return router


def describe(predictor: "Predictor") -> dict[str, Any]:
    config = predictor.config
    return {
        "family": config.family,
        "parameters": {"layers": config.layers, "hidden": config.hidden, "vocabulary": config.vocab_size},
        "length": config.max_positions,
        "task": predictor.task.name if predictor.task is not None else None,
        "heads": predictor.heads,
        "methods": predictor.methods(),
        "pipeline": default_pipeline(predictor),
        "pipelines": supported_pipelines(predictor),
    }
