"""BERT (Devlin et al. 1810.04805) and its smaller versions (Turc et al. 1908.08962)."""

from typing import Any

from unmask.model.family import COMMON_FIELDS, Family, Names, check_only

# Shared by all families with BERT's layers.
FIXED: dict[str, Any] = {
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
}
FIELDS = COMMON_FIELDS | {
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
}
TASKS: dict[str, Names] = {
    "classify": {"heads.classify.out": "classifier"},
    "tag": {"heads.tag.out": "classifier"},
    "answer": {"heads.answer.out": "qa_outputs"},
    "choose": {"heads.choose.out": "classifier"},
}


def size(layers: int, hidden: int, **more: Any) -> dict[str, Any]:
    return {"layers": layers, "hidden": hidden, "heads": hidden // 64, "intermediate": 4 * hidden} | more


def read(raw: dict[str, Any]) -> dict[str, Any]:
    check_only(raw, raw["model_type"], is_decoder=False, position_embedding_type="absolute")
    return {}


def task_classes(name: str) -> dict[str, tuple[str, ...]]:
    """Return the transformers classes of the task heads."""
    return {
        f"{name}ForSequenceClassification": ("pooler", "classify"),
        f"{name}ForTokenClassification": ("tag",),
        f"{name}ForQuestionAnswering": ("answer",),
        f"{name}ForMultipleChoice": ("pooler", "choose"),
    }


def mlm_names(dense: str, norm: str, decoder: str, owner: str) -> Names:
    """Return the names of the MLM head; its bias is a parameter of `owner`."""
    return {"heads.mlm.dense": dense, "heads.mlm.norm": norm, "heads.mlm.decoder": decoder, "heads.mlm": owner}


def embedding_names(prefix: str) -> Names:
    return {
        "encoder.embeddings.tokens": prefix + "embeddings.word_embeddings",
        "encoder.embeddings.positions": prefix + "embeddings.position_embeddings",
        "encoder.embeddings.segments": prefix + "embeddings.token_type_embeddings",
        "encoder.embeddings.norm": prefix + "embeddings.LayerNorm",
    }


def names(prefix: str) -> Names:
    """Return the names of the encoder's parameters."""
    layer = prefix + "encoder.layer.{i}."
    return embedding_names(prefix) | {
        "encoder.layers.{i}.attention.qkv": tuple(f"{layer}attention.self.{x}" for x in ("query", "key", "value")),
        "encoder.layers.{i}.attention.out": layer + "attention.output.dense",
        "encoder.layers.{i}.attention_norm": layer + "attention.output.LayerNorm",
        "encoder.layers.{i}.mlp.up": layer + "intermediate.dense",
        "encoder.layers.{i}.mlp.down": layer + "output.dense",
        "encoder.layers.{i}.mlp_norm": layer + "output.LayerNorm",
    }


_MLM = "cls.predictions"
FAMILY = Family(
    objective="mlm+nsp",
    fixed=FIXED,
    defaults={},
    architectures=task_classes("Bert")
    | {
        "BertForPreTraining": ("mlm", "pooler", "nsp"),
        "BertForMaskedLM": ("mlm",),
        "BertForNextSentencePrediction": ("pooler", "nsp"),
        "BertModel": ("pooler",),
    },
    presets={
        "bert-tiny": size(2, 128),
        "bert-mini": size(4, 256),
        "bert-small": size(4, 512),
        "bert-medium": size(8, 512),
        "bert-base": size(12, 768),
        "bert-large": size(24, 1024),
    },
    base="bert-base",
    prefix="bert.",
    fields=FIELDS,
    read=read,
    names=names("bert."),
    heads=TASKS
    | {
        "mlm": mlm_names(f"{_MLM}.transform.dense", f"{_MLM}.transform.LayerNorm", f"{_MLM}.decoder", _MLM),
        "pooler": {"heads.pooler.dense": "bert.pooler.dense"},
        "nsp": {"heads.nsp.out": "cls.seq_relationship"},
    },
    # If untied, transformers uses the decoder's bias and does not read cls.predictions.bias.
    copies={"heads.mlm.bias": "cls.predictions.decoder.bias"},
    ignored=r"bert\.embeddings\.(position|token_type)_ids|cls\.predictions\.decoder\.(weight|bias)",
)
