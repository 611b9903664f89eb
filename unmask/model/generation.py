"""Generation: how text is continued, in plain values without torch, under the names of generation_config.json.

| setting | meaning |
|---|---|
| max_new_tokens | tokens to add at most; wins over max_length, which counts the prompt too |
| min_new_tokens, min_length | the end may not come earlier |
| num_beams | 1 = the likeliest token each time; more = beam search |
| length_penalty, early_stopping | of beam search: scores / length ** penalty; true = stop when there are num_beams texts |
| do_sample, temperature, top_k, top_p, seed | draw tokens; the same seed gives the same text |
| repetition_penalty, no_repeat_ngram_size | against loops |
| forced_bos_token_id, forced_eos_token_id | the first token, and the last where the length ends the text |
"""

import math
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, get_args

from unmask.errors import UserError, nearest

MAX_BEAMS = 1000  # each is a row of the batch
DEFAULT_MAX_NEW_TOKENS = 64  # tokens that are written unless more or fewer are asked for


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
        """Ids that end a text."""
        given = self.eos_token_id
        return () if given is None else tuple(given) if isinstance(given, list) else (given,)

    def max_row_length(self, prompt: int) -> int:
        """The longest row, after a prompt of so many tokens."""
        if self.max_new_tokens is not None:
            return prompt + self.max_new_tokens
        return max(self.max_length, prompt + 1) if self.max_length is not None else prompt + DEFAULT_MAX_NEW_TOKENS

    @classmethod
    def from_settings(cls, folder: dict[str, Any], **given: Any) -> "GenerationConfig":
        """What the folder's file says, changed by what the caller gives (None = not given)."""
        valid = [f.name for f in fields(cls)]
        for key in given:
            if key not in valid:
                raise UserError(f"unknown setting {key!r}{nearest(key, valid)}", expected=", ".join(valid))
        stated = {key: value for key, value in folder.items() if value is not None}
        for key, value in stated.items():
            if key in UNSUPPORTED and value not in (0, 1, [], {}):  # False and 1.0 too: switched off
                raise UserError(f"generation_config.json asks for {key}: {value!r}", expected=", ".join(valid))
        changes = {key: value for key, value in given.items() if value is not None}
        if "max_length" in changes and "max_new_tokens" not in changes:
            stated.pop("max_new_tokens", None)
        try:
            made = replace(cls(), **({key: value for key, value in stated.items() if key in valid} | changes))
        except UserError as error:
            if error.message.split()[0] in stated.keys() - changes.keys():
                raise UserError(f"generation_config.json: {error.message[:200]}", expected=error.expected) from None
            raise
        idle = [key for key in SAMPLING_KEYS if key in changes and changes[key] != getattr(cls, key)]
        if idle and not made.do_sample:
            what = f"{idle[0]} {changes[idle[0]]!r} without do_sample: the likeliest tokens are taken, nothing is drawn"
            raise UserError(what, hint="do_sample=True (--do-sample)")
        return made

    def check_ids(self, size: int) -> None:
        """Tokens that are put into a row have to be among the model's. An end that is not only never comes."""
        for name in ("forced_bos_token_id", "forced_eos_token_id", "decoder_start_token_id"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < size:
                raise UserError(
                    f"{name} {token}, from generation_config.json or given",
                    expected=f"0 to {size - 1:,}, the model's vocabulary",
                )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not _is_a(value, field.type):
                raise UserError(f"{field.name} {value!r}", expected=_named(field.type))
        for name, good, valid in (
            ("max_new_tokens", self.max_new_tokens is None or self.max_new_tokens > 0, "1 or more tokens"),
            ("num_beams", 0 < self.num_beams <= MAX_BEAMS, f"1 to {MAX_BEAMS:,}"),
            ("temperature", self.temperature > 0, "above 0; for no chance at all leave do_sample out"),
            ("top_k", self.top_k >= 0, "0 = all, or 1 and more"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100, "0.01 to 100; 1 = none"),
            ("length_penalty", -10 <= self.length_penalty <= 10, "-10 to 10; 0 = none"),
            ("no_repeat_ngram_size", self.no_repeat_ngram_size >= 0, "0 = none, or 1 and more"),
            ("early_stopping", self.early_stopping in (True, False, "never"), "true, false or never"),
        ):
            if not good:
                raise UserError(f"{name} {getattr(self, name)!r}", expected=valid)
        if self.do_sample and self.num_beams > 1:
            raise UserError(
                f"do_sample with {self.num_beams} beams", expected="one of them", hint="num_beams=1, or do_sample=False"
            )


def _is_a(value: Any, kind: Any) -> bool:
    """
    >>> _is_a(3, float), _is_a(True, int), _is_a([1, 2], int | list[int] | None)
    (True, False, True)
    """
    kinds = get_args(kind) or (kind,)
    if value is None or isinstance(value, bool | str):
        return type(value) in kinds
    if isinstance(value, list):
        return list[int] in kinds and all(_is_a(item, int) for item in value)
    if float in kinds:
        return isinstance(value, Real) and math.isfinite(value)
    return int in kinds and isinstance(value, Integral)


def _named(kind: Any) -> str:
    """
    >>> _named(int | None), _named(bool | str)
    ('a whole number', 'true or false or a word')
    """
    words = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a word",
        list[int]: "a list of them",
    }
    return " or ".join(words[k] for k in get_args(kind) or (kind,) if k in words)


SAMPLING_KEYS = ("temperature", "top_k", "top_p")  # without do_sample they mean nothing

# Folders older than generation_config.json have its keys in config.json.
GENERATION_KEYS = frozenset(f.name for f in fields(GenerationConfig)) - {"seed"}

# Keys that change what transformers writes and that have no counterpart here: refused, not passed over.
UNSUPPORTED = frozenset(
    {
        "bad_words_ids",
        "suppress_tokens",
        "begin_suppress_tokens",
        "sequence_bias",
        "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty",
        "exponential_decay_length_penalty",
        "guidance_scale",
        "num_beam_groups",
        "diversity_penalty",
        "penalty_alpha",
        "epsilon_cutoff",
        "eta_cutoff",
        "min_p",
        "typical_p",
        "top_h",
        "watermarking_config",
        "num_return_sequences",
        "force_words_ids",
    }
)
