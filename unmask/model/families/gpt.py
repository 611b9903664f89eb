"""GPT (Radford et al. 2018): a causal Transformer with post-norm layers like BERT."""

from typing import TYPE_CHECKING, Any

from unmask.errors import UserError
from unmask.model.family import Family, Names

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig

# Names in config.json, where "gelu" is the tanh approximation.
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}


def size(layers: int, hidden: int) -> dict[str, Any]:
    return {"layers": layers, "hidden": hidden, "heads": hidden // 64}


def _read(raw: dict[str, Any]) -> dict[str, Any]:
    name = raw.get("afn", "gelu")
    if name not in _ACTIVATIONS:
        raise UserError(f"afn: {name!r} is not supported for openai-gpt", expected=", ".join(_ACTIVATIONS))
    return {"activation": _ACTIVATIONS[name]}


def _write(config: "ModelConfig") -> dict[str, Any]:
    return {"afn": {"gelu_new": "gelu"}.get(config.activation, config.activation), "embd_pdrop": config.dropout}


CAUSAL_FIXED = {
    "causal": True,
    "positions": "learned",
    "embedding_norm": False,
    "gated": False,
    "global_every": 1,
    "segments": 0,
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "decoder_bias": False,
    "init_cutoff": 0.0,
}
CAUSAL_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden": "n_embd",
    "layers": "n_layer",
    "heads": "n_head",
    "max_positions": "n_positions",
    # Dropout on the embeddings has a separate key in transformers: see _write.
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "norm_eps": "layer_norm_epsilon",
    "initializer_range": "initializer_range",
    "tie": "tie_word_embeddings",
    "pad_id": "pad_token_id",
    "cls_id": "bos_token_id",
    "sep_id": "eos_token_id",
}
CAUSAL_NAMES: Names = {
    "encoder.layers.{i}.attention.qkv": "transformer.h.{i}.attn.c_attn",
    "encoder.layers.{i}.attention.out": "transformer.h.{i}.attn.c_proj",
    "encoder.layers.{i}.attention_norm": "transformer.h.{i}.ln_1",
    "encoder.layers.{i}.mlp.up": "transformer.h.{i}.mlp.c_fc",
    "encoder.layers.{i}.mlp.down": "transformer.h.{i}.mlp.c_proj",
    "encoder.layers.{i}.mlp_norm": "transformer.h.{i}.ln_2",
}
TRANSPOSED_WEIGHTS = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")  # (inputs, outputs) in transformers

FAMILY = Family(
    objective="clm",
    tokenizer={"type": "bpe", "template": "gpt2", "lowercase": True},
    # The MLP is always 4 × hidden: config.json has no key for its width.
    fixed=CAUSAL_FIXED | {"norm": "post", "intermediate": 0, "init": "flat"},
    defaults={"activation": "gelu_new", "norm_eps": 1e-5, "pad_id": None},
    architectures={"OpenAIGPTLMHeadModel": ("lm",), "OpenAIGPTModel": ()},
    presets={
        "gpt-mini": size(4, 256) | {"vocab_size": 8192},
        "gpt-small": size(6, 384) | {"vocab_size": 8192},
        "openai-gpt": size(12, 768) | {"vocab_size": 40478},
    },
    base="openai-gpt",
    prefix="transformer.",
    fields=CAUSAL_FIELDS,
    read=_read,
    write=_write,
    names=CAUSAL_NAMES
    | {
        "encoder.embeddings.tokens": "transformer.tokens_embed",
        "encoder.embeddings.positions": "transformer.positions_embed",
    },
    heads={"lm": {"heads.lm.decoder": "lm_head"}},
    transposed=TRANSPOSED_WEIGHTS,
    ignored=r"(transformer\.)?lm_head\.weight|transformer\.(position_ids|h\.\d+\.attn\.bias)",
)
