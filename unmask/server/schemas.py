"""What several forms share: vectors at the length that a client wants, cutting a text that is too long when it is asked for."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from unmask.errors import UserError
from unmask.numeric import unit
from unmask.server.cost import CHARACTERS
from unmask.server.counting import SLICE, in_pool, slices
from unmask.server.json_io import Strict
from unmask.text.windows import cut_texts

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

Text = Annotated[str, Field(examples=["a text"])]
Ask = Callable[..., Awaitable[Any]]  # Batcher.ask
Make = Callable[[], Any]  # makes a response of a Predictor's answers (reading.answer)
Item = TypeVar("Item")
Several = Annotated[list[Item], Field(min_length=1, fail_fast=True)]  # of many mistakes the first is said
Texts = Several[Text]


class Request(Strict):
    """One input gives one answer, a list of inputs a list."""

    inputs: Any
    options: dict[str, Any] | None = Field(default=None, description="Of the hosted service; without effect here.")

    @property
    def listed(self) -> list[Any]:
        return list(self.inputs) if isinstance(self.inputs, list) else [self.inputs]

    def shaped(self, answers: Any) -> Any:
        """Answers to `listed`, as they were asked for."""
        return answers if isinstance(self.inputs, list) else answers[0]


class Problem(Strict):
    code: str
    message: str
    expected: str | None
    hint: str | None


class ErrorBody(Strict):
    error: Problem


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": what}
    for status, what in (
        (400, "The body cannot be read."),
        (401, "The API key is missing or wrong."),
        (404, "No such model, or no such page."),
        (413, "The body, a text, the inputs, their tokens or the response would be too large."),
        (422, "The body is JSON, but not what was asked for, or the model cannot do it."),
        (429, "Too much waits already."),
        (503, "Stopping, or no answer in time."),
    )
}


def names(models: Mapping[str, Any]) -> dict[str, Any]:
    """For the description of a parameter: which models it may name."""
    return {"enum": list(models)} if models else {}


def sized(vectors: np.ndarray, dimensions: int | None, normalize: bool) -> np.ndarray:
    """(N, D) → (N, dimensions), of length 1 if asked.

    >>> sized(np.array([[3.0, 4.0, 12.0]]), 2, True)
    array([[0.6, 0.8]])
    """
    if dimensions is not None and dimensions > vectors.shape[1]:
        raise UserError(f"dimensions {dimensions}", expected=f"1 to {vectors.shape[1]}")
    return unit(vectors[:, :dimensions], normalize)


def as_base64(vector: np.ndarray) -> str:
    """Little-endian float32, as OpenAI's clients read it."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


class Cutting(Strict):
    """How a client says what becomes of a text that is too long."""

    truncate: bool = Field(default=False, description="Cut a text that is too long; else it is refused.")
    truncation_direction: Literal["left", "right", "Left", "Right"] = Field(
        default="right", description="Which end is cut off."
    )

    async def cut(self, predictor: "Predictor", texts: list[str]) -> list[str]:
        """Each text as far as the model reads."""
        if not self.truncate:
            return texts
        most = predictor.config.max_positions * CHARACTERS  # a text that is longer than this loses the rest first
        texts = [text[-most:] if self.left else text[:most] for text in texts]
        cut = [
            await in_pool(lambda parts=parts: self._cut(predictor, [text for _, text in parts]))  # type: ignore[misc]
            for parts in slices(texts, max(SLICE, most))  # every text whole
        ]
        return [text for part in cut for text in part]

    @property
    def left(self) -> bool:
        return self.truncation_direction.lower() == "left"

    def _cut(self, predictor: "Predictor", texts: list[str]) -> list[str]:
        tokenizer = predictor.tokenizer
        most = predictor.config.max_positions - len(tokenizer.surround([], None)[0])
        return cut_texts(tokenizer, texts, most, self.left)
