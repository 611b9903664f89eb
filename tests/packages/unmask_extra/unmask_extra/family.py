"""BERT under another name, with a preset of its own."""

from dataclasses import replace

from unmask.model.families import bert

SHAPE = {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 32}
FAMILY = replace(bert.FAMILY, presets={"extra-tiny": {**bert.FAMILY.presets["bert-tiny"], **SHAPE}}, base="extra-tiny")
