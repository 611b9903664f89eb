"""GPT-2 (Radford et al. 2019): GPT with pre-norm, a final norm and more positions."""

from typing import TYPE_CHECKING, Any

from unmask.model.families.gpt import CAUSAL_FIELDS, CAUSAL_FIXED, CAUSAL_NAMES, TRANSPOSED_WEIGHTS, size
from unmask.model.family import Family, check_only

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig


def _read(raw: dict[str, Any]) -> dict[str, Any]:
    supported = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
    check_only(raw, "gpt2", **supported)
    return {"intermediate": raw.get("n_inner") or 0}


def _write(config: "ModelConfig") -> dict[str, Any]:
    return {"n_inner": config.intermediate or None, "embd_pdrop": config.dropout}


# The published models share a tokenizer with one special token, which marks the start and the end of a text.
_PUBLISHED = {"vocab_size": 50257, "pad_id": None, "cls_id": 50256, "sep_id": 50256}

FAMILY = Family(
    objective="clm",
    tokenizer={"type": "bpe", "template": "gpt2", "lowercase": False},
    fixed=CAUSAL_FIXED | {"norm": "pre", "init": "scaled"},
    defaults={
        "vocab_size": 8192,
        "intermediate": 0,
        "max_positions": 1024,
        "activation": "gelu_new",
        "norm_eps": 1e-5,
        "pad_id": None,
    },
    architectures={"GPT2LMHeadModel": ("lm",), "GPT2Model": ()},
    presets={
        "gpt2-mini": size(4, 256),
        "gpt2-small": size(6, 384),
        "gpt2": size(12, 768) | _PUBLISHED,
        "gpt2-medium": size(24, 1024) | _PUBLISHED,
    },
    base="gpt2",
    prefix="transformer.",
    fields=CAUSAL_FIELDS | {"activation": "activation_function"},
    read=_read,
    write=_write,
    names=CAUSAL_NAMES
    | {
        "encoder.embeddings.tokens": "transformer.wte",
        "encoder.embeddings.positions": "transformer.wpe",
        "encoder.norm": "transformer.ln_f",
    },
    heads={"lm": {"heads.lm.decoder": "lm_head"}},
    transposed=TRANSPOSED_WEIGHTS,
    ignored=r"(transformer\.)?lm_head\.weight|transformer\.h\.\d+\.attn\.(bias|masked_bias)",
)
