"""BART (Lewis et al. 1910.13461): encoder and decoder with BERT's post-norm layers; positions start at row 2 of their table."""

from typing import TYPE_CHECKING, Any

from unmask.errors import UserError
from unmask.model.families import bert
from unmask.model.family import Family, Names, check_only

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig


def _size(layers: int, hidden: int) -> dict[str, Any]:
    return bert.size(layers, hidden, decoder_layers=layers)


def _read(raw: dict[str, Any]) -> dict[str, Any]:
    for key, default in (("attention_heads", 16), ("ffn_dim", 4096)):
        encoder, decoder = (raw.get(f"{half}_{key}", default) for half in ("encoder", "decoder"))
        if encoder != decoder:
            raise UserError(
                f"encoder_{key} is {encoder!r}, but decoder_{key} is {decoder!r}", expected="the same value for both"
            )
    # In 2020, this model_type was also used for models with norms in other places.
    check_only(raw, "bart", normalize_before=False, add_final_layer_norm=False, normalize_embedding=True)
    start = raw.get("decoder_start_token_id", 2)
    return {"decoder_start_id": None if start == raw.get("eos_token_id", 2) else start}


def _write(config: "ModelConfig") -> dict[str, Any]:
    return {
        "is_encoder_decoder": True,
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.mlp_width,
        "decoder_start_token_id": config.start_id,
        "forced_eos_token_id": config.sep_id,
    }


def _stack(name: str) -> Names:
    layer = f"model.{name}.layers.{{i}}"
    return {
        f"{name}.embeddings.positions": f"model.{name}.embed_positions",
        f"{name}.embeddings.norm": f"model.{name}.layernorm_embedding",
        f"{name}.layers.{{i}}.attention.qkv": tuple(f"{layer}.self_attn.{part}_proj" for part in "qkv"),
        f"{name}.layers.{{i}}.attention.out": f"{layer}.self_attn.out_proj",
        f"{name}.layers.{{i}}.attention_norm": f"{layer}.self_attn_layer_norm",
        f"{name}.layers.{{i}}.mlp.up": f"{layer}.fc1",
        f"{name}.layers.{{i}}.mlp.down": f"{layer}.fc2",
        f"{name}.layers.{{i}}.mlp_norm": f"{layer}.final_layer_norm",
    }


_CROSS = "model.decoder.layers.{i}.encoder_attn"
_PUBLISHED = {"vocab_size": 50265, "pad_id": 1, "cls_id": 0, "sep_id": 2}

FAMILY = Family(
    objective="denoise",
    tokenizer={"type": "bpe", "template": "roberta", "lowercase": False},
    fixed={
        "causal": False,
        "positions": "learned",
        "position_offset": 2,
        "gated": False,
        "global_every": 1,
        "segments": 0,
        "norm": "post",
        "norm_eps": 1e-5,
        "norm_bias": True,
        "attention_bias": True,
        "mlp_bias": True,
        "decoder_bias": True,
        "tie": True,  # untied, the encoder and the decoder of transformers would also have separate embeddings
        "init": "flat",
        "init_cutoff": 0.0,
    },
    defaults={"vocab_size": 8192, "max_positions": 1024, "attention_dropout": 0.0, "decoder_start_id": None},
    architectures={"BartForConditionalGeneration": ("lm",), "BartModel": ()},
    presets={
        "bart-mini": _size(4, 256),
        "bart-small": _size(6, 384),
        "bart-base": _size(6, 768) | _PUBLISHED,
        "bart-large": _size(12, 1024) | _PUBLISHED,
    },
    base="bart-large",
    prefix="model.",
    fields={
        "vocab_size": "vocab_size",
        "hidden": "d_model",
        "layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "heads": "encoder_attention_heads",
        "intermediate": "encoder_ffn_dim",
        "max_positions": "max_position_embeddings",
        "activation": "activation_function",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "embedding_scale": "scale_embedding",
        "initializer_range": "init_std",
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
        "encoder.embeddings.tokens": "model.shared",
        "decoder.layers.{i}.cross.q": f"{_CROSS}.q_proj",
        "decoder.layers.{i}.cross.kv": (f"{_CROSS}.k_proj", f"{_CROSS}.v_proj"),
        "decoder.layers.{i}.cross.out": f"{_CROSS}.out_proj",
        "decoder.layers.{i}.cross_norm": f"{_CROSS}_layer_norm",
    },
    heads={"lm": {"heads.lm": "", "heads.lm.decoder": "lm_head"}},
    decoder_start="sep",
    generation=lambda config: {} if config.sep_id is None else {"forced_eos_token_id": config.sep_id},
    ignored=r"model\.(encoder|decoder)\.embed_tokens\.weight|lm_head\.weight|final_logits_bias",
)
