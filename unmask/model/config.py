"""ModelConfig: the shape of an encoder in plain values, without torch. A family is a set of traits, a preset a size.

The families (`families/`) differ in a few choices that the one encoder reads from here. A family fixes the traits that
its class in transformers cannot express otherwise (`norm`, `positions`, …), so that every ModelConfig there is can be
saved, and opens there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from unmask.errors import UserError, nearest
from unmask.model.families import FAMILIES

# Spelled as in the ecosystem's config.json. gelu_new and gelu_pytorch_tanh are the same tanh approximation.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
CHOICES: dict[str, tuple[str, ...]] = {
    "positions": ("learned", "rope"),
    "norm": ("post", "pre"),
    "pooling": ("tanh", "cls", "mean"),
    "init": ("flat", "scaled"),
    "activation": ACTIVATIONS,
    "head_activation": ("", *ACTIVATIONS),
}


@dataclass(frozen=True)
class ModelConfig:
    """The defaults are BERT-base.

    >>> ModelConfig().hidden, ModelConfig(hidden=128, heads=2).head_dim
    (768, 64)
    """

    family: str = "bert"
    vocab_size: int = 30522
    hidden: int = 768  # D, the width of the stream
    layers: int = 12
    heads: int = 12  # attention heads; hidden is divided among them
    intermediate: int = 3072  # width inside the MLP (of each half, when gated)
    max_positions: int = 512  # longest sequence

    causal: bool = False  # a token sees only what stands before it (GPT)
    positions: str = "learned"  # learned = a vector per position; rope = rotated queries and keys
    rope_theta: float = 160_000.0  # base wavelength, of global layers …
    local_rope_theta: float = 10_000.0  # … and of local ones
    local_window: int = 0  # a local layer's token sees local_window // 2 tokens on each side
    global_every: int = 1  # layer i is global when i % global_every == 0, else local; 1 = all global
    segments: int = 2  # sentence A/B vectors; 0 = none, and the encoder ignores segment ids

    norm: str = "post"  # post = after the residual sum (BERT); pre = on the way into each sub-layer
    norm_eps: float = 1e-12
    norm_bias: bool = True
    activation: str = "gelu"
    gated: bool = False  # GeGLU: act(a) · b instead of act(a)
    attention_bias: bool = True
    mlp_bias: bool = True

    dropout: float = 0.1  # on the embeddings and on what each sub-layer adds to the stream
    attention_dropout: float = 0.1  # on the attention weights
    classifier_dropout: float | None = None  # before the classifier; None = dropout

    pooling: str = "tanh"  # tanh = tanh(dense([CLS])), BERT's; cls, mean = norm(act(dense(…))), ModernBERT's
    head_activation: str = ""  # in the heads; empty = activation
    head_bias: bool = True  # of the heads' dense layer
    decoder_bias: bool = True  # one number per vocabulary entry on the MLM logits
    tie: bool = True  # MLM logits use the token embedding as their matrix
    labels: tuple[str, ...] = ()  # names of the classes of the "classify" head, in order

    pad_id: int | None = 0  # its embedding gets no gradient as an input
    cls_id: int | None = None  # kept for the ecosystem's config.json; the encoder reads neither
    sep_id: int | None = None

    initializer_range: float = 0.02  # standard deviation of the first weights
    init_cutoff: float = 0.0  # normal truncated at so many standard deviations; 0 = not truncated
    init: str = "flat"  # flat = the same everywhere; scaled = projections back into the stream / sqrt(2 · layers)

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def is_local(self, layer: int) -> bool:
        return layer % self.global_every != 0

    @property
    def default_objective(self) -> str:
        """The objective of the family's paper.

        >>> preset("bert-tiny").default_objective, preset("modernbert-mini").default_objective
        ('mlm+nsp', 'mlm')
        """
        return FAMILIES[self.family].objective

    def architecture(self, heads: Iterable[str]) -> str:
        """The transformers class that holds most of these heads; it opens the saved folder.

        >>> preset("bert-tiny").architecture(["mlm", "nsp", "pooler"])
        'BertForPreTraining'
        """
        have, classes = set(heads), FAMILIES[self.family].architectures
        for name, held in classes.items():
            if set(held) <= have:
                return name
        raise UserError(
            f"no class of transformers holds a {self.family} encoder with {sorted(have) or 'no heads'}",
            valid="; ".join(f"{name}: {', '.join(held)}" for name, held in classes.items()),
            fix=f"keep one of these sets, e.g. heads={next(reversed(classes.values()))}",
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(str(label) for label in self.labels))
        if self.family not in FAMILIES:
            raise UserError(
                f"unknown family {self.family!r}{nearest(self.family, list(FAMILIES))}", valid=", ".join(FAMILIES)
            )
        for f in fields(self):
            self._check(f.name, getattr(self, f.name), f.type)
        if self.hidden % self.heads:
            raise UserError(
                f"hidden {self.hidden} cannot be divided among {self.heads} attention heads",
                valid="hidden = heads × a whole number",
                fix=f"heads: {max(1, self.hidden // 64)}" if self.hidden % 64 == 0 else "hidden: a multiple of heads",
            )
        if self.positions == "rope" and self.head_dim % 2:
            raise UserError(f"rope rotates pairs, but hidden / heads is {self.head_dim}", valid="an even number")
        if self.global_every > 1 and self.local_window < 2:
            raise UserError(f"local_window {self.local_window} with local layers", valid="2 or more tokens")
        for name, value in FAMILIES[self.family].fixed.items():
            if getattr(self, name) != value:
                raise UserError(
                    f"{name}: {getattr(self, name)!r} is not {self.family}: transformers could not open it",
                    valid=f"{name}: {value!r}, or a preset of another family ({', '.join(PRESETS)})",
                )

    def _check(self, name: str, value: Any, kind: Any) -> None:
        """One field: its type, and the range that follows from what it is."""
        accepted = get_args(kind) or (kind,)
        if name == "labels":
            return
        good = isinstance(value, accepted) or (float in accepted and type(value) is int)
        if not good or (isinstance(value, bool) and bool not in accepted):
            names = " or ".join("null" if t is type(None) else t.__name__ for t in accepted)
            raise UserError(f"{name}: {value!r}", valid=names)
        if name in CHOICES and value not in CHOICES[name]:
            raise UserError(
                f"{name}: {value!r}{nearest(value, list(CHOICES[name]))}", valid=", ".join(filter(None, CHOICES[name]))
            )
        if value is None or isinstance(value, str | bool):
            return
        if name.endswith("_id"):
            if not 0 <= value < self.vocab_size:
                raise UserError(f"{name}: {value}", valid=f"an id below vocab_size {self.vocab_size}, or null")
        elif name.endswith("dropout"):
            if not 0 <= value < 1:
                raise UserError(f"{name}: {value}", valid="0 or more, below 1")
        elif value < 0 or (value == 0 and name not in ("segments", "local_window", "init_cutoff")):
            raise UserError(f"{name}: {value}", valid="above 0")


# name → every field that differs from ModelConfig's defaults
PRESETS: dict[str, dict[str, Any]] = {
    name: {"family": family} | traits.fixed | traits.defaults | size
    for family, traits in FAMILIES.items()
    for name, size in traits.presets.items()
}


def preset(name: str, **changes: Any) -> ModelConfig:
    """A named shape, with fields changed.

    >>> preset("bert-mini", vocab_size=8192).layers
    4
    """
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}{nearest(name, list(PRESETS))}", valid=", ".join(PRESETS))
    return change(ModelConfig(**PRESETS[name]), **changes)


def change(config: ModelConfig, **changes: Any) -> ModelConfig:
    """The same config with fields changed; a field that does not exist is an error that names the nearest.

    >>> change(preset("bert-mini"), dropout=0.0).dropout
    0.0
    """
    valid = [f.name for f in fields(ModelConfig)]
    for key in changes:
        if key not in valid:
            raise UserError(f"unknown model field {key!r}{nearest(key, valid)}", valid=", ".join(valid))
    return replace(config, **changes)
