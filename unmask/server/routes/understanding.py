"""Hugging Face's tasks that read: masks, labels, entities, answers, vectors, choices, order. What each takes, and what it answers, in the
shapes that `huggingface_hub.InferenceClient` and transformers' pipelines have. One input gives one answer, a list of inputs a list."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from unmask.errors import UserError, nearest
from unmask.server.json_io import Strict
from unmask.server.schemas import Ask, Cutting, Make, Request, Several, Text, Texts, sized

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

# ---------------------------------------------------------------------------------------------------- fill-mask


class FillSettings(Strict):
    top_k: int = Field(default=5, ge=1, le=1000, description="Candidates per mask.")
    targets: Texts | None = Field(default=None, description="The only words allowed.")


class FillMask(Request):
    inputs: Text | Texts = Field(examples=["the [MASK] of a film"])
    parameters: FillSettings = FillSettings()


class Filled(Strict):
    score: float
    token: int
    token_str: str
    sequence: str


async def fill_mask(ask: Ask, name: str, predictor: "Predictor", body: FillMask) -> Make:
    settings: dict[str, Any] = {"top_k": body.parameters.top_k}
    if body.parameters.targets:
        settings["candidates"] = tuple(body.parameters.targets)

    def shaped(filling: Any) -> list[Any]:
        masks = [
            [{"score": c.probability, "token": c.id, "token_str": c.token, "sequence": c.text} for c in mask.candidates]
            for mask in filling.masks
        ]
        return masks[0] if len(masks) == 1 else masks

    found = await ask(name, "fill", body.inputs, **settings)
    return lambda: [shaped(one) for one in found] if isinstance(found, list) else shaped(found)


# --------------------------------------------------------------------------------------------------- classify


class Pair(Strict):
    text: Text
    text_pair: Text


class ClassifySettings(Strict):
    top_k: int | None = Field(default=None, ge=1, description="Labels to give; all of them unless said.")


class Classify(Request):
    inputs: Text | Pair | Several[Text | Pair] = Field(examples=["what a film"])
    parameters: ClassifySettings = ClassifySettings()


class Labelled(Strict):
    label: str
    score: float


def labels(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Likeliest first; a model that gives a number has one label, "value"."""
    if "scores" not in answer:
        return [{"label": "value", "score": answer["value"]}]
    found = [{"label": label, "score": score} for label, score in answer["scores"].items()]
    return sorted(found, key=lambda row: -row["score"])


async def text_classification(ask: Ask, name: str, predictor: "Predictor", body: Classify) -> Make:
    predictor.need_pipeline("text-classification")
    asked = [item if isinstance(item, str) else (item.text, item.text_pair) for item in body.listed]
    found = await ask(name, "predict", asked)
    return lambda: [labels(answer)[: body.parameters.top_k] for answer in found]


# -------------------------------------------------------------------------------------------------------- tag


class TagSettings(Strict):
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] = Field(
        default="simple", description="none: a tag per word; all others: entities."
    )
    ignore_labels: list[str] = Field(default=["O"], fail_fast=True, description="Labels to leave out.")
    predicate: Text | None = Field(
        default=None, description="Of a model of semantic roles: a word of the text; run#2: its second occurrence."
    )


class TokenClassification(Request):
    inputs: Text | Texts = Field(examples=["anna saw a film"])
    parameters: TagSettings = TagSettings()


class Entity(Strict):
    entity_group: str | None = None
    entity: str | None = None
    score: float
    word: str
    start: int
    end: int


async def token_classification(ask: Ask, name: str, predictor: "Predictor", body: TokenClassification) -> Make:
    predictor.need_pipeline("token-classification")
    whole, unwanted = body.parameters.aggregation_strategy != "none", set(body.parameters.ignore_labels)

    def shaped(text: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
        if whole and "entities" in answer:
            found = [(e["label"], e["score"], e["start"], e["end"]) for e in answer["entities"]]
        else:
            found = [(tag, answer["score"], *word) for tag, word in zip(answer["tags"], answer["words"], strict=True)]
        key = "entity_group" if whole else "entity"
        return [
            {key: label, "score": score, "word": text[start:end], "start": start, "end": end}
            for label, score, start, end in found
            if label not in unwanted
        ]

    word = body.parameters.predicate
    asked = body.listed if word is None else [{"text": text, "predicate": word} for text in body.listed]
    found = await ask(name, "predict", asked)
    return lambda: body.shaped([shaped(t, a) for t, a in zip(body.listed, found, strict=True)])


# ----------------------------------------------------------------------------------------------------- answer


class Question(Strict):
    question: Text
    context: Text


class AnswerSettings(Strict):
    top_k: int = Field(default=1, ge=1, description="Answers to give.")
    handle_impossible_answer: bool | None = Field(default=None, description="false: always give the likeliest part.")


class QuestionAnswering(Request):
    inputs: Question | Several[Question]
    parameters: AnswerSettings = AnswerSettings()


class Answered(Strict):
    answer: str
    score: float
    start: int
    end: int


async def question_answering(ask: Ask, name: str, predictor: "Predictor", body: QuestionAnswering) -> Make:
    predictor.need_pipeline("question-answering")
    settings = body.parameters

    def shaped(answer: dict[str, Any]) -> Any:
        found = answer["candidates"]
        if answer["start"] is None and settings.handle_impossible_answer is not False:
            found = [{"answer": "", "start": 0, "end": 0, "probability": answer["probability"]}, *found]
        rows = [
            {"answer": a["answer"], "score": a["probability"], "start": a["start"], "end": a["end"]}
            for a in found[: settings.top_k]
        ]
        return rows[0] if settings.top_k == 1 and rows else rows

    found = await ask(name, "predict", [(item.question, item.context) for item in body.listed])
    return lambda: body.shaped([shaped(a) for a in found])


# ------------------------------------------------------------------------------------------------------ vectors


class FeatureExtraction(Request, Cutting):
    inputs: Text | Texts
    normalize: bool = Field(default=False, description="Vectors of length 1.")
    dimensions: int | None = Field(default=None, ge=1, description="Only so many numbers of each vector.")
    encoding_format: Literal["float"] = "float"


async def feature_extraction(ask: Ask, name: str, predictor: "Predictor", body: FeatureExtraction) -> Make:
    found = await ask(name, "embed", await body.cut(predictor, body.listed))
    return lambda: body.shaped(sized(np.stack(found), body.dimensions, body.normalize))


class Sentences(Strict):
    source_sentence: Text
    sentences: Texts


class SentenceSimilarity(Request):
    inputs: Sentences
    parameters: dict[str, Any] = Field(default={}, max_length=0)


async def sentence_similarity(ask: Ask, name: str, predictor: "Predictor", body: SentenceSimilarity) -> Make:
    return await cosines(ask, name, body.inputs)


async def cosines(ask: Ask, name: str, given: Sentences) -> Make:
    found = await ask(name, "embed", [given.source_sentence, *given.sentences])

    def shaped() -> list[float]:
        vectors = sized(np.stack(found), None, True)
        return (vectors[1:] @ vectors[0]).tolist()

    return shaped


# -------------------------------------------------------------------------------------------- several texts at once


class Choices(Strict):
    text: Text
    choices: Texts
    context: Text = ""


class MultipleChoice(Request):
    inputs: Choices | Several[Choices]


class Chosen(Strict):
    answer: str
    choice: int
    probability: float
    scores: list[float]


async def multiple_choice(ask: Ask, name: str, predictor: "Predictor", body: MultipleChoice) -> Make:
    predictor.need_pipeline("multiple-choice")
    found = await ask(name, "predict", [(i.text, list(i.choices), i.context) for i in body.listed])
    return lambda: body.shaped([{key: a[key] for key in Chosen.model_fields} for a in found])


class Passages(Strict):
    query: Text
    texts: Texts


class TextRanking(Request):
    inputs: Passages


class Ranked(Strict):
    index: int
    score: float


async def text_ranking(ask: Ask, name: str, predictor: "Predictor", body: TextRanking) -> Make:
    predictor.need_pipeline("text-ranking")
    answer = await ask(name, "predict", (body.inputs.query, list(body.inputs.texts)))
    return lambda: [{"index": n, "score": answer["scores"][n]} for n in answer["order"]]


# ------------------------------------------------------------------------------------------------- any other task

FIELDS = 20  # of a record, at most


def _few(value: Any) -> Any:
    """Before the values are looked at: 90,000 of them would take a second."""
    if isinstance(value, dict) and len(value) > FIELDS:
        raise ValueError(f"a record of more than {FIELDS} fields")
    return value


Record = Annotated[dict[str, Text | Texts], BeforeValidator(_few)]  # name of a field → what it holds


class Prediction(Request):
    """A text; the parts of what the task asks, as a list in the list of inputs; or a record: field → text."""

    inputs: Text | Record | Several[Text | Record | Several[Text | Texts]]
    parameters: dict[str, Any] = Field(default={}, max_length=0)


async def prediction(ask: Ask, name: str, predictor: "Predictor", body: Prediction) -> Make:
    known = [field.key for field in predictor.need_task().spec.inputs]
    for item in body.listed:
        if isinstance(item, dict):
            check_keys(item, known)
    found = await ask(name, "predict", [tuple(item) if isinstance(item, list) else item for item in body.listed])
    return lambda: body.shaped(found)


def check_keys(record: dict[str, Any], known: list[str]) -> None:
    """A record from outside holds what the model reads, and nothing else."""
    if strange := next((key for key in record if key not in known), None):
        raise UserError(f"no field {strange!r:.80}{nearest(strange, known)}", expected=", ".join(known))
