"""Read and write config.json (↔ ModelConfig) and generation_config.json, without torch."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import format_value, path_exists, read_object
from unmask.json_checks import (
    BOOLEAN,
    COUNT,
    NUMBER,
    OBJECT,
    POSITIVE,
    STRING,
    Rule,
    check,
    check_fields,
    list_of,
    or_null,
)
from unmask.model.config import ModelConfig, change, presets
from unmask.model.families import FAMILIES
from unmask.model.family import Family
from unmask.model.generation import GENERATION_KEYS
from unmask.model.head_spec import HEADS

STATIC = "model2vec"  # model_type of a static copy (inference/static_engine.py)
GENERATION_FILE = "generation_config.json"
MAX_UNNAMED_LABELS = 100_000  # num_labels without id2label

# Keys of config.json that do not map directly to a field of ModelConfig.
RULES: dict[str, Rule] = {
    "architectures": or_null(list_of(STRING)),
    "num_labels": or_null(
        (lambda v: POSITIVE[0](v) and v <= MAX_UNNAMED_LABELS, f"a whole number from 1 to {MAX_UNNAMED_LABELS:,}")
    ),
    "id2label": or_null(OBJECT),
    "problem_type": or_null(STRING),
    "generator_size": NUMBER,
    "unmask_predicts": STRING,
    "unmask_logit_position": STRING,
    "unmask_labels": list_of(STRING),
    "unmask_pretrained_tokens": COUNT,
    "pad_token_id": or_null(COUNT),
    "max_position_embeddings": POSITIVE,
    "type_vocab_size": COUNT,
    "num_hidden_layers": POSITIVE,
    "layer_types": or_null(list_of(STRING)),
    "global_attn_every_n_layers": POSITIVE,
    "rope_parameters": or_null(
        (lambda v: OBJECT[0](v) and all(map(or_null(OBJECT)[0], v.values())), "an object of objects")
    ),
    "global_rope_theta": NUMBER,
    "local_rope_theta": NUMBER,
    "afn": STRING,
    "feed_forward_proj": STRING,
    "n_inner": or_null(COUNT),
    "scale_decoder_outputs": BOOLEAN,
}


def read_config(raw: dict[str, Any], file: str | Path = "config.json") -> ModelConfig:
    """Return the ModelConfig of a config.json. A missing key has the default of transformers."""
    name = raw.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise UserError(
            f"{file}: the model_type is {format_value(name)}, which is not supported",
            expected=", ".join(FAMILIES),
            hint="a static copy has no encoder: use the model that it was exported from" if name == STATIC else None,
        )
    family = FAMILIES[name]
    check_fields(file, raw, RULES)
    try:
        return _parse_config(raw, family, file)
    except UserError as error:
        if error.message.startswith(str(file)):
            raise
        field = error.message.partition(":")[0]
        message = error.message.replace(field, family.fields.get(field, field), 1)[:400]
        raise UserError(f"{file}: {message}", expected=error.expected, hint=error.hint) from None


def _parse_config(raw: dict[str, Any], family: Family, file: str | Path) -> ModelConfig:
    values = {name: raw[key] for name, key in family.fields.items() if key in raw} | family.read(raw)
    for name, value in values.items():
        if name.endswith("_id") and isinstance(
            value, list
        ):  # several end tokens: generation reads all of them from generation_config.json
            values[name] = value[0] if value else None
    if "generator_size" in raw:
        values["generator"] = raw["generator_size"]
    if raw.get("problem_type"):
        values["problem"] = raw["problem_type"]
    if old := raw.get("unmask_predicts"):  # the key of version 0.1
        values["logit_position"] = {"here": "same"}.get(old, old)
    if "unmask_logit_position" in raw:
        values["logit_position"] = raw["unmask_logit_position"]
    values["pretrained_tokens"] = raw.get("unmask_pretrained_tokens", 0)
    if "unmask_labels" in raw:
        values["labels"] = tuple(raw["unmask_labels"])
    elif any(HEADS[head].labeled for head in family.architectures.get(declared(raw), ())):
        # transformers does not write two labels with default names.
        names = raw.get("id2label") or {str(i): f"LABEL_{i}" for i in range(raw.get("num_labels") or 2)}
        values["labels"] = _labels(names, file)
    return change(ModelConfig(**presets()[family.base]), **values)


def _labels(names: dict[str, Any], file: str | Path) -> tuple[str, ...]:
    """Return the names of id2label, ordered by number."""
    out = []
    for number in map(str, range(len(names))):
        if number not in names:
            raise UserError(
                f"{file}: id2label has no name for {number}", expected=f"a name for each of 0 to {len(names) - 1}"
            )
        check(file, f"id2label.{number}", names[number], (lambda v: isinstance(v, str | int | float), "a name"))
        out.append(str(names[number]))
    return tuple(out)


def write_config(config: ModelConfig, architecture: str = "", heads: Iterable[str] = ()) -> dict[str, Any]:
    """Return the config.json of a ModelConfig, the inverse of `read_config`.

    `id2label` is written only if the transformers class has labels, because other classes size their outputs by it.
    Labels of a head that this class does not have are written to `unmask_labels`.

    >>> write_config(ModelConfig())["hidden_size"]
    768
    """
    family = FAMILIES[config.family]
    values = {key: getattr(config, name) for name, key in family.fields.items()} | family.write(config)
    if config.logit_position != "same":  # not a key of transformers, which always reads logits at the mask
        values["unmask_logit_position"] = config.logit_position
    if config.pretrained_tokens:
        values["unmask_pretrained_tokens"] = config.pretrained_tokens
    labeled = [HEADS[head].reads for head in family.architectures.get(architecture, ()) if HEADS[head].labeled]
    if config.problem and "row" in labeled:
        values["problem_type"] = config.problem
    if not labeled and any(HEADS[head].labeled for head in heads):
        values["unmask_labels"] = list(config.labels)
    if labeled:
        values["id2label"] = {str(i): label for i, label in enumerate(config.labels)}
        values["label2id"] = {label: i for i, label in enumerate(config.labels)}
    return values


def default_generation(config: ModelConfig) -> dict[str, Any]:
    """Return the generation_config.json of a new model: its special token ids and the family's defaults."""
    ids = {"bos_token_id": config.cls_id, "eos_token_id": config.sep_id, "pad_token_id": config.pad_id}
    if config.decoder_layers:
        ids["decoder_start_token_id"] = config.start_id
    return {key: value for key, value in ids.items() if value is not None} | FAMILIES[config.family].generation(config)


def read_generation(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the generation options of a folder. Older folders have them in config.json."""
    if path_exists(folder / GENERATION_FILE):
        return read_object(folder / GENERATION_FILE)
    return {key: value for key, value in settings.items() if key in GENERATION_KEYS}


def declared(raw: dict[str, Any]) -> str:
    """Return the class that config.json names in `architectures`, or ""."""
    return (raw.get("architectures") or [""])[0]
