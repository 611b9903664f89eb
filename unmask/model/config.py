"""ModelConfig: the architecture of a model, without torch. A family fixes its variant, a preset its size.

The families (`families/`) differ in the fields that one encoder class reads. A family fixes the fields that its
transformers class cannot express (`norm`, `positions`, …), so that transformers can open every model that is saved.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from unmask.errors import UserError, nearest
from unmask.files import format_value
from unmask.model.families import FAMILIES
from unmask.model.family import BERT_DEFAULTS
from unmask.recipe import Recipe

# Named as in config.json of transformers. gelu_new and gelu_pytorch_tanh are the same tanh approximation.
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
    "embedding", "pretrained_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class ModelConfig:
    """The defaults are BERT-base.

    >>> ModelConfig().hidden, ModelConfig(hidden=128, heads=2).head_dim
    (768, 64)
    """

    family: str = "bert"
    encoder: str = "transformer"  # lstm = a stack per direction (ELMo); bag = one vector per token (word2vec)
    vocab_size: int = 30522
    hidden: int = 768  # D, the width of the hidden states
    embedding: int = 0  # width of the embeddings, projected to hidden; 0 = hidden
    layers: int = 12
    decoder_layers: int = 0  # 0 = no decoder
    heads: int = 12  # attention heads
    head_size: int = 0  # width of a head; 0 = hidden / heads
    intermediate: int = 3072  # width of the MLP (of each half, if gated); 0 = 4 × hidden
    max_positions: int = 512  # maximum sequence length

    characters: bool = False  # lstm: compute token vectors from bytes instead of a lookup
    causal: bool = False  # a token attends only to earlier tokens (GPT)
    positions: str = "learned"  # learned = a vector per position; rope = rotated queries and keys; relative = T5's bias
    # row of the learned table that belongs to the first token; null = pad_id + 1 (RoBERTa)
    position_offset: int | None = 0
    buckets: int = 32  # relative: number of distance buckets
    bucket_reach: int = 128  # relative: all larger distances share the last bucket
    rope_theta: float = 160_000.0  # RoPE base of global layers
    local_rope_theta: float = 10_000.0  # RoPE base of local layers
    local_window: int = 0  # a token of a local layer attends to local_window // 2 tokens on each side
    global_every: int = 1  # layer i is global if i % global_every == 0, else local; 1 = all global
    segments: int = 2  # segment embeddings (sentence A/B); 0 = the encoder ignores segment ids
    embedding_norm: bool = True  # normalize the embeddings; a pre-norm first layer then does not normalize again
    embedding_map: bool = False  # project the embeddings even if they are as wide as hidden (ALBERT)
    embedding_scale: bool = False  # multiply token embeddings by sqrt(hidden)

    shared_layers: bool = False  # one layer, used `layers` times (ALBERT)
    norm: str = "post"  # post = after the residual sum (BERT); pre = before each sub-layer
    norm_kind: str = "layer"  # layer = LayerNorm; rms = RMSNorm
    norm_eps: float = 1e-12
    norm_bias: bool = True
    activation: str = "gelu"
    gated: bool = False  # GeGLU: act(a) · b instead of act(a)
    attention_scale: bool = True  # divide attention scores by sqrt(width of a head)
    attention_bias: bool = True
    mlp_bias: bool = True

    dropout: float = 0.1  # on the embeddings and on the output of each sub-layer
    attention_dropout: float = 0.1  # on the attention weights
    classifier_dropout: float | None = None  # before the classifier; None = dropout

    # tanh, relu, gelu = this activation of dense([CLS]); cls, mean = norm(act(dense([CLS] or the mean))) (ModernBERT)
    pooling: str = "tanh"
    token_dense: bool = False  # norm(act(dense(…))) before the last layer of "tag" and "answer" (ModernBERT)
    head_activation: str = ""  # in the heads; empty = activation
    head_bias: bool = True  # bias of the heads' dense layer
    decoder_bias: bool = True  # a bias per vocabulary entry on the MLM logits
    tie: bool = True  # MLM and LM logits share the token embedding
    scale_logits: bool = False  # divide LM logits by sqrt(hidden)
    logit_position: str = "same"  # logits that predict a token: at its position, or next = one before it (clm, hybrid)
    labels: tuple[str, ...] = ()  # class names of the "classify" and "tag" heads, in order
    problem: str = ""  # `problem_type` of transformers, for a "classify" head; empty = not set
    pretrained_tokens: int = 0  # that `unmask pretrain` trained it on, since random weights; 0 = unknown
    generator: float = 0.25  # size of the "generator" head (ELECTRA) as a fraction of this model

    pad_id: int | None = 0  # its input embedding gets no gradient
    cls_id: int | None = None  # first token of a text; only for config.json, the encoder does not read it
    sep_id: int | None = None  # last token of a text; generation stops here
    decoder_start_id: int | None = None  # the decoder's first token; None = the family's default

    initializer_range: float = 0.02  # standard deviation of the initial weights
    init_cutoff: float = 0.0  # truncate the normal distribution at this many standard deviations; 0 = do not truncate
    # flat = the same for all weights; scaled = output projections / sqrt(2 · layers); fan = 1 / sqrt(inputs) (T5)
    init: str = "flat"

    @property
    def head_dim(self) -> int:
        return self.head_size or self.hidden // self.heads

    @property
    def embedding_size(self) -> int:
        return self.embedding or self.hidden

    @property
    def first_position(self) -> int:
        """Return the row of the position table that belongs to the first token."""
        return (self.pad_id or 0) + 1 if self.position_offset is None else self.position_offset

    @property
    def mlp_width(self) -> int:
        return self.intermediate or 4 * self.hidden

    @property
    def start_id(self) -> int | None:
        """Return the decoder's first token.

        >>> preset("t5-mini").start_id, preset("bart-mini", sep_id=3).start_id
        (0, 3)
        """
        role = FAMILIES[self.family].decoder_start
        return getattr(self, f"{role}_id") if self.decoder_start_id is None else self.decoder_start_id

    def generator_config(self) -> "ModelConfig":
        """Return the config of the "generator" head: narrower, or with fewer layers if `embedding` cannot be set.

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
        """Return the objective of the family's paper.

        >>> preset("bert-tiny").default_objective, preset("modernbert-mini").default_objective
        ('mlm+nsp', 'mlm')
        """
        return FAMILIES[self.family].objective

    def architecture(self, heads: Iterable[str]) -> str:
        """Return the transformers class that opens the saved folder: the first one whose heads are all in `heads`.

        >>> preset("bert-tiny").architecture(["mlm", "nsp", "pooler"])
        'BertForPreTraining'
        """
        available, classes = set(heads), FAMILIES[self.family].architectures
        for name, class_heads in classes.items():
            if set(class_heads) <= available:
                return name
        raise UserError(
            f"transformers has no class for a {self.family} encoder with {sorted(available) or 'no heads'}",
            expected="; ".join(f"{name}: {', '.join(class_heads)}" for name, class_heads in classes.items()),
            hint=f"use the heads of one of these classes, e.g. heads={next(reversed(classes.values()))}",
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(str(label) for label in self.labels))
        if self.embedding == self.hidden:
            object.__setattr__(self, "embedding", 0)  # so that equal configs compare equal
        if self.family not in FAMILIES:
            raise UserError(
                f"unknown family {self.family!r}{nearest(self.family, list(FAMILIES))}", expected=", ".join(FAMILIES)
            )
        for f in fields(self):
            self._check_field(f.name, getattr(self, f.name), f.type)
        if not self.head_size and self.hidden % self.heads:
            raise UserError(
                f"hidden {self.hidden} is not divisible by {self.heads} attention heads",
                expected="hidden = heads × a whole number",
                hint=f"set heads: {self.hidden // 64}"
                if self.hidden % 64 == 0
                else "set hidden to a multiple of heads",
            )
        if self.positions == "rope" and self.head_dim % 2:
            raise UserError(
                f"rope needs an even head size, but hidden / heads is {self.head_dim}", expected="an even number"
            )
        if self.position_offset is None and self.pad_id is None:
            raise UserError(
                "pad_id: null, but positions are counted from it", expected="pad_id: id of the padding token"
            )
        if self.generator > 1:
            raise UserError(
                f"generator: {self.generator} is too large", expected="at most 1: a fraction of the model's size"
            )
        if self.encoder == "lstm" and (self.hidden % 2 or 2 * self.intermediate < self.hidden):
            raise UserError(
                f"hidden {self.hidden} does not match {self.intermediate} LSTM cells (intermediate) per direction",
                expected="an even hidden, at most 2 × intermediate",
            )
        if self.global_every > 1 and self.local_window < 2:
            raise UserError(
                f"local_window {self.local_window} is too small for local layers", expected="2 or more tokens"
            )
        family = FAMILIES[self.family]
        unused = {
            name: value for name, value in BERT_DEFAULTS.items() if name not in {*family.defaults, *family.fields}
        }
        for name, value in (unused | family.fixed).items():
            if getattr(self, name) != value:
                reason = "it has no effect there" if family.unmask_only else "transformers could not open the model"
                raise UserError(
                    f"{name}: {getattr(self, name)!r} is not possible for the family {self.family}: {reason}",
                    expected=f"{name}: {value!r}, or a preset of another family "
                    f"({', '.join(n for n in presets() if n not in family.presets)})",
                )

    def _check_field(self, name: str, value: Any, annotation: Any) -> None:
        """Check the type and the range of a field. Messages start with "name: ", which `read_config` relies on."""
        accepted = get_args(annotation) or (annotation,)
        if name == "labels":
            return
        has_type = isinstance(value, accepted) or (float in accepted and type(value) is int)
        if not has_type or (isinstance(value, bool) and bool not in accepted):
            names = " or ".join("null" if t is type(None) else t.__name__ for t in accepted)
            raise UserError(f"{name}: {format_value(value)} has the wrong type", expected=names)
        if name in CHOICES and value not in CHOICES[name]:
            raise UserError(
                f"{name}: {format_value(value)} is not a valid choice{nearest(value, list(CHOICES[name]))}",
                expected=", ".join(filter(None, CHOICES[name])),
            )
        if value is None or isinstance(value, str | bool):
            return
        expected = None
        if not value < 1e30:  # too large for float32, or NaN
            expected = "below 1e30"
        elif name.endswith("_id"):
            if not 0 <= value < self.vocab_size:
                expected = f"an id below vocab_size {self.vocab_size}, or null"
        elif name.endswith("dropout"):
            if not 0 <= value < 1:
                expected = "0 or more, below 1"
        elif value < 0 or (value == 0 and name not in MAY_BE_ZERO):
            expected = "above 0"
        if expected:
            raise UserError(f"{name}: {format_value(value)} is out of range", expected=expected)


def presets() -> dict[str, dict[str, Any]]:
    """Return, for each preset, the fields that differ from the defaults of ModelConfig."""
    return {
        name: {"family": family_name} | family.fixed | family.defaults | size
        for family_name, family in FAMILIES.working()
        for name, size in family.presets.items()
    }


def describe_presets() -> dict[str, Any]:
    """Return the presets with sizes, tokenizer and objective, and the names of objectives and tasks, without importing torch."""
    from unmask.registry import OBJECTIVES, TASKS

    descriptions = {}
    for name in presets():
        config = preset(name)
        tokenizer = FAMILIES[config.family].tokenizer.get("type", "wordpiece")
        sizes = {key: getattr(config, key) for key in ("family", "layers", "decoder_layers", "hidden", "heads")}
        descriptions[name] = sizes | {"tokenizer": tokenizer, "objective": config.default_objective}
    return {"presets": descriptions, "objectives": OBJECTIVES.names(), "tasks": TASKS.names()}


def preset(name: str, **changes: Any) -> ModelConfig:
    """Return the config of a preset, with changes.

    >>> preset("bert-mini", vocab_size=8192).layers
    4
    """
    available = presets()
    if name not in available:
        similar = nearest(name, list(available))
        raise UserError(
            f"unknown preset {name!r}{similar}", expected=f"one of {len(available)} presets", hint="unmask presets"
        )
    return change(ModelConfig(**available[name]), **changes)


def with_tokenizer(recipe: Recipe) -> Recipe:
    """Replace the `auto` values of a new tokenizer by the defaults of the preset's family.

    >>> with_tokenizer(Recipe(preset="bert-tiny")).tokenizer.type
    'wordpiece'
    """
    if recipe.init_from or recipe.tokenizer.path:  # an existing tokenizer is used unchanged
        return recipe
    if "distill" in recipe.objective.split("+") and recipe.distill.teacher:  # student and teacher share a tokenizer
        tokenizer = recipe.tokenizer.model_copy(update={"path": recipe.distill.teacher})
        return recipe.model_copy(update={"tokenizer": tokenizer})
    defaults = FAMILIES[preset(recipe.preset).family].tokenizer
    return recipe.model_copy(update={"tokenizer": recipe.tokenizer.resolve_auto(defaults)})


def change(config: ModelConfig, **changes: Any) -> ModelConfig:
    """Return a copy of the config with fields changed; raise UserError for an unknown field.

    >>> change(preset("bert-mini"), dropout=0.0).dropout
    0.0
    >>> change(preset("t5-mini"), layers=2).decoder_layers
    2
    """
    valid = [f.name for f in fields(ModelConfig)]
    for key in changes:
        if key not in valid:
            raise UserError(f"unknown model field {key!r}{nearest(key, valid)}", expected=", ".join(valid))
    if "layers" in changes and config.decoder_layers == config.layers:  # encoder and decoder stay equally deep
        changes = {"decoder_layers": changes["layers"], **changes}
    return replace(config, **changes)
