"""Family: the definition of a model family (BERT, GPT-2, …) without torch: its traits, presets and names in transformers.

Each family is one file in `families/`. The same table of names is used for loading and saving. Code outside this file
never tests for a family by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unmask.errors import UserError

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig

# Parameter name → tensor name in transformers, without .weight and .bias. A tuple: the parameter is their concatenation.
Names = dict[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Family:
    objective: str  # of its paper
    fixed: dict[str, Any]  # ModelConfig fields that its transformers class cannot change
    defaults: dict[str, Any]  # ModelConfig fields that a recipe may change
    architectures: dict[str, tuple[str, ...]]  # transformers class → its heads; the first class that fits is used
    presets: dict[str, dict[str, Any]]

    base: str  # the preset with the values of keys that are missing in config.json
    prefix: str  # prefix of the encoder's tensors in every class except the bare model
    fields: dict[str, str]  # ModelConfig field → config.json key
    names: Names  # names of all parameters outside of heads
    heads: dict[str, Names]
    unmask_only: bool = False  # transformers has no class for it; tensors keep the names of this package
    read: Callable[[dict[str, Any]], dict[str, Any]] = lambda raw: {}  # config.json → fields that need a conversion
    write: Callable[["ModelConfig"], dict[str, Any]] = lambda config: {}  # the inverse of `read`
    copies: dict[str, str] = field(default_factory=dict)  # parameter → name of a second copy if embeddings are not tied
    architecture_names: dict[str, Names] = field(default_factory=dict)  # class → names that differ from `heads`
    ignored: str = r"(?!)"  # regular expression of tensors without information: buffers and copies of tied weights
    transposed: tuple[str, ...] = ()  # suffixes of parameters whose matrices are transposed in transformers
    conditional_names: Callable[["ModelConfig"], Names] = lambda config: {}  # names that depend on the config
    decoder_start: str = "sep"  # the decoder's first token: pad, cls or sep
    tokenizer: dict[str, Any] = field(default_factory=dict)  # TokenizerRecipe fields of a new tokenizer; empty = BERT's
    generation: Callable[["ModelConfig"], dict[str, Any]] = lambda config: {}  # more keys of generation_config.json


# Fields that only some families can change. Other families keep these values.
BERT_DEFAULTS: dict[str, Any] = {
    "encoder": "transformer",
    "characters": False,
    "head_size": 0,
    "decoder_layers": 0,
    "position_offset": 0,
    "embedding": 0,
    "embedding_map": False,
    "shared_layers": False,
    "token_dense": False,
    "buckets": 32,
    "bucket_reach": 128,
    "embedding_norm": True,
    "embedding_scale": False,
    "norm_kind": "layer",
    "attention_scale": True,
    "scale_logits": False,
    "decoder_start_id": None,
}


COMMON_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "initializer_range": "initializer_range",
    "classifier_dropout": "classifier_dropout",
    "tie": "tie_word_embeddings",
    "pad_id": "pad_token_id",
    "cls_id": "cls_token_id",
    "sep_id": "sep_token_id",
}


def check_only(raw: dict[str, Any], family: str, **supported: Any) -> None:
    """Raise UserError if config.json has a different value for one of these keys."""
    for key, value in supported.items():
        if raw.get(key, value) != value:
            raise UserError(f"{key}: {raw[key]!r} is not supported for {family}", expected=f"{key}: {value!r}")
