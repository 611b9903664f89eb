"""OpenAI's /v1/embeddings and /v1/models: `openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")` works."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import Field

from unmask.errors import UserError
from unmask.server import current
from unmask.server.batching import find
from unmask.server.json_io import Answer, Route, Strict, answer
from unmask.server.schemas import REFUSALS, Ask, Several, Text, Texts, as_base64, names, sized

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


class Embeddings(Strict):
    input: Text | Texts | Several[int] | Several[list[int]]
    model: str = Field(description="A served model.")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: str | None = Field(default=None, description="Without effect.")


class Embedding(Strict):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(Strict):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Strict):
    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: Usage


def routes(models: Mapping[str, "Predictor"], ask: Ask) -> APIRouter:
    router = APIRouter(prefix="/v1", route_class=Route, tags=["OpenAI"], responses=REFUSALS)

    class NamedEmbeddings(Embeddings):
        model: str = Field(description="A served model.", json_schema_extra=names(models))

    @router.post("/embeddings", summary="A vector per text.", response_model=EmbeddingList, operation_id="embeddings")
    async def embeddings(body: NamedEmbeddings) -> Answer:
        find(models, body.model)
        texts = [body.input] if isinstance(body.input, str) else body.input
        if not all(isinstance(text, str) for text in texts):
            raise UserError(
                "the input is token numbers, which belong to another tokenizer",
                expected="a text, or a list of texts",
                hint="send text (LangChain: check_embedding_ctx_length=False)",
            )
        found = await ask(body.model, "embed", list(texts))
        used = current.request().tokens

        def made() -> dict[str, Any]:
            vectors = sized(np.stack(found), body.dimensions, normalize=True)
            shaped: Any = [as_base64(v) for v in vectors] if body.encoding_format == "base64" else vectors.tolist()
            return {
                "object": "list",
                "model": body.model,
                "data": [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(shaped)],
                "usage": {"prompt_tokens": used, "total_tokens": used},
            }

        return await answer(made)

    @router.get("/models", summary="What is served.", operation_id="openai_models")
    async def listed() -> Answer:
        return Answer({"object": "list", "data": [described(name) for name in models]})

    @router.get("/models/{name}", summary="One model.", operation_id="openai_model")
    async def one(name: str) -> Answer:
        find(models, name)
        return Answer(described(name))

    return router


def described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "unmask"}
