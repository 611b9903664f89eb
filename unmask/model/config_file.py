"""config.json ↔ ModelConfig, and generation_config.json: what a model folder says of itself, read without torch."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import is_there, read_object, shown
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
from unmask.model.generation import GENERATION_KEYS
from unmask.model.head_spec import HEADS

GENERATION_FILE = "generation_config.json"


# Keys of config.json that are read beside the ones that are a field of ModelConfig under another name.
MAX_UNNAMED_LABELS = 100_000  # without names of their own
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
    """config.json → ModelConfig. A key that is not there has the value that transformers gives it."""
    name = raw.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        raise UserError(f"{file}: model_type is {shown(name)}", expected=", ".join(FAMILIES))
    family = FAMILIES[name]
    check_fields(file, raw, RULES)
    try:
        return _config(raw, name, file)
    except UserError as error:
        if error.message.startswith(str(file)):
            raise
        field = error.message.partition(":")[0]
        got = error.message.replace(field, family.fields.get(field, field), 1)[:400]
        raise UserError(f"{file}: {got}", expected=error.expected, hint=error.hint) from None


def _config(raw: dict[str, Any], name: str, file: str | Path) -> ModelConfig:
    family = FAMILIES[name]
    values = {name: raw[key] for name, key in family.fields.items() if key in raw} | family.read(raw)
    for name, value in values.items():
        if name.endswith("_id") and isinstance(value, list):  # several that end a text: generation_config.json's matter
            values[name] = value[0] if value else None
    if "generator_size" in raw:
        values["generator"] = raw["generator_size"]
    if raw.get("problem_type"):
        values["problem"] = raw["problem_type"]
    if old := raw.get("unmask_predicts"):  # the key of version 0.1
        values["logit_position"] = {"here": "same"}.get(old, old)
    if "unmask_logit_position" in raw:
        values["logit_position"] = raw["unmask_logit_position"]
    if "unmask_labels" in raw:
        values["labels"] = tuple(raw["unmask_labels"])
    elif any(HEADS[head].labeled for head in family.architectures.get(declared(raw), ())):
        # transformers leaves two classes with default names out of the file.
        names = raw.get("id2label") or {str(i): f"LABEL_{i}" for i in range(raw.get("num_labels") or 2)}
        values["labels"] = _labels(names, file)
    return change(ModelConfig(**presets()[family.base]), **values)


def _labels(names: dict[str, Any], file: str | Path) -> tuple[str, ...]:
    """id2label as a tuple, by number."""
    out = []
    for number in map(str, range(len(names))):
        if number not in names:
            raise UserError(
                f"{file}: id2label has no {number}", expected=f"the numbers 0 to {len(names) - 1}, each a name"
            )
        check(file, f"id2label.{number}", names[number], (lambda v: isinstance(v, str | int | float), "a name"))
        out.append(str(names[number]))
    return tuple(out)


def write_config(config: ModelConfig, architecture: str = "", heads: Iterable[str] = ()) -> dict[str, Any]:
    """ModelConfig → config.json, the inverse of `read_config`.

    The names of labels only for a class that has them: others count their two outputs by the same key. Where a head
    that the class has no place for has labels, they stand under a key of ours.

    >>> write_config(ModelConfig())["hidden_size"]
    768
    """
    family = FAMILIES[config.family]
    values = {key: getattr(config, name) for name, key in family.fields.items()} | family.write(config)
    if config.logit_position != "same":  # transformers has no such key, and its fill-mask pipeline reads at the mask
        values["unmask_logit_position"] = config.logit_position
    labelled = [HEADS[head].reads for head in family.architectures.get(architecture, ()) if HEADS[head].labeled]
    if config.problem and "row" in labelled:
        values["problem_type"] = config.problem
    if not labelled and any(HEADS[head].labeled for head in heads):
        values["unmask_labels"] = list(config.labels)
    if labelled:
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
    if is_there(folder / GENERATION_FILE):
        return read_object(folder / GENERATION_FILE)
    return {key: value for key, value in settings.items() if key in GENERATION_KEYS}


def declared(raw: dict[str, Any]) -> str:
    return (raw.get("architectures") or [""])[0]
