"""What the page is told of a model: what it is, what it can do, and which forms ask it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unmask.inference.languages import languages, own_text, own_words
from unmask.inference.methods import GENERATE
from unmask.labels.fields import Field
from unmask.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

HOLE = "\N{REPLACEMENT CHARACTER}"  # where a mask will stand
TEXT = Field("text")
FORMS = {  # method → what it is asked
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
        "own": None if languages(tokenizer) else _own(tokenizer),
    }


def _own(tokenizer: Tokenizer) -> dict[str, Any]:
    """A text for a model that knows none of the page's example texts."""
    words = own_words(tokenizer)
    middle = len(words) // 2
    masked = own_text(tokenizer, [*words[:middle], HOLE, *words[middle + 1 :]]).replace(HOLE, "[MASK]")
    return {"words": words, "text": own_text(tokenizer, words), "masked": masked}


def forms(predictor: "Predictor") -> list[dict[str, Any]]:
    """Forms of the task view, the model's own first: what it is called, the method that answers, how the answer looks, its fields."""
    task, found = predictor.task, []
    if task is not None and task.spec.output != "vector":
        spec = task.spec
        method = GENERATE if spec.output == "text" and GENERATE in predictor.methods() else "predict"
        found.append(_form(spec.name, method, spec.view, spec.inputs) | {"about": spec.about})
    views = {GENERATE: "text"}
    others = [name for name in FORMS if name in predictor.methods() and name not in [form["method"] for form in found]]
    return found + [_form(name, name, views.get(name, name), FORMS[name]) for name in others]


def _form(name: str, method: str, view: str, fields: Sequence[Field]) -> dict[str, Any]:
    asked = [{"name": f.key, "caption": f.caption, "holds": f.holds, "required": f.required} for f in fields]
    return {"name": name, "method": method, "view": view, "fields": asked}
