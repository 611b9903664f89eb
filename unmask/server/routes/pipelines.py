"""Hugging Face's pipelines: their schemas, which of them a model supports, and which is its default."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unmask.inference.languages import join_words, languages, vocabulary_words
from unmask.labels.fields import Field
from unmask.server.routes import generation, nlu
from unmask.server.schemas import PipelineRequest
from unmask.tasks.task import Task

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


@dataclass(frozen=True)
class Pipeline:
    summary: str
    request: type[PipelineRequest]
    response: Any
    run: Callable[..., Awaitable[Callable[[], Any]]]  # runs the model, and returns a function that builds the response


ANY = "prediction"  # for a task that has no pipeline on the hub
PIPELINES = {
    "fill-mask": Pipeline("Fill [MASK] tokens.", nlu.FillMaskRequest, list[nlu.FillMaskCandidate], nlu.fill_mask),
    "text-classification": Pipeline(
        "Classify a text or a pair.", nlu.ClassificationRequest, list[list[nlu.LabelScore]], nlu.text_classification
    ),
    "token-classification": Pipeline(
        "Find entities.", nlu.TokenClassificationRequest, list[nlu.Entity], nlu.token_classification
    ),
    "question-answering": Pipeline(
        "Answer a question from a passage.", nlu.QARequest, nlu.QAAnswer, nlu.question_answering
    ),
    "feature-extraction": Pipeline("Embed texts.", nlu.FeatureExtractionRequest, list[float], nlu.feature_extraction),
    "sentence-similarity": Pipeline(
        "Cosine similarities.", nlu.SentenceSimilarityRequest, list[float], nlu.sentence_similarity
    ),
    "text-generation": Pipeline(
        "Continue a text.", generation.TextGenerationRequest, list[generation.GeneratedText], generation.text_generation
    ),
    "text2text-generation": Pipeline(
        "Rewrite a text.",
        generation.Text2TextRequest,
        list[generation.GeneratedText],
        generation.text2text("generated_text"),
    ),
    "summarization": Pipeline(
        "Summarize a text.", generation.Text2TextRequest, list[generation.Summary], generation.text2text("summary_text")
    ),
    "translation": Pipeline(
        "Translate a text.",
        generation.Text2TextRequest,
        list[generation.Translation],
        generation.text2text("translation_text"),
    ),
    "multiple-choice": Pipeline(
        "Choose the best continuation.", nlu.MultipleChoiceRequest, nlu.SelectedChoice, nlu.multiple_choice
    ),
    "text-ranking": Pipeline("Rank passages.", nlu.TextRankingRequest, list[nlu.RankedPassage], nlu.text_ranking),
    ANY: Pipeline("Predict with any fine-tuned model.", nlu.PredictionRequest, Any, nlu.prediction),
}
SAMPLES = {  # language → a text, the same with a mask, another text
    "en": ("a good film", "a {} film", "it is long"),
    "zh": ("一部好电影", "一部{}电影", "片子很长"),
}


def default_pipeline(predictor: "Predictor") -> str:
    """Return the pipeline of the model's task, or of its pre-training head."""
    if predictor.task is not None:
        served = predictor.task.SPEC.usage.served_pipeline
        return served if served in PIPELINES else ANY
    heads = {"lm": "text-generation", "mlm": "fill-mask"}
    return next((task for head, task in heads.items() if head in predictor.heads), "feature-extraction")


def supported_pipelines(predictor: "Predictor") -> list[str]:
    """Return all pipelines that the model supports, the default one first."""
    methods = predictor.methods()
    pipelines = [default_pipeline(predictor), *(["fill-mask"] if "fill" in methods else [])]
    if "generate" in methods:
        pipelines += ["text-generation", "text2text-generation", "summarization", "translation"]
    return list(dict.fromkeys([*pipelines, "feature-extraction", "sentence-similarity"]))


def sample_body(predictor: "Predictor") -> str:
    """Return an example body for the default pipeline, in a form that a shell can quote."""
    text, masked, other = SAMPLES.get(next(iter(languages(predictor.tokenizer)), ""), ("", "", ""))
    if not text:  # neither English nor Chinese
        words = [word.replace("'", "") for word in vocabulary_words(predictor.tokenizer)] or ["a"]
        text, masked, other = join_words(predictor.tokenizer, words), " ".join(["{}", *words[1:]]), words[0]
    mask = predictor.tokenizer.mask_token if predictor.tokenizer.mask is not None else other
    required, pipeline = _required_fields(predictor.task), default_pipeline(predictor)
    inputs: dict[str, Any] = {
        "fill-mask": masked.format(mask),
        "text-classification": {"text": text, "text_pair": other} if len(required) > 1 else text,
        "question-answering": {"question": other, "context": text},
        "multiple-choice": {"text": text, "choices": [other, text]},
        "text-ranking": {"query": other, "texts": [text, other]},
    }
    body: dict[str, Any] = {"inputs": inputs.get(pipeline, text)}
    if predictor.task is not None and pipeline == ANY:
        body["inputs"] = {field.key: [text, other] if field.holds == "texts" else text for field in required}
    elif word := next((field.key for field in required if field.holds == "place"), None):
        body["parameters"] = {word: text.split()[-1].strip(".。")}
    return json.dumps(body, ensure_ascii=False)


def _required_fields(task: Task | None) -> list[Field]:
    return [] if task is None else [field for field in task.spec.inputs if field.required]
