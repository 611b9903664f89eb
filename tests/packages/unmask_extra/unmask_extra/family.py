"""BERT under another name, with its own preset."""

from dataclasses import replace

from unmask.model.families import bert

SHAPE = {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 32}
FAMILY = replace(bert.FAMILY, presets={"extra-tiny": {**bert.FAMILY.presets["bert-tiny"], **SHAPE}}, base="extra-tiny")
