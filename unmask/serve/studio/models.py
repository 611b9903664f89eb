"""What the page is told of a model: what it is, what it can do, and which forms ask it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.serve.predictor import Predictor

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
        "parts": list(task.takes()[:2]) if task else [1, 1],
        "forms": forms(predictor),
        "mask": tokenizer.mask_token if tokenizer.mask is not None else None,
        "positions": config.max_positions,
    }


def forms(predictor: "Predictor") -> list[str]:
    """Forms of the task view, the model's own first."""
    own = [predictor.task.name] if predictor.task and predictor.task.name in TASKS else []
    others = [name for name in ("similarity", "generate", "next") if name in predictor.methods()]
    return list(dict.fromkeys([*own, *others]))
