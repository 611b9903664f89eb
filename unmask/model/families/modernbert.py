"""ModernBERT (Warner et al. 2412.13663): pre-norm, rotary positions, GeGLU, alternating local and global attention, no biases."""

from typing import TYPE_CHECKING, Any

from unmask.errors import UserError
from unmask.files import format_value
from unmask.model.families import bert
from unmask.model.family import COMMON_FIELDS, Family, Names

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig


def _read(raw: dict[str, Any]) -> dict[str, Any]:
    rope = raw.get("rope_parameters") or {}
    thetas = []
    # Versions of transformers before 5 wrote global_rope_theta and local_rope_theta instead.
    for kind, old, default in (
        ("full_attention", "global_rope_theta", 160_000.0),
        ("sliding_attention", "local_rope_theta", 10_000.0),
    ):
        values = rope.get(kind) or {}
        if values.get("rope_type", "default") != "default" or raw.get("rope_scaling"):
            raise UserError(
                f"rope_type {values.get('rope_type')!r} is not supported for modernbert", expected="rope_type: default"
            )
        theta = values.get("rope_theta", raw.get(old, default))
        if isinstance(theta, bool) or not isinstance(theta, int | float):
            raise UserError(f"rope_parameters: {kind}.rope_theta is {format_value(theta)}", expected="a number")
        thetas.append(float(theta))
    layers = raw.get("num_hidden_layers", 22)
    every = raw.get("global_attn_every_n_layers", 3)
    if kinds := raw.get("layer_types"):
        intervals = range(1, layers + 1) if len(kinds) == layers else range(0)
        matching = next((n for n in intervals if kinds == _layer_types(layers, n)), None)
        if matching is None:
            raise UserError(
                f"layer_types: {kinds[:4]} … ({len(kinds):,} entries) is not supported",
                expected=f"{layers} entries: full_attention for layer 0 and every n-th layer, else sliding_attention",
            )
        every = matching
    return {"rope_theta": thetas[0], "local_rope_theta": thetas[1], "global_every": every}


def _write(config: "ModelConfig") -> dict[str, Any]:
    return {
        "bos_token_id": config.cls_id,
        "eos_token_id": config.sep_id,
        "embedding_dropout": config.dropout,
        "layer_types": _layer_types(config.layers, config.global_every),
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": config.rope_theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.local_rope_theta},
        },
    }


def _layer_types(layers: int, every: int) -> list[str]:
    return ["sliding_attention" if i % every else "full_attention" for i in range(layers)]


def _token_head_names(head: str) -> Names:
    return {f"heads.{head}.dense": "head.dense", f"heads.{head}.norm": "head.norm", f"heads.{head}.out": "classifier"}


# The published models share a tokenizer with its special tokens at the end of the vocabulary.
_PUBLISHED_IDS = {"vocab_size": 50368, "pad_id": 50283, "cls_id": 50281, "sep_id": 50282}

FAMILY = Family(
    objective="mlm",
    fixed={
        "causal": False,
        "positions": "rope",
        "norm": "pre",
        "gated": True,
        "segments": 0,
        "init": "scaled",
        "token_dense": True,
    },
    defaults={
        "vocab_size": 8192,
        "max_positions": 8192,
        "local_window": 128,
        "global_every": 3,
        "norm_eps": 1e-5,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "classifier_dropout": 0.0,
        "pooling": "cls",
        "head_activation": "gelu",
        "head_bias": False,
        "init_cutoff": 2.0,
    },
    architectures=bert.task_classes("ModernBert") | {"ModernBertForMaskedLM": ("mlm",), "ModernBertModel": ()},
    presets={
        "modernbert-tiny": bert.size(2, 256, intermediate=512) | {"global_every": 2},
        "modernbert-mini": bert.size(4, 256, intermediate=512),
        "modernbert-small": bert.size(6, 384, intermediate=768),
        "modernbert-base": bert.size(22, 768, intermediate=1152) | _PUBLISHED_IDS,
        "modernbert-large": bert.size(28, 1024, intermediate=2624) | _PUBLISHED_IDS,
    },
    base="modernbert-base",
    prefix="model.",
    fields=COMMON_FIELDS
    | {
        "activation": "hidden_activation",
        # Dropout on the embeddings has a separate key in transformers: see _write.
        "dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
        "local_window": "local_attention",
        "norm_eps": "norm_eps",
        "norm_bias": "norm_bias",
        "attention_bias": "attention_bias",
        "mlp_bias": "mlp_bias",
        "pooling": "classifier_pooling",
        "head_activation": "classifier_activation",
        "head_bias": "classifier_bias",
        "decoder_bias": "decoder_bias",
        "init_cutoff": "initializer_cutoff_factor",
    },
    read=_read,
    write=_write,
    names={
        "encoder.embeddings.tokens": "model.embeddings.tok_embeddings",
        "encoder.embeddings.norm": "model.embeddings.norm",
        "encoder.layers.{i}.attention.qkv": "model.layers.{i}.attn.Wqkv",
        "encoder.layers.{i}.attention.out": "model.layers.{i}.attn.Wo",
        "encoder.layers.{i}.attention_norm": "model.layers.{i}.attn_norm",
        "encoder.layers.{i}.mlp.up": "model.layers.{i}.mlp.Wi",
        "encoder.layers.{i}.mlp.down": "model.layers.{i}.mlp.Wo",
        "encoder.layers.{i}.mlp_norm": "model.layers.{i}.mlp_norm",
        "encoder.norm": "model.final_norm",
    },
    heads={
        "mlm": bert.mlm_names("head.dense", "head.norm", "decoder", "decoder"),
        "pooler": {"heads.pooler.dense": "head.dense", "heads.pooler.norm": "head.norm"},
        "classify": {"heads.classify.out": "classifier"},
        "choose": {"heads.choose.out": "classifier"},
        "tag": _token_head_names("tag"),
        "answer": _token_head_names("answer"),
    },
    ignored=r"decoder\.weight",
)
