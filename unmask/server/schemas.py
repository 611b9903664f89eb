"""Schemas and helpers that several APIs share: requests, errors, vectors of a given size, truncation."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from unmask.errors import UserError
from unmask.numeric import l2_normalize
from unmask.server.cost import MAX_CHARS_PER_TOKEN
from unmask.server.counting import CHUNK_CHARS, chunk_texts, run_in_pool
from unmask.server.json_io import StrictModel
from unmask.text.windows import truncate_texts

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

Text = Annotated[str, Field(examples=["a text"])]
Submit = Callable[..., Awaitable[Any]]  # Batcher.submit
BuildResponse = Callable[[], Any]  # builds a response from the results of a Predictor (json_io.json_response)
Item = TypeVar("Item")
NonEmptyList = Annotated[list[Item], Field(min_length=1, fail_fast=True)]  # reports only the first error
Texts = NonEmptyList[Text]


class PipelineRequest(StrictModel):
    """A single input returns a single result; a list of inputs returns a list of results."""

    inputs: Any
    options: dict[str, Any] | None = Field(default=None, description="For the hosted service; ignored here.")

    @property
    def items(self) -> list[Any]:
        return list(self.inputs) if isinstance(self.inputs, list) else [self.inputs]

    def unwrap(self, results: Any) -> Any:
        """Return the results for `items` as a list, or as a single result for a single input."""
        return results if isinstance(self.inputs, list) else results[0]


class ErrorDetail(StrictModel):
    code: str
    message: str
    expected: str | None
    hint: str | None


class ErrorBody(StrictModel):
    error: ErrorDetail


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description}
    for status, description in (
        (400, "The body cannot be parsed."),
        (401, "The API key is missing or wrong."),
        (404, "Unknown model or route."),
        (413, "The body, a text, the inputs, their tokens or the response would be too large."),
        (422, "The body does not match the schema, or the model does not support the request."),
        (429, "The queue is full."),
        (503, "The server is shutting down, overloaded, or timed out."),
    )
}


def model_enum(models: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a parameter that names a model."""
    return {"enum": list(models)} if models else {}


def resize(vectors: np.ndarray, dimensions: int | None, normalize: bool) -> np.ndarray:
    """(N, D) → (N, dimensions), normalized to length 1 if requested.

    >>> resize(np.array([[3.0, 4.0, 12.0]]), 2, True)
    array([[0.6, 0.8]])
    """
    if dimensions is not None and dimensions > vectors.shape[1]:
        raise UserError(f"dimensions is {dimensions}", expected=f"1 to {vectors.shape[1]}")
    return l2_normalize(vectors[:, :dimensions], normalize)


def as_base64(vector: np.ndarray) -> str:
    """Encode as little-endian float32, the format of OpenAI's clients."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


class TruncationOptions(StrictModel):
    """How texts that exceed the model's maximum length are handled."""

    truncate: bool = Field(default=False, description="Truncate a text that is too long instead of returning an error.")
    truncation_direction: Literal["left", "right", "Left", "Right"] = Field(
        default="right", description="Which end is cut off."
    )

    async def apply_truncation(self, predictor: "Predictor", texts: list[str]) -> list[str]:
        if not self.truncate:
            return texts
        left, tokenizer = self.truncation_direction.lower() == "left", predictor.tokenizer
        max_tokens = predictor.config.max_positions - len(tokenizer.build_inputs_with_special_tokens([], None)[0])
        max_chars = predictor.config.max_positions * MAX_CHARS_PER_TOKEN  # applied first, because it is cheap
        texts = [text[-max_chars:] if left else text[:max_chars] for text in texts]
        truncated: list[str] = []
        for parts in chunk_texts(texts, max(CHUNK_CHARS, max_chars)):  # no text is split
            chunk = [text for _, text in parts]
            truncated += await run_in_pool(lambda chunk=chunk: truncate_texts(tokenizer, chunk, max_tokens, left))  # type: ignore[misc]
        return truncated
