"""Family: what makes a BERT a BERT, in one value without torch: its traits, its sizes, and its names in transformers.

A family is one file in `families/`. One table of names serves both directions, reading a folder and writing it. Nothing
outside a family's file asks for a family by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unmask.errors import UserError

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig

# Names without .weight and .bias. A tuple: the parameter here is those tensors, one below the other.
Names = dict[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Family:
    objective: str  # of its paper
    fixed: dict[str, Any]  # traits that make it this family: its class in transformers cannot express others
    defaults: dict[str, Any]  # traits that a recipe may change
    architectures: dict[str, tuple[str, ...]]  # class in transformers → heads it holds; the first that fits is taken
    presets: dict[str, dict[str, Any]]

    base: str  # the preset that gives the values a config.json leaves out
    prefix: str  # before the encoder's names in every class but the bare model
    fields: dict[str, str]  # ModelConfig field → config.json key
    names: Names  # of every parameter that is not in a head
    heads: dict[str, Names]
    unmask_only: bool = False  # transformers has no class for it: the folder opens here alone, with the names used here
    read: Callable[[dict[str, Any]], dict[str, Any]] = lambda raw: {}  # fields that need more than another name …
    write: Callable[["ModelConfig"], dict[str, Any]] = lambda config: {}  # … and back
    copies: dict[str, str] = field(default_factory=dict)  # parameter → a second tensor, when embeddings are not tied
    architecture_names: dict[str, Names] = field(
        default_factory=dict
    )  # class → names that it has elsewhere than `heads` says
    ignored: str = r"(?!)"  # tensors that carry nothing: buffers, and what tying repeats
    transposed: tuple[str, ...] = ()  # ends of the names here whose matrices lie on their side there
    conditional_names: Callable[["ModelConfig"], Names] = lambda config: {}  # names that depend on the traits
    decoder_start: str = "sep"  # what a decoder is given first: pad, cls or sep
    tokenizer: dict[str, Any] = field(default_factory=dict)  # of a new one: fields of TokenizerRecipe; empty = BERT's
    generation: Callable[["ModelConfig"], dict[str, Any]] = lambda config: {}  # generation_config.json beside the ids


# What only some families have. The others keep these values, as their classes in transformers have no place for more.
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


def check_only(raw: dict[str, Any], what: str, **allowed: Any) -> None:
    """Refuses a config.json with another value of a key than the one that the family here has."""
    for key, only in allowed.items():
        if raw.get(key, only) != only:
            raise UserError(f"{what} folder with {key}: {raw[key]!r}", expected=f"{key}: {only!r}")
