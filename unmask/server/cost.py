"""Tokens that a model reads for an input: the unit in which batches and limits are measured."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unmask.inference.filling import MASKS
from unmask.inference.inputs import texts_in
from unmask.inference.introspection import STEPS
from unmask.inference.methods import EMBED, GENERATE
from unmask.model.generation import DEFAULT_MAX_NEW_TOKENS
from unmask.server.errors import RequestError

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

# Text has about five characters per token, but whitespace or a word that becomes [UNK] may have any number.
MAX_CHARS_PER_TOKEN = 64


def check_characters(predictor: "Predictor", method: str, items: Sequence[Any]) -> None:
    """Reject, before tokens are counted, a text that is far too long for a model that reads it as one sequence."""
    if reads_long_texts(predictor, method):
        return
    positions = predictor.config.max_positions
    limit = positions * MAX_CHARS_PER_TOKEN
    max_chars = max((len(text) for item in items for text in texts_in(item)), default=0)
    if max_chars > limit:
        raise RequestError(
            413,
            "too_long",
            f"a text has {max_chars:,} characters; the model reads {positions:,} tokens",
            expected=f"at most {limit:,} characters: {MAX_CHARS_PER_TOKEN} per token",
            hint="split the text",
        )


def reads_long_texts(predictor: "Predictor", method: str) -> bool:
    """Return whether a text may be longer than the model's maximum: tasks read it in windows or truncate it."""
    if method in (EMBED, "similarity"):
        return predictor.task is not None and predictor.task.spec.output == "vector"
    return predictor.task is not None and method not in ("fill", "score", "next_sentence", "attention", "word_vectors")


def charged_tokens(tokens: int, item: Any) -> int:
    """Return the tokens that count toward the limits: a word of a megabyte may be one [UNK], but is not cheap."""
    return max(tokens, sum(len(text) for text in texts_in(item)) // MAX_CHARS_PER_TOKEN)


def count_masks(predictor: "Predictor", text: str) -> int:
    tokenizer = predictor.tokenizer
    mask = "" if tokenizer.mask is None else tokenizer.mask_token
    return len(MASKS.findall(text)) + (text.count(mask) if mask and not MASKS.fullmatch(mask) else 0)


def max_new_tokens(predictor: "Predictor", settings: Mapping[str, Any]) -> int:
    """Return the largest number of tokens that are generated for a prompt."""
    merged = {**predictor.engine.generation, **settings}
    return max(int_setting(merged, "max_new_tokens") or DEFAULT_MAX_NEW_TOKENS, int_setting(merged, "max_length"))


def tokens_read(predictor: "Predictor", method: str, item: Any, count: int, settings: Mapping[str, Any]) -> int:
    """Return the tokens that are read for an input whose texts have `count` tokens, summed over all forward passes."""
    count += 2  # [CLS] and [SEP]
    if method == "score" and "lm" not in predictor.heads:
        return count * count
    if method == "fill":
        masks = sum(count_masks(predictor, text) for text in texts_in(item))
        masks *= max(1, len(settings.get("candidates") or ()))
        beams, subwords = int_setting(settings, "num_beams"), int_setting(settings, "max_subwords")
        return count * (1 + masks * max(1, beams) * max(1, subwords))
    generates = predictor.task is not None and predictor.task.spec.output == "text"
    if method == GENERATE or (method == "predict" and generates):
        return (count + max_new_tokens(predictor, settings)) * max(1, int_setting(settings, "num_beams"))
    if method == "explain":
        return (count + DEFAULT_MAX_NEW_TOKENS * ("lm" in predictor.heads)) * 2 * STEPS
    texts = list(texts_in(item))  # the first (a query, a question) is read with each of the others (passages, choices)
    return count + max(0, len(texts) - 2) * min(count, len(texts[0]) if texts else 0) // 4


def int_setting(settings: Mapping[str, Any], name: str) -> int:
    """Return an integer setting, or 0."""
    value = settings.get(name)
    return value if isinstance(value, int) else 0
