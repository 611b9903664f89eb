"""RoBERTa (Liu et al. 1907.11692): BERT without sentence pairs, trained longer, on bytes.

Its positions are counted from the padding's id: the table's first rows, as many as that id and one more, belong to no
token. `max_positions` here is how many tokens a row can have; config.json counts the table's rows.
"""

from typing import TYPE_CHECKING, Any

from unmask.model.families import bert
from unmask.model.family import Family

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig


def read(raw: dict[str, Any]) -> dict[str, Any]:
    bert.read(raw)
    return {
        "max_positions": raw.get("max_position_embeddings", 512) - (raw.get("pad_token_id", 1) or 0) - 1,
        # What transformers takes where the file says nothing is not what the published models have.
        "segments": raw.get("type_vocab_size", 2),
        "norm_eps": raw.get("layer_norm_eps", 1e-12),
    }


def write(config: "ModelConfig") -> dict[str, Any]:
    return {"max_position_embeddings": config.first_position + config.max_positions}


def classes(name: str) -> dict[str, tuple[str, ...]]:
    return bert.task_classes(name) | {f"{name}ForMaskedLM": ("mlm",), f"{name}Model": ("pooler",)}


FAMILY = Family(
    objective="mlm",
    tokenizer={"type": "bpe", "template": "roberta", "lowercase": False},
    fixed=bert.FIXED | {"head_activation": "gelu", "position_offset": None},
    defaults={"vocab_size": 50265, "segments": 1, "norm_eps": 1e-5, "pad_id": 1, "cls_id": 0, "sep_id": 2},
    architectures=classes("Roberta"),
    presets={
        "roberta-mini": bert.size(4, 256),
        "roberta-small": bert.size(4, 512),
        "roberta-base": bert.size(12, 768),
        "roberta-large": bert.size(24, 1024),
    },
    base="roberta-base",
    prefix="roberta.",
    fields=bert.FIELDS | {"cls_id": "bos_token_id", "sep_id": "eos_token_id"},
    read=read,
    write=write,
    names=bert.names("roberta."),
    heads=bert.TASKS
    | {
        "mlm": bert.mlm_names("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head"),
        "pooler": {"heads.pooler.dense": "roberta.pooler.dense"},
        "classify": {"heads.classify.out": "classifier.out_proj"},
    },
    # The classifier brings a pooler of its own.
    architecture_names={"RobertaForSequenceClassification": {"heads.pooler.dense": "classifier.dense"}},
    copies={"heads.mlm.bias": "lm_head.decoder.bias"},
    # The pooler of a masked LM's folder was never trained.
    ignored=r"roberta\.embeddings\.(position|token_type)_ids|lm_head\.decoder\.(weight|bias)|roberta\.pooler\..*",
)
