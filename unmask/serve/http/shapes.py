"""What several forms share: vectors at the length that a client wants, cutting a text that is too long when it is asked for."""

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from pydantic import Field

from unmask.errors import UserError
from unmask.serve.http.reading import Strict

if TYPE_CHECKING:
    from unmask.serve.predictor import Predictor

Text = Annotated[str, Field(examples=["a text"])]
Item = TypeVar("Item")
Several = Annotated[list[Item], Field(min_length=1)]
Texts = Several[Text]


class Problem(Strict):
    code: str
    message: str
    valid: str | None
    fix: str | None


class ErrorBody(Strict):
    error: Problem


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": what}
    for status, what in (
        (400, "The body cannot be read."),
        (401, "The API key is missing or wrong."),
        (404, "No such model, or no such page."),
        (413, "The body, the inputs or their tokens are too many."),
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
        raise UserError(f"dimensions {dimensions}", valid=f"1 to {vectors.shape[1]}")
    cut = vectors[:, :dimensions]
    if not normalize:
        return cut
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    return cut / np.where(lengths == 0, 1, lengths)


def as_base64(vector: np.ndarray) -> str:
    """Little-endian float32, as OpenAI's clients read it."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def cut(predictor: "Predictor", texts: Sequence[str]) -> list[str]:
    """Each text as far as the model reads."""
    most = predictor.config.max_positions - len(predictor.tokenizer.surround([], None)[0])
    found = predictor.tokenizer.encode_batch(list(texts))
    return [t if len(e) <= most else t[: e.offsets[most - 1][1]] for t, e in zip(texts, found, strict=True)]


def need_task(predictor: "Predictor", name: str) -> None:
    """The model is fine-tuned for it; else an error that says how to get one that is."""
    task = predictor.need_task().name
    if task != name:
        raise UserError(
            f"this model is fine-tuned for the task {task}, not for {name}",
            fix=f"unmask finetune MODEL --task {name} --train FILE",
        )
