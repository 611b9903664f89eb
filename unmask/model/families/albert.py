"""ALBERT (Lan et al. 1909.11942): one layer used many times, narrow embeddings, sentence-order prediction. The sizes are those of version 2."""

from typing import TYPE_CHECKING, Any

from unmask.model.families import bert
from unmask.model.family import Family, check_only

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig

_LAYER = "albert.encoder.albert_layer_groups.{i}.albert_layers.0."


def _read(raw: dict[str, Any]) -> dict[str, Any]:
    check_only(raw, "albert", num_hidden_groups=1, inner_group_num=1)
    return bert.read(raw)


def _write(config: "ModelConfig") -> dict[str, Any]:
    rate = config.classifier_dropout
    return {
        "embedding_size": config.embedding_size,
        "classifier_dropout_prob": config.dropout if rate is None else rate,  # transformers rejects null
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    }


FAMILY = Family(
    objective="mlm+sop",
    tokenizer={"type": "unigram", "template": "albert", "lowercase": True},
    fixed=bert.FIXED | {"shared_layers": True, "embedding_map": True},
    defaults={
        "vocab_size": 30000,
        "embedding": 128,
        "activation": "gelu_new",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "classifier_dropout": 0.1,
        "cls_id": 2,
        "sep_id": 3,
    },
    architectures=bert.task_classes("Albert")
    | {
        "AlbertForPreTraining": ("mlm", "pooler", "sop"),
        "AlbertForMaskedLM": ("mlm",),
        "AlbertModel": ("pooler",),
    },
    presets={
        "albert-mini": bert.size(4, 256),
        "albert-small": bert.size(6, 512),
        "albert-base-v2": bert.size(12, 768),
        "albert-large-v2": bert.size(24, 1024),
        "albert-xlarge-v2": bert.size(24, 2048, heads=16),
        "albert-xxlarge-v2": bert.size(12, 4096),
    },
    base="albert-xxlarge-v2",
    prefix="albert.",
    fields=bert.FIELDS
    | {
        "embedding": "embedding_size",
        "classifier_dropout": "classifier_dropout_prob",
        "cls_id": "bos_token_id",
        "sep_id": "eos_token_id",
    },
    read=_read,
    write=_write,
    names=bert.embedding_names("albert.")
    | {
        "encoder.embeddings.project": "albert.encoder.embedding_hidden_mapping_in",
        "encoder.layers.{i}.attention.qkv": tuple(f"{_LAYER}attention.{x}" for x in ("query", "key", "value")),
        "encoder.layers.{i}.attention.out": _LAYER + "attention.dense",
        "encoder.layers.{i}.attention_norm": _LAYER + "attention.LayerNorm",
        "encoder.layers.{i}.mlp.up": _LAYER + "ffn",
        "encoder.layers.{i}.mlp.down": _LAYER + "ffn_output",
        "encoder.layers.{i}.mlp_norm": _LAYER + "full_layer_layer_norm",
    },
    heads=bert.TASKS
    | {
        "mlm": bert.mlm_names("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions"),
        "pooler": {"heads.pooler.dense": "albert.pooler"},
        "sop": {"heads.sop.out": "sop_classifier.classifier"},
    },
    copies={"heads.mlm.bias": "predictions.decoder.bias"},
    ignored=r"albert\.embeddings\.(position|token_type)_ids|predictions\.decoder\.(weight|bias)",
)
