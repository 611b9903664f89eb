"""Family: what makes a BERT a BERT, in one value without torch: its traits, its sizes, and its names in transformers.

A family is one file in `families/`. One table of names serves both directions, reading a folder and writing it. Nothing
outside a family's file asks for a family by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
    read: Callable[[dict[str, Any]], dict[str, Any]] = lambda raw: {}  # fields that need more than another name …
    write: Callable[["ModelConfig"], dict[str, Any]] = lambda config: {}  # … and back
    copies: dict[str, str] = field(default_factory=dict)  # parameter → a second tensor, when embeddings are not tied
    ignored: str = r"(?!)"  # tensors that carry nothing: buffers, and what tying repeats


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
