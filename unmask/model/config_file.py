"""config.json ↔ ModelConfig, and generation_config.json: what a model folder says of itself, read without torch."""

import json
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.model.config import PRESETS, ModelConfig, change
from unmask.model.families import FAMILIES
from unmask.model.generation import GENERATION_KEYS

LABELLED = {"classify", "tag"}  # heads whose outputs have names
GENERATION_FILE = "generation_config.json"


def read_config(raw: dict[str, Any]) -> ModelConfig:
    """config.json → ModelConfig. A key that is not there has the value that transformers gives it."""
    name = raw.get("model_type")
    if name not in FAMILIES:
        raise UserError(f"a folder of the family {name!r} (model_type)", valid=", ".join(FAMILIES))
    family = FAMILIES[name]
    values = {name: raw[key] for name, key in family.fields.items() if key in raw} | family.read(raw)
    for name, value in values.items():
        if name.endswith("_id") and isinstance(value, list):  # several that end a text: generation_config.json's matter
            values[name] = value[0] if value else None
    if "generator_size" in raw:
        values["generator"] = raw["generator_size"]
    if raw.get("problem_type"):
        values["problem"] = raw["problem_type"]
    if "unmask_predicts" in raw:
        values["predicts"] = raw["unmask_predicts"]
    if LABELLED & set(family.architectures.get(declared(raw), ())):
        # transformers leaves two classes with default names out of the file.
        names = raw.get("id2label") or {i: f"LABEL_{i}" for i in range(raw.get("num_labels", 2))}
        values["labels"] = tuple(names[i] for i in sorted(names, key=int))
    return change(ModelConfig(**PRESETS[family.base]), **values)


def write_config(config: ModelConfig, architecture: str = "") -> dict[str, Any]:
    """ModelConfig → config.json, the inverse of `read_config`.

    The names of labels only for a class that has them: others count their two outputs by the same key.

    >>> write_config(ModelConfig())["hidden_size"]
    768
    """
    family = FAMILIES[config.family]
    values = {key: getattr(config, name) for name, key in family.fields.items()} | family.write(config)
    if config.predicts != "here":  # a key of ours: transformers has no word for it, and its fill-mask reads elsewhere
        values["unmask_predicts"] = config.predicts
    if config.problem and "classify" in family.architectures.get(architecture, ()):
        values["problem_type"] = config.problem
    if LABELLED & set(family.architectures.get(architecture, ())):
        values["id2label"] = {str(i): label for i, label in enumerate(config.labels)}
        values["label2id"] = {label: i for i, label in enumerate(config.labels)}
    return values


def default_generation(config: ModelConfig) -> dict[str, Any]:
    """generation_config.json of a new model: which ids begin and end, and what the family adds."""
    ids = {"bos_token_id": config.cls_id, "eos_token_id": config.sep_id, "pad_token_id": config.pad_id}
    if config.decoder_layers:
        ids["decoder_start_token_id"] = config.start_id
    return {key: value for key, value in ids.items() if value is not None} | FAMILIES[config.family].generation(config)


def read_generation(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """What a folder says of generation; one older than generation_config.json says it in config.json."""
    if (folder / GENERATION_FILE).is_file():
        return read_json(folder / GENERATION_FILE)
    return {key: value for key, value in settings.items() if key in GENERATION_KEYS}


def declared(raw: dict[str, Any]) -> str:
    return (raw.get("architectures") or [""])[0]


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object")
    return value
