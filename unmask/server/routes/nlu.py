"""Hugging Face's pipelines for understanding text: their requests, and their responses in the format of
`huggingface_hub.InferenceClient` and transformers. A single input returns a single result, a list of inputs a list."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from unmask.errors import UserError, nearest
from unmask.server.json_io import StrictModel
from unmask.server.schemas import (
    BuildResponse,
    NonEmptyList,
    PipelineRequest,
    Submit,
    Text,
    Texts,
    TruncationOptions,
    resize,
)

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

# ---------------------------------------------------------------------------------------------------- fill-mask


class FillMaskParameters(StrictModel):
    top_k: int = Field(default=5, ge=1, le=1000, description="Candidates per mask.")
    targets: Texts | None = Field(default=None, description="Restrict the candidates to these words.")


class FillMaskRequest(PipelineRequest):
    inputs: Text | Texts = Field(examples=["the [MASK] of a film"])
    parameters: FillMaskParameters = FillMaskParameters()


class FillMaskCandidate(StrictModel):
    score: float
    token: int
    token_str: str
    sequence: str


async def fill_mask(submit: Submit, name: str, predictor: "Predictor", body: FillMaskRequest) -> BuildResponse:
    settings: dict[str, Any] = {"top_k": body.parameters.top_k}
    if body.parameters.targets:
        settings["candidates"] = tuple(body.parameters.targets)

    def convert(result: Any) -> list[Any]:
        masks = [
            [{"score": c.probability, "token": c.id, "token_str": c.token, "sequence": c.text} for c in mask.candidates]
            for mask in result.masks
        ]
        return masks[0] if len(masks) == 1 else masks

    results = await submit(name, "fill", body.items, **settings)
    return lambda: body.unwrap([convert(result) for result in results])


# ------------------------------------------------------------------------------------------ text-classification


class TextPair(StrictModel):
    text: Text
    text_pair: Text


class ClassificationParameters(StrictModel):
    top_k: int | None = Field(default=None, ge=1, description="Number of labels to return; default: all.")


class ClassificationRequest(PipelineRequest):
    inputs: Text | TextPair | NonEmptyList[Text | TextPair] = Field(examples=["what a film"])
    parameters: ClassificationParameters = ClassificationParameters()


class LabelScore(StrictModel):
    label: str
    score: float


def label_scores(prediction: dict[str, Any]) -> list[dict[str, Any]]:
    """Return labels and scores, highest score first; a regression model has one label, "value"."""
    if "scores" not in prediction:
        return [{"label": "value", "score": prediction["value"]}]
    rows = [{"label": label, "score": score} for label, score in prediction["scores"].items()]
    return sorted(rows, key=lambda row: -row["score"])


async def text_classification(
    submit: Submit, name: str, predictor: "Predictor", body: ClassificationRequest
) -> BuildResponse:
    predictor.require_pipeline("text-classification")
    inputs = [item if isinstance(item, str) else (item.text, item.text_pair) for item in body.items]
    results = await submit(name, "predict", inputs)
    return lambda: [label_scores(result)[: body.parameters.top_k] for result in results]


# ----------------------------------------------------------------------------------------- token-classification


class TokenClassificationParameters(StrictModel):
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] = Field(
        default="simple", description="none: one tag per word; all others: entities."
    )
    ignore_labels: list[str] = Field(default=["O"], fail_fast=True, description="Labels to omit.")
    predicate: Text | None = Field(
        default=None,
        description="For semantic role labeling: the predicate, a word of the text; run#2 is its second occurrence.",
    )


class TokenClassificationRequest(PipelineRequest):
    inputs: Text | Texts = Field(examples=["anna saw a film"])
    parameters: TokenClassificationParameters = TokenClassificationParameters()


class Entity(StrictModel):
    entity_group: str | None = None
    entity: str | None = None
    score: float
    word: str
    start: int
    end: int


async def token_classification(
    submit: Submit, name: str, predictor: "Predictor", body: TokenClassificationRequest
) -> BuildResponse:
    predictor.require_pipeline("token-classification")
    aggregate, ignored = body.parameters.aggregation_strategy != "none", set(body.parameters.ignore_labels)

    def convert(text: str, result: dict[str, Any]) -> list[dict[str, Any]]:
        if aggregate and "entities" in result:
            spans = [(e["label"], e["score"], e["start"], e["end"]) for e in result["entities"]]
        else:
            spans = [(tag, result["score"], *word) for tag, word in zip(result["tags"], result["words"], strict=True)]
        key = "entity_group" if aggregate else "entity"
        return [
            {key: label, "score": score, "word": text[start:end], "start": start, "end": end}
            for label, score, start, end in spans
            if label not in ignored
        ]

    predicate = body.parameters.predicate
    inputs = body.items if predicate is None else [{"text": text, "predicate": predicate} for text in body.items]
    results = await submit(name, "predict", inputs)
    return lambda: body.unwrap([convert(text, result) for text, result in zip(body.items, results, strict=True)])


# ------------------------------------------------------------------------------------------- question-answering


class QAInput(StrictModel):
    question: Text
    context: Text


class QAParameters(StrictModel):
    top_k: int = Field(default=1, ge=1, description="Number of answers to return.")
    handle_impossible_answer: bool | None = Field(
        default=None, description="false: always return the most likely span, even if there may be no answer."
    )


class QARequest(PipelineRequest):
    inputs: QAInput | NonEmptyList[QAInput]
    parameters: QAParameters = QAParameters()


class QAAnswer(StrictModel):
    answer: str
    score: float
    start: int
    end: int


async def question_answering(submit: Submit, name: str, predictor: "Predictor", body: QARequest) -> BuildResponse:
    predictor.require_pipeline("question-answering")
    parameters = body.parameters

    def convert(result: dict[str, Any]) -> Any:
        answers = result["candidates"]
        if result["start"] is None and parameters.handle_impossible_answer is not False:
            answers = [{"answer": "", "start": 0, "end": 0, "probability": result["probability"]}, *answers]
        rows = [
            {"answer": a["answer"], "score": a["probability"], "start": a["start"], "end": a["end"]}
            for a in answers[: parameters.top_k]
        ]
        return rows[0] if parameters.top_k == 1 and rows else rows

    results = await submit(name, "predict", [(item.question, item.context) for item in body.items])
    return lambda: body.unwrap([convert(result) for result in results])


# ------------------------------------------------------------------------------------------------------ vectors


class FeatureExtractionRequest(PipelineRequest, TruncationOptions):
    inputs: Text | Texts
    normalize: bool = Field(default=False, description="Normalize vectors to length 1.")
    dimensions: int | None = Field(default=None, ge=1, description="Truncate vectors to this size.")
    encoding_format: Literal["float"] = "float"


async def feature_extraction(
    submit: Submit, name: str, predictor: "Predictor", body: FeatureExtractionRequest
) -> BuildResponse:
    results = await submit(name, "embed", await body.apply_truncation(predictor, body.items))
    return lambda: body.unwrap(resize(np.stack(results), body.dimensions, body.normalize))


class SentencePairs(StrictModel):
    source_sentence: Text
    sentences: Texts


class SentenceSimilarityRequest(PipelineRequest):
    inputs: SentencePairs
    parameters: dict[str, Any] = Field(default={}, max_length=0)


async def sentence_similarity(
    submit: Submit, name: str, predictor: "Predictor", body: SentenceSimilarityRequest
) -> BuildResponse:
    return await cosine_similarities(submit, name, body.inputs)


async def cosine_similarities(submit: Submit, name: str, pairs: SentencePairs) -> BuildResponse:
    results = await submit(name, "embed", [pairs.source_sentence, *pairs.sentences])

    def build() -> list[float]:
        vectors = resize(np.stack(results), None, True)
        return (vectors[1:] @ vectors[0]).tolist()

    return build


# -------------------------------------------------------------------------------- multiple-choice, text-ranking


class ChoiceInput(StrictModel):
    text: Text
    choices: Texts
    context: Text = ""


class MultipleChoiceRequest(PipelineRequest):
    inputs: ChoiceInput | NonEmptyList[ChoiceInput]


class SelectedChoice(StrictModel):
    answer: str
    choice: int
    probability: float
    scores: list[float]


async def multiple_choice(
    submit: Submit, name: str, predictor: "Predictor", body: MultipleChoiceRequest
) -> BuildResponse:
    predictor.require_pipeline("multiple-choice")
    results = await submit(name, "predict", [(item.text, list(item.choices), item.context) for item in body.items])
    return lambda: body.unwrap([{key: result[key] for key in SelectedChoice.model_fields} for result in results])


class RankingInput(StrictModel):
    query: Text
    texts: Texts


class TextRankingRequest(PipelineRequest):
    inputs: RankingInput


class RankedPassage(StrictModel):
    index: int
    score: float


async def text_ranking(submit: Submit, name: str, predictor: "Predictor", body: TextRankingRequest) -> BuildResponse:
    predictor.require_pipeline("text-ranking")
    result = await submit(name, "predict", (body.inputs.query, list(body.inputs.texts)))
    return lambda: [{"index": n, "score": result["scores"][n]} for n in result["order"]]


# --------------------------------------------------------------------------------------------------- other tasks

MAX_FIELDS = 20  # of a record


def _check_num_fields(value: Any) -> Any:
    """Reject a record with too many fields before its values are validated: 90,000 of them would take a second."""
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise ValueError(f"the record has more than {MAX_FIELDS} fields")
    return value


Record = Annotated[dict[str, Text | Texts], BeforeValidator(_check_num_fields)]  # name of a field → its value


class PredictionRequest(PipelineRequest):
    """Each input is a text, a list with the values of the task's fields, or a record: field → value."""

    inputs: Text | Record | NonEmptyList[Text | Record | NonEmptyList[Text | Texts]]
    parameters: dict[str, Any] = Field(default={}, max_length=0)


async def prediction(submit: Submit, name: str, predictor: "Predictor", body: PredictionRequest) -> BuildResponse:
    fields = [field.key for field in predictor.require_task().spec.inputs]
    for item in body.items:
        if isinstance(item, dict):
            check_fields(item, fields)
    results = await submit(name, "predict", [tuple(item) if isinstance(item, list) else item for item in body.items])
    return lambda: body.unwrap(results)


def check_fields(record: dict[str, Any], fields: list[str]) -> None:
    """Raise UserError if a client's record has a field that the model does not read."""
    if unexpected := next((key for key in record if key not in fields), None):
        message = f"unknown field {unexpected!r:.80}{nearest(unexpected, fields)}"
        raise UserError(message, expected=", ".join(fields))
