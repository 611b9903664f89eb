"""How many tokens a model reads for a question: what batches and limits are counted in."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unmask.inference.filling import MASKS
from unmask.inference.inputs import texts_in
from unmask.inference.introspection import STEPS
from unmask.inference.methods import EMBED, GENERATE
from unmask.model.generation import NEW
from unmask.server.errors import Refused

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

CHARACTERS = (
    64  # of a text for each token; text has about five, a run of blanks or a word that is [UNK] may have any number
)


def check_characters(predictor: "Predictor", method: str, items: Sequence[Any]) -> None:
    """Refuses, before anything is counted, a text that is far too long for a model that reads it in one row."""
    if in_windows(predictor, method):
        return
    most = predictor.config.max_positions * CHARACTERS
    longest = max((len(text) for item in items for text in texts_in(item)), default=0)
    if longest > most:
        raise Refused(
            413,
            "too_long",
            f"a text has {longest:,} characters; the model reads {predictor.config.max_positions:,} tokens",
            expected=f"at most {most:,} characters: {CHARACTERS} for each token",
            hint="send it in parts",
        )


def in_windows(predictor: "Predictor", method: str) -> bool:
    """Whether a text may be longer than the model's positions: tasks read it in windows, or its beginning."""
    if method in (EMBED, "similarity"):
        return predictor.task is not None and predictor.task.spec.output == "vector"
    return predictor.task is not None and method not in ("fill", "score", "next_sentence", "attention", "word_vectors")


def charged(tokens: int, item: Any) -> int:
    """Tokens of an item for the limits: a word of a megabyte may be one [UNK], and is not as cheap as that."""
    return max(tokens, sum(len(text) for text in texts_in(item)) // CHARACTERS)


def masks_in(predictor: "Predictor", text: str) -> int:
    tokenizer = predictor.tokenizer
    own = "" if tokenizer.mask is None else tokenizer.mask_token
    return len(MASKS.findall(text)) + (text.count(own) if own and not MASKS.fullmatch(own) else 0)


def writes(predictor: "Predictor") -> bool:
    """Whether it is fine-tuned to write text."""
    return predictor.task is not None and predictor.task.spec.output == "text"


def new_tokens(predictor: "Predictor", settings: Mapping[str, Any]) -> int:
    """That are written for a prompt, at most."""
    given = {**predictor.engine.generation, **settings}
    return max(whole(given, "max_new_tokens") or NEW, whole(given, "max_length"))


def read(predictor: "Predictor", method: str, item: Any, count: int, settings: Mapping[str, Any]) -> int:
    """Tokens read for a question whose texts have `count`: more than once where the model is asked again and again."""
    count += 2  # [CLS] and [SEP]
    if method == "score" and "lm" not in predictor.heads:
        return count * count
    if method == "fill":
        masks = sum(masks_in(predictor, text) for text in texts_in(item)) * max(
            1, len(settings.get("candidates") or ())
        )
        return count * (1 + masks * max(1, whole(settings, "num_beams")) * max(1, whole(settings, "max_subwords")))
    if method == GENERATE or (method == "predict" and writes(predictor)):
        return (count + new_tokens(predictor, settings)) * max(1, whole(settings, "num_beams"))
    if method == "explain":
        return (count + NEW * ("lm" in predictor.heads)) * 2 * STEPS
    first = next(texts_in(item), "")  # a query is read with each passage, a question with each choice
    several = sum(1 for _ in texts_in(item)) - 2
    return count + max(0, several) * min(count, len(first)) // 4


def whole(settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    return value if isinstance(value, int) else 0
