"""Which tasks of Hugging Face's there are, which of them a model can do, and which is its own. `huggingface.py` makes the routes."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unmask.inference.languages import languages, own_text, own_words
from unmask.labels.fields import Field
from unmask.server.routes import generation, understanding
from unmask.server.schemas import Request
from unmask.tasks.task import Task

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


@dataclass(frozen=True)
class Pipeline:
    about: str
    request: type[Request]
    answer: Any
    run: Callable[..., Awaitable[Callable[[], Any]]]  # asks the model, and gives what makes the response of its answers


ANY = "prediction"  # of a model whose task is none of the hub's
PIPELINES = {
    "fill-mask": Pipeline(
        "Fill the [MASK]s of a text.", understanding.FillMask, list[understanding.Filled], understanding.fill_mask
    ),
    "text-classification": Pipeline(
        "Label a text, or a pair.",
        understanding.Classify,
        list[list[understanding.Labelled]],
        understanding.text_classification,
    ),
    "token-classification": Pipeline(
        "Find entities.",
        understanding.TokenClassification,
        list[understanding.Entity],
        understanding.token_classification,
    ),
    "question-answering": Pipeline(
        "Answer from a passage.",
        understanding.QuestionAnswering,
        understanding.Answered,
        understanding.question_answering,
    ),
    "feature-extraction": Pipeline(
        "A vector per text.", understanding.FeatureExtraction, list[float], understanding.feature_extraction
    ),
    "sentence-similarity": Pipeline(
        "Cosines of texts.", understanding.SentenceSimilarity, list[float], understanding.sentence_similarity
    ),
    "text-generation": Pipeline(
        "Continue a text.", generation.TextGeneration, list[generation.Written], generation.text_generation
    ),
    "text2text-generation": Pipeline(
        "Rewrite a text.", generation.Rewrite, list[generation.Written], generation.rewriting("generated_text")
    ),
    "summarization": Pipeline(
        "Shorten a text.", generation.Rewrite, list[generation.Summary], generation.rewriting("summary_text")
    ),
    "translation": Pipeline(
        "Translate a text.", generation.Rewrite, list[generation.Translation], generation.rewriting("translation_text")
    ),
    "multiple-choice": Pipeline(
        "Choose what goes with a text.",
        understanding.MultipleChoice,
        understanding.Chosen,
        understanding.multiple_choice,
    ),
    "text-ranking": Pipeline(
        "Put passages in order.", understanding.TextRanking, list[understanding.Ranked], understanding.text_ranking
    ),
    ANY: Pipeline("What any fine-tuned model predicts.", understanding.Prediction, Any, understanding.prediction),
}
SAMPLES = {  # language → a text, the same with a mask, another
    "en": ("a good film", "a {} film", "it is long"),
    "zh": ("一部好电影", "一部{}电影", "片子很长"),
}


def own(predictor: "Predictor") -> str:
    """The pipeline that a model is made for."""
    if predictor.task is not None:
        served = predictor.task.SPEC.usage.served
        return served if served in PIPELINES else ANY
    return next(
        (p for head, p in (("lm", "text-generation"), ("mlm", "fill-mask")) if head in predictor.heads),
        "feature-extraction",
    )


def possible(predictor: "Predictor") -> list[str]:
    """All that it can do, its own first."""
    methods = predictor.methods()
    found = [own(predictor), *(["fill-mask"] if "fill" in methods else [])]
    if "generate" in methods:
        found += ["text-generation", "text2text-generation", "summarization", "translation"]
    return list(dict.fromkeys([*found, "feature-extraction", "sentence-similarity"]))


def sample(predictor: "Predictor") -> str:
    """A body to try with `own`, as a shell can quote it."""
    text, masked, other = SAMPLES.get(next(iter(languages(predictor.tokenizer)), ""), ("", "", ""))
    if not text:  # neither English nor Chinese
        words = [word.replace("'", "") for word in own_words(predictor.tokenizer)] or ["a"]
        text, masked, other = own_text(predictor.tokenizer, words), " ".join(["{}", *words[1:]]), words[0]
    mask = predictor.tokenizer.mask_token if predictor.tokenizer.mask is not None else other
    inputs: dict[str, Any] = {
        "fill-mask": masked.format(mask),
        "text-classification": {"text": text, "text_pair": other} if len(_required(predictor.task)) > 1 else text,
        "question-answering": {"question": other, "context": text},
        "multiple-choice": {"text": text, "choices": [other, text]},
        "text-ranking": {"query": other, "texts": [text, other]},
    }
    body: dict[str, Any] = {"inputs": inputs.get(own(predictor), text)}
    if predictor.task is not None and own(predictor) == ANY:
        body["inputs"] = {f.key: [text, other] if f.holds == "texts" else text for f in _required(predictor.task)}
    elif place := next((f.key for f in _required(predictor.task) if f.holds == "place"), None):
        body["parameters"] = {place: text.split()[-1].strip(".。")}
    return json.dumps(body, ensure_ascii=False)


def _required(task: Task | None) -> list[Field]:
    return [] if task is None else [field for field in task.spec.inputs if field.required]
