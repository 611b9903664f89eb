"""word2vec's CBOW (Mikolov et al. 1301.3781): one vector per token, independent of its context. transformers has no such class."""

from typing import Any

from unmask.model.family import COMMON_FIELDS, Family


def _size(hidden: int) -> dict[str, Any]:
    return {"hidden": hidden, "intermediate": hidden}


FAMILY = Family(
    objective="cbow",
    unmask_only=True,
    fixed={
        "encoder": "bag",
        "causal": False,
        "positions": "none",
        "segments": 0,
        "layers": 1,
        "heads": 1,
        "pooling": "mean",  # the vector of [CLS] is the same in every row
        "init": "flat",
    },
    defaults={
        "vocab_size": 8192,
        "max_positions": 8192,
        "norm_eps": 1e-5,
        "head_activation": "gelu",
        "decoder_bias": True,  # unlike word2vec: the bias models the word frequency, so that the vectors need not
        "tie": False,  # a word rarely occurs in its own context, so words and contexts need two matrices
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "classifier_dropout": 0.0,
        "initializer_range": 0.1,
    },
    architectures={
        "CbowForSequenceClassification": ("pooler", "classify"),
        "CbowForTokenClassification": ("tag",),
        "CbowForWordPrediction": ("cbow",),
        "CbowModel": (),
    },
    presets={"cbow-mini": _size(128), "cbow-small": _size(300)},
    base="cbow-small",
    prefix="encoder.",
    names={},
    heads={head: {} for head in ("cbow", "pooler", "classify", "tag")},
    fields={name: key for name, key in COMMON_FIELDS.items() if name not in ("heads", "layers")}
    | {
        "norm_eps": "layer_norm_eps",
        "norm_bias": "norm_bias",
        "dropout": "dropout",
        "head_activation": "classifier_activation",
        "head_bias": "classifier_bias",
        "decoder_bias": "decoder_bias",
        "init_cutoff": "initializer_cutoff_factor",
    },
)
