"""XLM-RoBERTa (Conneau et al. 1911.02116): RoBERTa for a hundred languages, with a Unigram vocabulary."""

from dataclasses import replace

from unmask.model.families import bert, roberta

FAMILY = replace(
    roberta.FAMILY,
    tokenizer=roberta.FAMILY.tokenizer | {"type": "unigram"},
    defaults=roberta.FAMILY.defaults | {"vocab_size": 250002},
    architectures=roberta.classes("XLMRoberta"),
    presets={
        "xlm-roberta-mini": bert.size(4, 256),
        "xlm-roberta-small": bert.size(4, 512),
        "xlm-roberta-base": bert.size(12, 768),
        "xlm-roberta-large": bert.size(24, 1024),
    },
    base="xlm-roberta-base",
    architecture_names={f"XLM{name}": names for name, names in roberta.FAMILY.architecture_names.items()},
)
