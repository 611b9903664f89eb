"""Hugging Face's tasks: what each takes ({"inputs": …, "parameters": {…}}) and what it answers, in the shapes that
`huggingface_hub.InferenceClient` and transformers' pipelines have. `huggingface.py` makes the routes.

One input gives one answer, a list of inputs a list of answers.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from unmask.serve.http.reading import Strict
from unmask.serve.http.shapes import Several, Text, Texts, cut, need_task, sized

if TYPE_CHECKING:
    from unmask.serve.predictor import Predictor

Ask = Callable[..., Awaitable[Any]]


class Request(Strict):
    options: dict[str, Any] | None = Field(default=None, description="Of the hosted service; without effect here.")


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


async def fill_mask(ask: Ask, name: str, predictor: "Predictor", body: FillMask) -> Any:
    settings: dict[str, Any] = {"top": body.parameters.top_k}
    if body.parameters.targets:
        settings["candidates"] = tuple(body.parameters.targets)

    def shaped(filling: Any) -> list[Any]:
        masks = [
            [{"score": c.probability, "token": c.id, "token_str": c.token, "sequence": c.text} for c in mask.candidates]
            for mask in filling.masks
        ]
        return masks[0] if len(masks) == 1 else masks

    return each(await ask(name, "fill", body.inputs, **settings), shaped)


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


async def text_classification(ask: Ask, name: str, predictor: "Predictor", body: Classify) -> Any:
    need_task(predictor, "classify")
    listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    asked = [item if isinstance(item, str) else (item.text, item.text_pair) for item in listed]
    return [labels(answer)[: body.parameters.top_k] for answer in await ask(name, "predict", asked)]


# -------------------------------------------------------------------------------------------------------- tag


class TagSettings(Strict):
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] = Field(
        default="simple", description="none: a tag per word; all others: entities."
    )
    ignore_labels: list[str] = Field(default=["O"], description="Labels to leave out.")


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


async def token_classification(ask: Ask, name: str, predictor: "Predictor", body: TokenClassification) -> Any:
    need_task(predictor, "tag")
    listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
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

    found = [shaped(t, a) for t, a in zip(listed, await ask(name, "predict", list(listed)), strict=True)]
    return found if isinstance(body.inputs, list) else found[0]


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


async def question_answering(ask: Ask, name: str, predictor: "Predictor", body: QuestionAnswering) -> Any:
    need_task(predictor, "answer")
    listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
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

    found = [shaped(a) for a in await ask(name, "predict", [(item.question, item.context) for item in listed])]
    return found if isinstance(body.inputs, list) else found[0]


# ------------------------------------------------------------------------------------------------------ vectors


class FeatureExtraction(Request):
    inputs: Text | Texts
    normalize: bool = Field(default=False, description="Vectors of length 1.")
    truncate: bool = Field(default=False, description="Cut a text that is too long; else it is refused.")
    dimensions: int | None = Field(default=None, ge=1, description="Only so many numbers of each vector.")
    encoding_format: Literal["float"] = "float"


async def feature_extraction(ask: Ask, name: str, predictor: "Predictor", body: FeatureExtraction) -> Any:
    import numpy as np

    listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    found = await ask(name, "embed", cut(predictor, listed) if body.truncate else list(listed))
    vectors = sized(np.stack(found), body.dimensions, body.normalize)
    return vectors if isinstance(body.inputs, list) else vectors[0]


class Sentences(Strict):
    source_sentence: Text
    sentences: Texts


class SentenceSimilarity(Request):
    inputs: Sentences
    parameters: dict[str, Any] = Field(default={}, max_length=0)


async def sentence_similarity(ask: Ask, name: str, predictor: "Predictor", body: SentenceSimilarity) -> list[float]:
    import numpy as np

    found = await ask(name, "embed", [body.inputs.source_sentence, *body.inputs.sentences])
    vectors = sized(np.stack(found), None, True)
    return (vectors[1:] @ vectors[0]).tolist()


# --------------------------------------------------------------------------------------------------------- text


class GenerateSettings(Strict):
    max_new_tokens: int | None = Field(default=None, ge=1, le=100_000)
    min_new_tokens: int | None = Field(default=None, ge=0, le=100_000)
    max_length: int | None = Field(default=None, ge=1, le=100_000)
    num_beams: int | None = Field(default=None, ge=1, le=64)
    length_penalty: float | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = Field(default=None, ge=0, le=100_000)
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)


def settings_of(body: GenerateSettings) -> dict[str, Any]:
    """What was given; as in text-generation-inference, a temperature, top_k or top_p means that tokens are drawn."""
    given = body.model_dump(exclude_none=True)
    drawn = given.keys() & {"temperature", "top_k", "top_p"}
    return given | ({"do_sample": True} if drawn and "do_sample" not in given else {})


class TextSettings(GenerateSettings):
    return_full_text: bool = Field(default=False, description="With the prompt before it.")
    details: Literal[False] | None = None
    decoder_input_details: Literal[False] | None = None
    watermark: Literal[False] | None = None


class TextGeneration(Request):
    inputs: Text | Texts = Field(examples=["the list is"])
    parameters: TextSettings = TextSettings()
    stream: Literal[False] | None = None


class Written(Strict):
    generated_text: str


async def text_generation(ask: Ask, name: str, predictor: "Predictor", body: TextGeneration) -> list[dict[str, str]]:
    given = settings_of(body.parameters)
    full = given.pop("return_full_text")
    for key in ("details", "decoder_input_details", "watermark"):
        given.pop(key, None)
    listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    found = await ask(name, "generate", list(listed), **given)
    return [{"generated_text": a.text + a.new if full and a.continues else a.new} for a in found]


class RewriteSettings(Strict):
    generate_parameters: GenerateSettings = GenerateSettings()
    clean_up_tokenization_spaces: Literal[False] | None = None
    truncation: Literal["do_not_truncate"] | None = None


class Rewrite(Request):
    inputs: Text | Texts = Field(examples=["summarize: a long text"])
    parameters: RewriteSettings = RewriteSettings()


class Summary(Strict):
    summary_text: str


class Translation(Strict):
    translation_text: str


def rewriting(key: str) -> Callable[..., Awaitable[list[dict[str, str]]]]:
    async def rewrite(ask: Ask, name: str, predictor: "Predictor", body: Rewrite) -> list[dict[str, str]]:
        listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
        given = settings_of(body.parameters.generate_parameters)
        return [{key: a.new} for a in await ask(name, "generate", list(listed), **given)]

    return rewrite


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


async def multiple_choice(ask: Ask, name: str, predictor: "Predictor", body: MultipleChoice) -> Any:
    need_task(predictor, "choose")
    listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    found = await ask(name, "predict", [(i.text, list(i.choices), i.context) for i in listed])
    found = [{key: a[key] for key in Chosen.model_fields} for a in found]
    return found if isinstance(body.inputs, list) else found[0]


class Passages(Strict):
    query: Text
    texts: Texts


class TextRanking(Request):
    inputs: Passages


class Ranked(Strict):
    index: int
    score: float


async def text_ranking(ask: Ask, name: str, predictor: "Predictor", body: TextRanking) -> list[dict[str, Any]]:
    need_task(predictor, "rank")
    answer = await ask(name, "predict", (body.inputs.query, list(body.inputs.texts)))
    return [{"index": n, "score": answer["scores"][n]} for n in answer["order"]]


@dataclass(frozen=True)
class Pipeline:
    about: str
    request: type[Request]
    answer: Any
    run: Callable[..., Awaitable[Any]]


PIPELINES = {
    "fill-mask": Pipeline("Fill the [MASK]s of a text.", FillMask, list[Filled], fill_mask),
    "text-classification": Pipeline("Label a text, or a pair.", Classify, list[list[Labelled]], text_classification),
    "token-classification": Pipeline("Find entities.", TokenClassification, list[Entity], token_classification),
    "question-answering": Pipeline("Answer from a passage.", QuestionAnswering, Answered, question_answering),
    "feature-extraction": Pipeline("A vector per text.", FeatureExtraction, list[float], feature_extraction),
    "sentence-similarity": Pipeline("Cosines of texts.", SentenceSimilarity, list[float], sentence_similarity),
    "text-generation": Pipeline("Continue a text.", TextGeneration, list[Written], text_generation),
    "text2text-generation": Pipeline("Rewrite a text.", Rewrite, list[Written], rewriting("generated_text")),
    "summarization": Pipeline("Shorten a text.", Rewrite, list[Summary], rewriting("summary_text")),
    "translation": Pipeline("Translate a text.", Rewrite, list[Translation], rewriting("translation_text")),
    "multiple-choice": Pipeline("Choose what goes with a text.", MultipleChoice, Chosen, multiple_choice),
    "text-ranking": Pipeline("Put passages in order.", TextRanking, list[Ranked], text_ranking),
}
OF_TASK = {  # of a fine-tuned model → its own
    "classify": "text-classification",
    "tag": "token-classification",
    "answer": "question-answering",
    "choose": "multiple-choice",
    "rank": "text-ranking",
    "embed": "feature-extraction",
    "generate": "text-generation",
}


def own(predictor: "Predictor") -> str:
    """The pipeline that a model is made for."""
    if predictor.task is not None:
        return OF_TASK[predictor.task.name]
    return next(
        (p for head, p in (("lm", "text-generation"), ("mlm", "fill-mask")) if head in predictor.heads),
        "feature-extraction",
    )


def possible(predictor: "Predictor") -> list[str]:
    """All that it can do, its own first."""
    first, heads = own(predictor), set(predictor.heads)
    found = [first]
    if "mlm" in heads:
        found.append("fill-mask")
    if {"lm", "mlm"} & heads:
        found += ["text-generation", "text2text-generation", "summarization", "translation"]
    return list(dict.fromkeys([*found, "feature-extraction", "sentence-similarity"]))


def each(found: Any, shape: Callable[[Any], Any]) -> Any:
    return [shape(answer) for answer in found] if isinstance(found, list) else shape(found)


def sample(predictor: "Predictor") -> str:
    """A body to try with `own`, as a shell can quote it."""
    inputs: dict[str, Any] = {
        "fill-mask": f"a {predictor.tokenizer.mask_token} film" if predictor.tokenizer.mask is not None else "a film",
        "text-classification": {"text": "a film", "text_pair": "it is long"} if _takes_pairs(predictor) else "a film",
        "question-answering": {"question": "who came?", "context": "Anna came late."},
        "multiple-choice": {"text": "the film was", "choices": ["good", "long"]},
        "text-ranking": {"query": "a film", "texts": ["of a film", "of a list"]},
    }
    return json.dumps({"inputs": inputs.get(own(predictor), "a film")}, ensure_ascii=False)


def _takes_pairs(predictor: "Predictor") -> bool:
    return predictor.task is not None and bool(predictor.task.learnt.get("pair"))
