"""T5 (Raffel et al. 1910.10683) and T5 v1.1: encoder and decoder, relative positions, RMS norms, no biases.

v1.0 has a ReLU, and its logits are scaled and share the token embedding. v1.1 has a gated GELU and a separate matrix for
the logits (Shazeer 2002.05202; the T5 repository's notes on v1.1).
"""

from typing import TYPE_CHECKING, Any

from unmask.errors import UserError
from unmask.model.families import bert
from unmask.model.family import Family, Names

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig

_V11 = {"activation": "gelu_new", "gated": True, "tie": False, "scale_logits": False}


def _size(layers: int, hidden: int, heads: int, intermediate: int) -> dict[str, Any]:
    return bert.size(layers, hidden, heads=heads, intermediate=intermediate, decoder_layers=layers)


def _read(raw: dict[str, Any]) -> dict[str, Any]:
    gated, _, name = raw.get("feed_forward_proj", "relu").rpartition("-")
    if gated not in ("", "gated"):
        raise UserError(
            f"feed_forward_proj: {raw['feed_forward_proj']!r} is not supported for t5", expected="relu, gated-gelu"
        )
    start = raw.get("decoder_start_token_id")
    return {
        "activation": "gelu_new" if (gated, name) == ("gated", "gelu") else name,
        "gated": bool(gated),
        "decoder_layers": raw.get("num_decoder_layers") or raw.get("num_layers", 6),
        "attention_dropout": raw.get("attention_dropout_rate", raw.get("dropout_rate", 0.1)),
        "decoder_start_id": None if start == raw.get("pad_token_id", 0) else start,
        # If the key is missing: only v1.0 scales the logits, and only v1.1 does not tie them.
        "scale_logits": raw.get("scale_decoder_outputs", raw.get("tie_word_embeddings") is not False),
    }


def _write(config: "ModelConfig") -> dict[str, Any]:
    name = config.activation
    return {
        "feed_forward_proj": f"gated-{'gelu' if name == 'gelu_new' else name}" if config.gated else name,
        "is_encoder_decoder": True,
        "decoder_start_token_id": config.start_id,
        "scale_decoder_outputs": config.scale_logits,
    }


_MLP = {"encoder": "encoder.block.{i}.layer.1", "decoder": "decoder.block.{i}.layer.2"}


def _gated_names(config: "ModelConfig") -> Names:
    """Return the names of a gated MLP, which has two matrices in transformers."""
    up = {half: tuple(f"{mlp}.DenseReluDense.wi_{n}" for n in (0, 1)) for half, mlp in _MLP.items()}
    return {f"{half}.layers.{{i}}.mlp.up": names for half, names in up.items()} if config.gated else {}


def _stack(half: str) -> Names:
    layer, block, mlp = f"{half}.layers.{{i}}", f"{half}.block.{{i}}.layer.0", _MLP[half]
    return {
        f"{half}.relative.bias": f"{half}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{layer}.attention.qkv": tuple(f"{block}.SelfAttention.{part}" for part in "qkv"),
        f"{layer}.attention.out": f"{block}.SelfAttention.o",
        f"{layer}.attention_norm": f"{block}.layer_norm",
        f"{layer}.mlp.up": f"{mlp}.DenseReluDense.wi",
        f"{layer}.mlp.down": f"{mlp}.DenseReluDense.wo",
        f"{layer}.mlp_norm": f"{mlp}.layer_norm",
        f"{half}.norm": f"{half}.final_layer_norm",
    }


_CROSS = "decoder.block.{i}.layer.1"

FAMILY = Family(
    objective="span",
    tokenizer={"type": "unigram", "template": "t5", "lowercase": False},
    fixed={
        "causal": False,
        "positions": "relative",
        "embedding_norm": False,
        "global_every": 1,
        "segments": 0,
        "norm": "pre",
        "norm_kind": "rms",
        "norm_bias": False,
        "attention_scale": False,
        "attention_bias": False,
        "mlp_bias": False,
        "decoder_bias": False,
        "init": "fan",
        "init_cutoff": 0.0,
    },
    defaults={
        "vocab_size": 8192,
        "head_size": 64,
        "norm_eps": 1e-6,
        "activation": "relu",
        "scale_logits": True,
        "decoder_start_id": None,
        "initializer_range": 1.0,
        "sep_id": 1,
    },
    architectures={"T5ForConditionalGeneration": ("lm",), "T5Model": ()},
    presets={
        "t5-mini": _size(4, 256, 4, 1024),
        "t5-small": _size(6, 512, 8, 2048) | {"vocab_size": 32128},
        "t5-base": _size(12, 768, 12, 3072) | {"vocab_size": 32128},
        "t5-v1.1-mini": _size(4, 256, 4, 512) | _V11,
        "t5-v1.1-small": _size(8, 512, 6, 1024) | _V11 | {"vocab_size": 32128},
        "t5-v1.1-base": _size(12, 768, 12, 2048) | _V11 | {"vocab_size": 32128},
    },
    base="t5-small",
    prefix="",
    fields={
        "vocab_size": "vocab_size",
        "hidden": "d_model",
        "layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "heads": "num_heads",
        "head_size": "d_kv",
        "intermediate": "d_ff",
        "max_positions": "n_positions",
        "buckets": "relative_attention_num_buckets",
        "bucket_reach": "relative_attention_max_distance",
        "dropout": "dropout_rate",
        # transformers does not read this key: it has one dropout rate.
        "attention_dropout": "attention_dropout_rate",
        "norm_eps": "layer_norm_epsilon",
        "initializer_range": "initializer_factor",
        "tie": "tie_word_embeddings",
        "pad_id": "pad_token_id",
        "cls_id": "bos_token_id",
        "sep_id": "eos_token_id",
    },
    read=_read,
    write=_write,
    names=_stack("encoder")
    | _stack("decoder")
    | {
        "encoder.embeddings.tokens": "shared",
        "decoder.layers.{i}.cross.q": f"{_CROSS}.EncDecAttention.q",
        "decoder.layers.{i}.cross.kv": (f"{_CROSS}.EncDecAttention.k", f"{_CROSS}.EncDecAttention.v"),
        "decoder.layers.{i}.cross.out": f"{_CROSS}.EncDecAttention.o",
        "decoder.layers.{i}.cross_norm": f"{_CROSS}.layer_norm",
    },
    conditional_names=_gated_names,
    heads={"lm": {"heads.lm.decoder": "lm_head"}},
    decoder_start="pad",
    # The published v1.0 files have an unused table in the first cross-attention.
    ignored=r"(encoder|decoder)\.embed_tokens\.weight|lm_head\.weight"
    r"|decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
)
