"""ELMo (Peters et al. 1802.05365): LSTMs in both directions, a learned mix of layers. transformers has no such class."""

from typing import Any

from unmask.model.family import COMMON_FIELDS, Family


def _size(layers: int, hidden: int, cells: int) -> dict[str, Any]:
    return {"layers": layers, "hidden": hidden, "intermediate": cells}


FAMILY = Family(
    objective="bilm",
    unmask_only=True,
    fixed={"encoder": "lstm", "causal": False, "positions": "none", "segments": 0, "heads": 1, "init": "flat"},
    defaults={
        "vocab_size": 8192,
        "characters": False,
        "norm_eps": 1e-5,
        "pooling": "mean",
        "head_activation": "gelu",
        "attention_dropout": 0.0,
        "initializer_range": 0.1,
    },
    architectures={
        "ElmoForSequenceClassification": ("pooler", "classify"),
        "ElmoForTokenClassification": ("tag",),
        "ElmoForLanguageModeling": ("bilm",),
        "ElmoModel": (),
    },
    presets={
        "elmo-mini": _size(2, 256, 256),
        "elmo-small": _size(2, 512, 1024),
        # The published model: 93.6 million parameters without the softmax.
        "elmo-original": _size(2, 1024, 4096) | {"characters": True, "tie": False},
    },
    base="elmo-original",
    prefix="encoder.",
    names={},
    heads={head: {} for head in ("bilm", "pooler", "classify", "tag")},
    fields={name: key for name, key in COMMON_FIELDS.items() if name != "heads"}
    | {
        "characters": "characters",
        "dropout": "dropout",
        "norm_eps": "layer_norm_eps",
        "norm_bias": "norm_bias",
        "pooling": "classifier_pooling",
        "head_activation": "classifier_activation",
        "head_bias": "classifier_bias",
        "decoder_bias": "decoder_bias",
        "init_cutoff": "initializer_cutoff_factor",
    },
)
