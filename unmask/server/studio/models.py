"""What the page is told of a model: what it is, what it can do, and which forms ask it."""

from typing import TYPE_CHECKING, Any

from unmask.inference.languages import languages, own_text, own_words
from unmask.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

HOLE = "\N{REPLACEMENT CHARACTER}"  # where a mask will stand
TASKS = ("classify", "tag", "answer", "choose", "rank", "generate")  # tasks with a form of their own


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
        "labels": [str(label) for label in (task.learnt.get("labels") or [])] if task else [],
        "parts": list(task.spec.parts) if task else [1, 1],
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


def forms(predictor: "Predictor") -> list[str]:
    """Forms of the task view, the model's own first."""
    own = [predictor.task.name] if predictor.task and predictor.task.name in TASKS else []
    others = [name for name in ("similarity", "generate", "next") if name in predictor.methods()]
    return list(dict.fromkeys([*own, *others]))
