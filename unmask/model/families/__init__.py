"""All families, one file each. To add one, write a file and list it here, or use the entry point `unmask.families`."""

from unmask.model.families import (
    albert,
    bart,
    bert,
    cbow,
    distilbert,
    electra,
    elmo,
    gpt,
    gpt2,
    modernbert,
    roberta,
    t5,
    xlm_roberta,
)
from unmask.model.family import Family
from unmask.registry import Registry

# model_type in config.json → family
BUILT_IN = {
    "bert": bert.FAMILY,
    "roberta": roberta.FAMILY,
    "xlm-roberta": xlm_roberta.FAMILY,
    "albert": albert.FAMILY,
    "distilbert": distilbert.FAMILY,
    "electra": electra.FAMILY,
    "modernbert": modernbert.FAMILY,
    "openai-gpt": gpt.FAMILY,
    "gpt2": gpt2.FAMILY,
    "t5": t5.FAMILY,
    "bart": bart.FAMILY,
    "elmo": elmo.FAMILY,
    "cbow": cbow.FAMILY,
}
FAMILIES: Registry[Family] = Registry("families", BUILT_IN)
