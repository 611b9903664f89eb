"""ELECTRA (Clark et al. 2003.10555): a discriminator that detects the tokens that a small generator replaced.

The model is the discriminator. Its head "generator" is saved as a model folder inside the model folder.
"""

from typing import TYPE_CHECKING, Any

from unmask.model.families import bert
from unmask.model.family import Family, check_only

if TYPE_CHECKING:
    from unmask.model.config import ModelConfig


def _read(raw: dict[str, Any]) -> dict[str, Any]:
    if raw.get("architectures") == ["ElectraForMultipleChoice"]:
        check_only(raw, "electra", summary_type="first", summary_use_proj=True, summary_activation="gelu")
    return bert.read(raw)


def _write(config: "ModelConfig") -> dict[str, Any]:
    return {"embedding_size": config.embedding_size}


_MLM = "generator_predictions"
FAMILY = Family(
    objective="rtd",
    fixed=bert.FIXED | {"head_activation": "gelu", "pooling": "gelu"},
    defaults={"embedding": 128},
    architectures=bert.task_classes("Electra")
    | {"ElectraForPreTraining": ("rtd",), "ElectraForMaskedLM": ("mlm",), "ElectraModel": ()},
    presets={
        "electra-mini": bert.size(4, 256),
        "electra-small": bert.size(12, 256),
        "electra-base": bert.size(12, 768, embedding=768, generator=1 / 3),
        "electra-large": bert.size(24, 1024, embedding=1024),
    },
    base="electra-small",
    prefix="electra.",
    fields=bert.FIELDS | {"embedding": "embedding_size", "generator": "generator_size"},
    read=_read,
    write=_write,
    names=bert.names("electra.") | {"encoder.embeddings.project": "electra.embeddings_project"},
    heads=bert.TASKS
    | {
        "mlm": bert.mlm_names(f"{_MLM}.dense", f"{_MLM}.LayerNorm", "generator_lm_head", "generator_lm_head"),
        "rtd": {
            "heads.rtd.dense": "discriminator_predictions.dense",
            "heads.rtd.out": "discriminator_predictions.dense_prediction",
        },
        "pooler": {"heads.pooler.dense": "sequence_summary.summary"},
        "classify": {"heads.classify.out": "classifier.out_proj"},
    },
    architecture_names={"ElectraForSequenceClassification": {"heads.pooler.dense": "classifier.dense"}},
    ignored=r"electra\.embeddings\.(position|token_type)_ids|generator_lm_head\.weight",
)
