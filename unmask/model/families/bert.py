"""BERT (Devlin et al. 1810.04805) and Google's small ones (Turc et al. 1908.08962)."""

from typing import Any

from unmask.errors import UserError
from unmask.model.family import COMMON_FIELDS, Family


def _size(layers: int, hidden: int) -> dict[str, Any]:
    return {"layers": layers, "hidden": hidden, "heads": hidden // 64, "intermediate": 4 * hidden}


def _read(raw: dict[str, Any]) -> dict[str, Any]:
    for key, only in (("is_decoder", False), ("position_embedding_type", "absolute")):
        if raw.get(key, only) != only:
            raise UserError(f"a bert folder with {key}: {raw[key]!r}", valid=f"{key}: {only!r}")
    return {}


FAMILY = Family(
    objective="mlm+nsp",
    fixed={
        "causal": False,
        "positions": "learned",
        "norm": "post",
        "gated": False,
        "global_every": 1,
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "head_bias": True,
        "decoder_bias": True,
        "head_activation": "",
        "pooling": "tanh",
        "init_cutoff": 0.0,
        "init": "flat",
    },
    defaults={},
    architectures={
        "BertForSequenceClassification": ("pooler", "classify"),
        "BertForPreTraining": ("mlm", "pooler", "nsp"),
        "BertForMaskedLM": ("mlm",),
        "BertForNextSentencePrediction": ("pooler", "nsp"),
        "BertModel": ("pooler",),
    },
    presets={
        "bert-tiny": _size(2, 128),
        "bert-mini": _size(4, 256),
        "bert-small": _size(4, 512),
        "bert-medium": _size(8, 512),
        "bert-base": _size(12, 768),
        "bert-large": _size(24, 1024),
    },
    base="bert-base",
    prefix="bert.",
    fields=COMMON_FIELDS
    | {
        "segments": "type_vocab_size",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "norm_eps": "layer_norm_eps",
    },
    read=_read,
    names={
        "encoder.embeddings.tokens": "bert.embeddings.word_embeddings",
        "encoder.embeddings.positions": "bert.embeddings.position_embeddings",
        "encoder.embeddings.segments": "bert.embeddings.token_type_embeddings",
        "encoder.embeddings.norm": "bert.embeddings.LayerNorm",
        "encoder.layers.{i}.attention.qkv": (
            "bert.encoder.layer.{i}.attention.self.query",
            "bert.encoder.layer.{i}.attention.self.key",
            "bert.encoder.layer.{i}.attention.self.value",
        ),
        "encoder.layers.{i}.attention.out": "bert.encoder.layer.{i}.attention.output.dense",
        "encoder.layers.{i}.attention_norm": "bert.encoder.layer.{i}.attention.output.LayerNorm",
        "encoder.layers.{i}.mlp.up": "bert.encoder.layer.{i}.intermediate.dense",
        "encoder.layers.{i}.mlp.down": "bert.encoder.layer.{i}.output.dense",
        "encoder.layers.{i}.mlp_norm": "bert.encoder.layer.{i}.output.LayerNorm",
    },
    heads={
        "mlm": {
            "heads.mlm.dense": "cls.predictions.transform.dense",
            "heads.mlm.norm": "cls.predictions.transform.LayerNorm",
            "heads.mlm.decoder": "cls.predictions.decoder",
            "heads.mlm": "cls.predictions",
        },
        "pooler": {"heads.pooler.dense": "bert.pooler.dense"},
        "nsp": {"heads.nsp.out": "cls.seq_relationship"},
        "classify": {"heads.classify.out": "classifier"},
    },
    # Untied, transformers computes with the decoder's bias and leaves cls.predictions.bias beside it, unread.
    copies={"heads.mlm.bias": "cls.predictions.decoder.bias"},
    ignored=r"bert\.embeddings\.(position|token_type)_ids|cls\.predictions\.decoder\.(weight|bias)",
)
