"""DistilBERT (Sanh et al. 1910.01108): half of BERT's layers, without segments and pooler."""

from typing import TYPE_CHECKING, Any

from unmask.model.families import bert
from unmask.model.family import COMMON_FIELDS, Family

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig

_LAYER = "distilbert.transformer.layer.{i}."


def _write(config: "ModelConfig") -> dict[str, Any]:
    rate = config.classifier_dropout
    return {"seq_classif_dropout": config.dropout if rate is None else rate}  # transformers rejects null


FAMILY = Family(
    objective="mlm",
    fixed=bert.FIXED | {"segments": 0, "norm_eps": 1e-12, "pooling": "relu"},
    defaults={"classifier_dropout": 0.2},
    architectures=bert.task_classes("DistilBert") | {"DistilBertForMaskedLM": ("mlm",), "DistilBertModel": ()},
    presets={
        "distilbert-mini": bert.size(2, 256),
        "distilbert-small": bert.size(2, 512),
        "distilbert-base": bert.size(6, 768),
    },
    base="distilbert-base",
    prefix="distilbert.",
    fields=COMMON_FIELDS
    | {
        "hidden": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "intermediate": "hidden_dim",
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
    },
    write=_write,
    names={
        "encoder.embeddings.tokens": "distilbert.embeddings.word_embeddings",
        "encoder.embeddings.positions": "distilbert.embeddings.position_embeddings",
        "encoder.embeddings.norm": "distilbert.embeddings.LayerNorm",
        "encoder.layers.{i}.attention.qkv": tuple(f"{_LAYER}attention.{x}_lin" for x in "qkv"),
        "encoder.layers.{i}.attention.out": _LAYER + "attention.out_lin",
        "encoder.layers.{i}.attention_norm": _LAYER + "sa_layer_norm",
        "encoder.layers.{i}.mlp.up": _LAYER + "ffn.lin1",
        "encoder.layers.{i}.mlp.down": _LAYER + "ffn.lin2",
        "encoder.layers.{i}.mlp_norm": _LAYER + "output_layer_norm",
    },
    heads=bert.TASKS
    | {
        "mlm": bert.mlm_names("vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector"),
        "pooler": {"heads.pooler.dense": "pre_classifier"},
    },
    ignored=r"distilbert\.embeddings\.position_ids|vocab_projector\.weight",
)
