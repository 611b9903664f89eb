"""OpenAI's /v1/embeddings and /v1/models: `openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")` works."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import Field

from unmask.errors import UserError
from unmask.server.batching import find_model
from unmask.server.json_io import JSONResponse, StrictModel, StrictRoute, json_response
from unmask.server.request_usage import current_request
from unmask.server.schemas import ERROR_RESPONSES, NonEmptyList, Submit, Text, Texts, as_base64, model_enum, resize

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


class Embedding(StrictModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(StrictModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(StrictModel):
    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: Usage


def routes(models: Mapping[str, "Predictor"], submit: Submit) -> APIRouter:
    router = APIRouter(prefix="/v1", route_class=StrictRoute, tags=["OpenAI"], responses=ERROR_RESPONSES)

    class EmbeddingsRequest(StrictModel):
        input: Text | Texts | NonEmptyList[int] | NonEmptyList[list[int]]
        model: str = Field(description="Name of a served model.", json_schema_extra=model_enum(models))
        encoding_format: Literal["float", "base64"] = "float"
        dimensions: int | None = Field(default=None, ge=1)
        user: str | None = Field(default=None, description="Ignored.")

    @router.post("/embeddings", summary="Embed texts.", response_model=EmbeddingList, operation_id="embeddings")
    async def embeddings(body: EmbeddingsRequest) -> JSONResponse:
        find_model(models, body.model)
        texts = [body.input] if isinstance(body.input, str) else body.input
        if not all(isinstance(text, str) for text in texts):
            raise UserError(
                "the input contains token ids, which belong to another tokenizer",
                expected="a text, or a list of texts",
                hint="send text (LangChain: check_embedding_ctx_length=False)",
            )
        results = await submit(body.model, "embed", list(texts))
        tokens = current_request().tokens

        def build() -> dict[str, Any]:
            vectors = resize(np.stack(results), body.dimensions, normalize=True)
            encoded: Any = [as_base64(v) for v in vectors] if body.encoding_format == "base64" else vectors.tolist()
            return {
                "object": "list",
                "model": body.model,
                "data": [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(encoded)],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }

        return await json_response(build)

    @router.get("/models", summary="List the models.", operation_id="openai_models")
    async def list_models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [describe(name) for name in models]})

    @router.get("/models/{name}", summary="Describe a model.", operation_id="openai_model")
    async def get_model(name: str) -> JSONResponse:
        find_model(models, name)
        return JSONResponse(describe(name))

    return router


def describe(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "unmask"}
