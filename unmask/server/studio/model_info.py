"""Describe a model for the page: its properties, its methods, and the forms of the task view."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unmask.inference.languages import join_words, languages, vocabulary_words
from unmask.inference.methods import GENERATE
from unmask.labels.fields import Field
from unmask.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

PLACEHOLDER = "\N{REPLACEMENT CHARACTER}"  # stands for [MASK] while words are joined
TEXT = Field("text")
FORMS = {  # method → its inputs
    "similarity": (TEXT, Field("other")),
    GENERATE: (TEXT,),
    "next_sentence": (TEXT, Field("other")),
}


def describe(name: str, predictor: "Predictor") -> dict[str, Any]:
    config, task, tokenizer = predictor.config, predictor.task, predictor.tokenizer
    return {
        "name": name,
        "family": config.family,
        "layers": config.layers,
        "hidden": config.hidden,
        "heads": predictor.heads,
        "methods": sorted(predictor.methods()),
        "task": task.name if task else None,
        "labels": list(task.spec.labels) if task else [],
        "forms": forms(predictor),
        "mask": tokenizer.mask_token if tokenizer.mask is not None else None,
        "positions": config.max_positions,
        "languages": languages(tokenizer),
        "sample": None if languages(tokenizer) else _sample(tokenizer),
    }


def _sample(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return example texts made of the tokenizer's words, for a model that knows none of the page's examples."""
    words = vocabulary_words(tokenizer)
    middle = len(words) // 2
    masked = join_words(tokenizer, [*words[:middle], PLACEHOLDER, *words[middle + 1 :]]).replace(PLACEHOLDER, "[MASK]")
    return {"words": words, "text": join_words(tokenizer, words), "masked": masked}


def forms(predictor: "Predictor") -> list[dict[str, Any]]:
    """Return the forms of the task view, the model's own task first: name, method, view of the result, and fields."""
    task, result = predictor.task, []
    if task is not None and task.spec.output != "vector":
        spec = task.spec
        method = GENERATE if spec.output == "text" and GENERATE in predictor.methods() else "predict"
        result.append(_form(spec.name, method, spec.view, spec.inputs) | {"about": spec.about})
    used = [form["method"] for form in result]
    others = [name for name in FORMS if name in predictor.methods() and name not in used]
    return result + [_form(name, name, "text" if name == GENERATE else name, FORMS[name]) for name in others]


def _form(name: str, method: str, view: str, fields: Sequence[Field]) -> dict[str, Any]:
    inputs = [{"name": f.key, "caption": f.caption, "holds": f.holds, "required": f.required} for f in fields]
    return {"name": name, "method": method, "view": view, "fields": inputs}
