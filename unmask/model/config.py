"""ModelConfig: the shape of an encoder in plain values, without torch. A family is a set of traits, a preset a size.

The families (`families/`) differ in a few choices that the one encoder reads from here. A family fixes the traits that
its class in transformers cannot express otherwise (`norm`, `positions`, …), so that every ModelConfig there is can be
saved, and opens there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from unmask.errors import UserError, nearest
from unmask.files import shown
from unmask.model.families import FAMILIES
from unmask.model.family import BERT_DEFAULTS
from unmask.recipe import Recipe

# Spelled as in the ecosystem's config.json. gelu_new and gelu_pytorch_tanh are the same tanh approximation.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
CHOICES: dict[str, tuple[str, ...]] = {
    "encoder": ("transformer", "lstm", "bag"),
    "positions": ("learned", "rope", "relative", "none"),
    "norm": ("post", "pre"),
    "norm_kind": ("layer", "rms"),
    "pooling": ("tanh", "relu", "gelu", "cls", "mean"),
    "logit_position": ("same", "next"),
    "init": ("flat", "scaled", "fan"),
    "activation": ACTIVATIONS,
    "head_activation": ("", *ACTIVATIONS),
}
MAY_BE_ZERO = (
    "segments", "local_window", "init_cutoff", "head_size", "intermediate", "decoder_layers", "position_offset",
    "embedding",
)  # fmt: skip


@dataclass(frozen=True)
class ModelConfig:
    """The defaults are BERT-base.

    >>> ModelConfig().hidden, ModelConfig(hidden=128, heads=2).head_dim
    (768, 64)
    """

    family: str = "bert"
    encoder: str = "transformer"  # lstm = two stacks, one per direction (ELMo); bag = a vector per token (word2vec)
    vocab_size: int = 30522
    hidden: int = 768  # D, the width of the stream
    embedding: int = 0  # width of the embeddings, projected to hidden; 0 = hidden
    layers: int = 12
    decoder_layers: int = 0  # of a decoder that reads what the encoder made; 0 = no decoder
    heads: int = 12  # attention heads; hidden is divided among them
    head_size: int = 0  # width of a head; 0 = hidden / heads
    intermediate: int = 3072  # width inside the MLP (of each half, when gated); 0 = 4 × hidden
    max_positions: int = 512  # longest sequence

    characters: bool = False  # lstm: a token's vector is made from its bytes; else looked up
    causal: bool = False  # a token sees only what stands before it (GPT)
    positions: str = "learned"  # learned = a vector per position; rope = rotated queries and keys; relative = T5's bias
    # rows of the learned table before the one of the first token; null = those up to the pad id and its own (RoBERTa)
    position_offset: int | None = 0
    buckets: int = 32  # relative: how many distances have a bias of their own …
    bucket_reach: int = 128  # … and from which on all share one
    rope_theta: float = 160_000.0  # base wavelength, of global layers …
    local_rope_theta: float = 10_000.0  # … and of local ones
    local_window: int = 0  # a local layer's token sees local_window // 2 tokens on each side
    global_every: int = 1  # layer i is global when i % global_every == 0, else local; 1 = all global
    segments: int = 2  # sentence A/B vectors; 0 = none, and the encoder ignores segment ids
    embedding_norm: bool = True  # the embeddings are normalised (pre-norm: then the first layer does not do it again)
    embedding_map: bool = False  # the embeddings are projected even where they are as wide as hidden (ALBERT)
    embedding_scale: bool = False  # token vectors are multiplied by sqrt(hidden)

    shared_layers: bool = False  # one layer, used `layers` times (ALBERT)
    norm: str = "post"  # post = after the residual sum (BERT); pre = on the way into each sub-layer
    norm_kind: str = "layer"  # layer; rms = divided by the root mean square only
    norm_eps: float = 1e-12
    norm_bias: bool = True
    activation: str = "gelu"
    gated: bool = False  # GeGLU: act(a) · b instead of act(a)
    attention_scale: bool = True  # attention scores are divided by sqrt(width of a head)
    attention_bias: bool = True
    mlp_bias: bool = True

    dropout: float = 0.1  # on the embeddings and on what each sub-layer adds to the stream
    attention_dropout: float = 0.1  # on the attention weights
    classifier_dropout: float | None = None  # before the classifier; None = dropout

    # tanh, relu, gelu = that function of dense([CLS]); cls, mean = norm(act(dense([CLS] or the mean))), ModernBERT's
    pooling: str = "tanh"
    token_dense: bool = False  # "tag" and "answer" have norm(act(dense(…))) before their last layer (ModernBERT)
    head_activation: str = ""  # in the heads; empty = activation
    head_bias: bool = True  # of the heads' dense layer
    decoder_bias: bool = True  # one number per vocabulary entry on the MLM logits
    tie: bool = True  # MLM and LM logits use the token embedding as their matrix
    scale_logits: bool = False  # LM logits are divided by sqrt(hidden)
    logit_position: str = "same"  # position of a token's vocabulary logits: its own, or next = one before (clm, hybrid)
    labels: tuple[str, ...] = ()  # names of the classes of the "classify" and "tag" heads, in order
    problem: str = ""  # of a "classify" head, as transformers' `problem_type`; empty = not said
    generator: float = 0.25  # size of the "generator" head (ELECTRA) as a share of this model

    pad_id: int | None = 0  # its embedding gets no gradient as an input
    cls_id: int | None = None  # begins a text; kept for the ecosystem's config.json, the encoder reads neither
    sep_id: int | None = None  # ends it; generation stops here
    decoder_start_id: int | None = None  # the decoder's first token; None = the one that the family has for it

    initializer_range: float = 0.02  # standard deviation of the first weights
    init_cutoff: float = 0.0  # normal truncated at so many standard deviations; 0 = not truncated
    # flat = the same everywhere; scaled = projections back into the stream / sqrt(2 · layers); fan = T5's, 1 / sqrt(inputs)
    init: str = "flat"

    @property
    def head_dim(self) -> int:
        return self.head_size or self.hidden // self.heads

    @property
    def embedding_size(self) -> int:
        return self.embedding or self.hidden

    @property
    def first_position(self) -> int:
        """The row of the positions table that belongs to the first token."""
        return (self.pad_id or 0) + 1 if self.position_offset is None else self.position_offset

    @property
    def mlp_width(self) -> int:
        return self.intermediate or 4 * self.hidden

    @property
    def start_id(self) -> int | None:
        """What the decoder is given first.

        >>> preset("t5-mini").start_id, preset("bart-mini", sep_id=3).start_id
        (0, 3)
        """
        role = FAMILIES[self.family].decoder_start
        return getattr(self, f"{role}_id") if self.decoder_start_id is None else self.decoder_start_id

    def generator_config(self) -> "ModelConfig":
        """The shape of the "generator" head: narrower, or where embeddings have no width of their own, of fewer layers.

        >>> preset("electra-base").generator_config().hidden, preset("modernbert-mini").generator_config().layers
        (256, 1)
        """
        if "embedding" not in FAMILIES[self.family].fields:
            return replace(self, layers=max(1, round(self.layers * self.generator)), labels=())
        heads = max(1, round(self.heads * self.generator))
        return replace(
            self,
            hidden=heads * self.head_dim,
            heads=heads,
            intermediate=self.intermediate * heads // self.heads,
            embedding=self.embedding_size,
            labels=(),
        )

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
            expected="; ".join(f"{name}: {', '.join(held)}" for name, held in classes.items()),
            hint=f"keep one of these sets, e.g. heads={next(reversed(classes.values()))}",
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(str(label) for label in self.labels))
        if self.embedding == self.hidden:
            object.__setattr__(self, "embedding", 0)  # one spelling
        if self.family not in FAMILIES:
            raise UserError(
                f"unknown family {self.family!r}{nearest(self.family, list(FAMILIES))}", expected=", ".join(FAMILIES)
            )
        for f in fields(self):
            self._check(f.name, getattr(self, f.name), f.type)
        if not self.head_size and self.hidden % self.heads:
            raise UserError(
                f"hidden {self.hidden} cannot be divided among {self.heads} attention heads",
                expected="hidden = heads × a whole number",
                hint=f"heads: {max(1, self.hidden // 64)}" if self.hidden % 64 == 0 else "hidden: a multiple of heads",
            )
        if self.positions == "rope" and self.head_dim % 2:
            raise UserError(f"rope rotates pairs, but hidden / heads is {self.head_dim}", expected="an even number")
        if self.position_offset is None and self.pad_id is None:
            raise UserError("pad_id: null, but positions are counted from it", expected="pad_id: the padding's id")
        if self.generator > 1:
            raise UserError(f"generator: {self.generator}", expected="above 0, at most 1: a share of the model's size")
        if self.encoder == "lstm" and (self.hidden % 2 or 2 * self.intermediate < self.hidden):
            raise UserError(
                f"hidden {self.hidden} with {self.intermediate} cells (intermediate) in each direction",
                expected="an even hidden, half of which is at most intermediate",
            )
        if self.global_every > 1 and self.local_window < 2:
            raise UserError(f"local_window {self.local_window} with local layers", expected="2 or more tokens")
        family = FAMILIES[self.family]
        plain = {name: value for name, value in BERT_DEFAULTS.items() if name not in {*family.defaults, *family.fields}}
        for name, value in (plain | family.fixed).items():
            if getattr(self, name) != value:
                why = "such a model has no use for it" if family.unmask_only else "transformers could not open it"
                raise UserError(
                    f"{name}: {getattr(self, name)!r} is not {self.family}: {why}",
                    expected=f"{name}: {value!r}, or a preset of another family "
                    f"({', '.join(n for n in presets() if n not in family.presets)})",
                )

    def _check(self, name: str, value: Any, kind: Any) -> None:
        """One field: its type, and the range that follows from what it is."""
        accepted = get_args(kind) or (kind,)
        if name == "labels":
            return
        good = isinstance(value, accepted) or (float in accepted and type(value) is int)
        if not good or (isinstance(value, bool) and bool not in accepted):
            names = " or ".join("null" if t is type(None) else t.__name__ for t in accepted)
            raise UserError(f"{name}: {shown(value)}", expected=names)
        if name in CHOICES and value not in CHOICES[name]:
            raise UserError(
                f"{name}: {shown(value)}{nearest(value, list(CHOICES[name]))}",
                expected=", ".join(filter(None, CHOICES[name])),
            )
        if value is None or isinstance(value, str | bool):
            return
        if not value < 1e30:  # nor NaN: nothing that is computed in float32 holds it
            raise UserError(f"{name}: {shown(value)}", expected="below 1e30")
        if name.endswith("_id"):
            if not 0 <= value < self.vocab_size:
                raise UserError(f"{name}: {value}", expected=f"an id below vocab_size {self.vocab_size}, or null")
        elif name.endswith("dropout"):
            if not 0 <= value < 1:
                raise UserError(f"{name}: {value}", expected="0 or more, below 1")
        elif value < 0 or (value == 0 and name not in MAY_BE_ZERO):
            raise UserError(f"{name}: {value}", expected="above 0")


def presets() -> dict[str, dict[str, Any]]:
    """Name → every field that differs from ModelConfig's defaults."""
    return {
        name: {"family": family} | traits.fixed | traits.defaults | size
        for family, traits in FAMILIES.working()
        for name, size in traits.presets.items()
    }


def describe_presets() -> dict[str, Any]:
    """Presets with their sizes, tokenizer and objective; names of objectives and tasks. Imports no torch."""
    from unmask.registry import OBJECTIVES, TASKS

    found = {}
    for name in presets():
        config = preset(name)
        tokenizer = FAMILIES[config.family].tokenizer.get("type", "wordpiece")
        sizes = {key: getattr(config, key) for key in ("family", "layers", "decoder_layers", "hidden", "heads")}
        found[name] = sizes | {"tokenizer": tokenizer, "objective": config.default_objective}
    return {"presets": found, "objectives": OBJECTIVES.names(), "tasks": TASKS.names()}


def preset(name: str, **changes: Any) -> ModelConfig:
    """A named shape, with fields changed.

    >>> preset("bert-mini", vocab_size=8192).layers
    4
    """
    known = presets()
    if name not in known:
        raise UserError(f"unknown preset {name!r}{nearest(name, list(known))}", expected=", ".join(known))
    return change(ModelConfig(**known[name]), **changes)


def with_tokenizer(recipe: Recipe) -> Recipe:
    """What is `auto` about a new tokenizer replaced by what the preset's family has.

    >>> with_tokenizer(Recipe(preset="bert-tiny")).tokenizer.type
    'wordpiece'
    """
    if recipe.init_from or recipe.tokenizer.path:  # it is taken over as it is
        return recipe
    if "distill" in recipe.objective.split("+") and recipe.distill.teacher:  # a student reads what its teacher reads
        taken = recipe.tokenizer.model_copy(update={"path": recipe.distill.teacher})
        return recipe.model_copy(update={"tokenizer": taken})
    own = FAMILIES[preset(recipe.preset).family].tokenizer
    return recipe.model_copy(update={"tokenizer": recipe.tokenizer.resolve_auto(own)})


def change(config: ModelConfig, **changes: Any) -> ModelConfig:
    """The same config with fields changed; a field that does not exist is an error that names the nearest.

    >>> change(preset("bert-mini"), dropout=0.0).dropout
    0.0
    >>> change(preset("t5-mini"), layers=2).decoder_layers
    2
    """
    valid = [f.name for f in fields(ModelConfig)]
    for key in changes:
        if key not in valid:
            raise UserError(f"unknown model field {key!r}{nearest(key, valid)}", expected=", ".join(valid))
    if "layers" in changes and config.decoder_layers == config.layers:  # both halves are as deep, unless told otherwise
        changes = {"decoder_layers": changes["layers"], **changes}
    return replace(config, **changes)
