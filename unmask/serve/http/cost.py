"""How many tokens a model reads for a question: what batches and limits are counted in."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unmask.model.generation import NEW
from unmask.serve.filling import MASKS
from unmask.serve.look_methods import STEPS

if TYPE_CHECKING:
    from unmask.serve.predictor import Predictor


def texts_in(value: Any) -> Iterator[str]:
    """
    >>> list(texts_in({"query": "a", "passages": ["b", "c"], "n": 1}))
    ['a', 'b', 'c']
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts_in(part)


def tokens(predictor: "Predictor", items: Sequence[Any]) -> list[int]:
    """Of each item's texts, without special tokens."""
    texts = [list(texts_in(item)) for item in items]
    lengths = iter([len(e) for e in predictor.tokenizer.encode_batch([t for own in texts for t in own])])
    return [sum(next(lengths) for _ in own) for own in texts]


def read(predictor: "Predictor", method: str, item: Any, count: int, settings: Mapping[str, Any]) -> int:
    """Tokens read for a question whose texts have `count`: more than once where the model is asked again and again."""
    count += 2  # [CLS] and [SEP]
    if method == "score" and "lm" not in predictor.heads:
        return count * count
    if method == "fill":
        masks = sum(len(MASKS.findall(text)) for text in texts_in(item)) * max(1, len(settings.get("candidates") or ()))
        return count * (1 + masks * max(1, _whole(settings, "joint")) * max(1, _whole(settings, "grow")))
    if method == "generate" or (method == "predict" and getattr(predictor.task, "name", "") == "generate"):
        longest = max(_whole(settings, "max_new_tokens") or NEW, _whole(settings, "max_length"))
        return (count + longest) * max(1, _whole(settings, "num_beams"))
    if method == "explain":
        return (count + NEW * ("lm" in predictor.heads)) * 2 * STEPS
    first = next(texts_in(item), "")  # a query is read with each passage, a question with each choice
    several = sum(1 for _ in texts_in(item)) - 2
    return count + max(0, several) * min(count, len(first)) // 4


def _whole(settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    return value if isinstance(value, int) else 0
