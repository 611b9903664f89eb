"""GenerationConfig: the options of text generation, without torch, with the names of generation_config.json.

| setting | meaning |
|---|---|
| max_new_tokens | maximum number of new tokens; takes precedence over max_length, which includes the prompt |
| min_new_tokens, min_length | minimum length before an end token is allowed |
| num_beams | 1 = greedy search; more = beam search |
| length_penalty, early_stopping | beam search: scores / length ** penalty; true = stop after num_beams finished texts |
| do_sample, temperature, top_k, top_p, seed | sampling; the same seed gives the same text |
| repetition_penalty, no_repeat_ngram_size | prevent repetition |
| forced_bos_token_id, forced_eos_token_id | the first token, and the last token if the text reaches its maximum length |
"""

import math
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, get_args

from unmask.errors import UserError, nearest

MAX_BEAMS = 1000  # each beam is a row of the batch
DEFAULT_MAX_NEW_TOKENS = 64


@dataclass(frozen=True)
class GenerationConfig:
    """
    >>> GenerationConfig.from_settings({"num_beams": 4, "eos_token_id": 2}, max_new_tokens=9).eos_token_ids
    (2,)
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int = 0
    min_length: int = 0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0  # 0 = all
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    decoder_start_token_id: int | None = None
    seed: int = 0

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Return the ids that end a text."""
        ids = self.eos_token_id
        return () if ids is None else tuple(ids) if isinstance(ids, list) else (ids,)

    def max_row_length(self, prompt_length: int) -> int:
        """Return the maximum length of prompt and new tokens together."""
        if self.max_new_tokens is None and self.max_length is not None:
            return max(self.max_length, prompt_length + 1)
        return prompt_length + (self.max_new_tokens or DEFAULT_MAX_NEW_TOKENS)

    @classmethod
    def from_settings(cls, defaults: dict[str, Any], **settings: Any) -> "GenerationConfig":
        """Build the config from the model folder's values and the caller's settings, which win unless they are None."""
        valid = [f.name for f in fields(cls)]
        for key in settings:
            if key not in valid:
                raise UserError(f"unknown generation setting {key!r}{nearest(key, valid)}", expected=", ".join(valid))
        stored = {key: value for key, value in defaults.items() if value is not None}
        for key, value in stored.items():
            if key in UNSUPPORTED and value not in (0, 1, [], {}):  # includes False and 1.0: switched off
                raise UserError(
                    f"generation_config.json sets {key}: {value!r}, which is not supported",
                    expected=f"only these keys: {', '.join(valid)}",
                    hint=f"remove {key} from generation_config.json",
                )
        changes = {key: value for key, value in settings.items() if value is not None}
        if "max_length" in changes and "max_new_tokens" not in changes:
            stored.pop("max_new_tokens", None)
        try:
            config = replace(cls(), **({key: value for key, value in stored.items() if key in valid} | changes))
        except UserError as error:  # its message starts with the name of the setting
            if error.message.split()[0] in stored.keys() - changes.keys():
                raise UserError(f"generation_config.json: {error.message[:200]}", expected=error.expected) from None
            raise
        unused = [key for key in SAMPLING_KEYS if key in changes and changes[key] != getattr(cls, key)]
        if unused and not config.do_sample:
            raise UserError(
                f"{unused[0]}={changes[unused[0]]!r} has no effect without do_sample",
                hint="do_sample=True (--do-sample)",
            )
        return config

    def check_ids(self, vocab_size: int) -> None:
        """Raise UserError if a token that would be put into a row is not in the vocabulary.

        An end token outside the vocabulary is allowed: it is never generated.
        """
        for name in ("forced_bos_token_id", "forced_eos_token_id", "decoder_start_token_id"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < vocab_size:
                raise UserError(
                    f"{name} {token} (set by the caller or in generation_config.json) is not a token of the model",
                    expected=f"0 to {vocab_size - 1:,}, the model's vocabulary",
                )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not _has_type(value, field.type):
                raise UserError(f"{field.name} {value!r} has the wrong type", expected=_type_names(field.type))
        for name, good, expected in (
            ("max_new_tokens", self.max_new_tokens is None or self.max_new_tokens > 0, "1 or more tokens"),
            ("num_beams", 0 < self.num_beams <= MAX_BEAMS, f"1 to {MAX_BEAMS:,}"),
            ("temperature", self.temperature > 0, "above 0 (remove do_sample to always use the most likely token)"),
            ("top_k", self.top_k >= 0, "0 (all tokens) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100, "0.01 to 100 (1 = no penalty)"),
            ("length_penalty", -10 <= self.length_penalty <= 10, "-10 to 10 (0 = no penalty)"),
            ("no_repeat_ngram_size", self.no_repeat_ngram_size >= 0, "0 (off) or more"),
            ("early_stopping", self.early_stopping in (True, False, "never"), "true, false or never"),
        ):
            if not good:
                raise UserError(f"{name} {getattr(self, name)!r} is out of range", expected=expected)
        if self.do_sample and self.num_beams > 1:
            raise UserError(
                f"do_sample with {self.num_beams} beams is not supported",
                expected="sampling or beam search, not both",
                hint="num_beams=1, or do_sample=False",
            )


def _has_type(value: Any, annotation: Any) -> bool:
    """
    >>> _has_type(3, float), _has_type(True, int), _has_type([1, 2], int | list[int] | None)
    (True, False, True)
    """
    types = get_args(annotation) or (annotation,)
    if value is None or isinstance(value, bool | str):
        return type(value) in types
    if isinstance(value, list):
        return list[int] in types and all(_has_type(item, int) for item in value)
    if float in types:
        return isinstance(value, Real) and math.isfinite(value)
    return int in types and isinstance(value, Integral)


def _type_names(annotation: Any) -> str:
    """
    >>> _type_names(int | None), _type_names(bool | str)
    ('a whole number', 'true or false or a string')
    """
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a string",
        list[int]: "a list of whole numbers",
    }
    return " or ".join(names[t] for t in get_args(annotation) or (annotation,) if t in names)


SAMPLING_KEYS = ("temperature", "top_k", "top_p")  # they have no effect without do_sample

# Model folders older than generation_config.json have these keys in config.json.
GENERATION_KEYS = frozenset(f.name for f in fields(GenerationConfig)) - {"seed"}

# Keys that change the output of transformers and are not supported here. They raise an error instead of being ignored.
UNSUPPORTED = frozenset({
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty", "exponential_decay_length_penalty", "guidance_scale", "num_beam_groups",
    "diversity_penalty", "penalty_alpha", "epsilon_cutoff", "eta_cutoff", "min_p", "typical_p", "top_h",
    "watermarking_config", "num_return_sequences", "force_words_ids",
})  # fmt: skip
