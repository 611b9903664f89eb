"""RoBERTa (Liu et al. 1907.11692): BERT without next-sentence prediction, trained longer, with a byte-level vocabulary.

Its positions start at pad_id + 1; the earlier rows of the position table are unused. `max_positions` is the maximum number
of tokens; max_position_embeddings in config.json is the number of rows of the table.
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
        # The defaults of transformers, which differ from the published models.
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
    # The classifier has its own pooler.
    architecture_names={"RobertaForSequenceClassification": {"heads.pooler.dense": "classifier.dense"}},
    copies={"heads.mlm.bias": "lm_head.decoder.bias"},
    # The pooler in folders of masked language models was never trained.
    ignored=r"roberta\.embeddings\.(position|token_type)_ids|lm_head\.decoder\.(weight|bias)|roberta\.pooler\..*",
)
