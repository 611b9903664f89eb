"""Read and write the files of sentence-transformers, which define how a model folder computes sentence vectors.

modules.json lists the modules (Transformer, Pooling, optionally Normalize), 1_Pooling/config.json the pooling, and
sentence_bert_config.json the maximum length and lowercasing.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import format_value, path_exists, read_json, read_object, write_json
from unmask.json_checks import BOOLEAN, COUNT, OBJECT, STRING, check, check_fields, list_of, or_null

MODULES, TRANSFORMER, SETTINGS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
PATTERNS = [MODULES, TRANSFORMER, SETTINGS, "*_Pooling/config.json", "tokenizer_config.json"]
POOLINGS = ("mean", "cls")


@dataclass(frozen=True)
class SentenceTransformerConfig:
    """How a model folder computes sentence vectors."""

    pooling: str = "mean"
    normalised: bool = True
    length: int = 0  # maximum number of tokens; 0 = the model's limit
    lower: bool = False
    prompt: str = ""  # prepended to every text


def write(folder: Path, sentence: SentenceTransformerConfig, width: int) -> None:
    parts = ["Transformer", "Pooling", *(["Normalize"] if sentence.normalised else [])]
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{part}" if n else "", "type": f"sentence_transformers.models.{part}"}
        for n, part in enumerate(parts)
    ]
    pooling = {"word_embedding_dimension": width, "include_prompt": True} | {
        f"pooling_mode_{key}": key == {"mean": "mean_tokens", "cls": "cls_token"}[sentence.pooling]
        for key in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    }
    prompts = {"prompts": {"default": sentence.prompt}, "default_prompt_name": "default"} if sentence.prompt else {}
    _write_json(folder / MODULES, modules)
    _write_json(folder / "1_Pooling" / "config.json", pooling)
    if sentence.normalised:
        (folder / "2_Normalize").mkdir(exist_ok=True)
    _write_json(folder / TRANSFORMER, {"max_seq_length": sentence.length, "do_lower_case": sentence.lower})
    _write_json(folder / SETTINGS, {"similarity_fn_name": "cosine", **prompts})


def read(folder: Path) -> SentenceTransformerConfig | None:
    """Return the config, or None if the folder has no modules.json; raise UserError if a module is not supported."""
    if not path_exists(folder / MODULES):
        return None
    modules = read_json(folder / MODULES)
    check(folder / MODULES, "the file", modules, list_of(OBJECT))
    for number, module in enumerate(modules):
        check_fields(folder / MODULES, module, {"type": STRING, "path": STRING}, ("type", "path"), f"[{number}].")
    kinds = {m["type"].rpartition(".")[2]: m["path"] for m in modules}
    unknown = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
    if unknown or "Pooling" not in kinds:
        raise UserError(
            f"{folder / MODULES} has the unsupported modules {', '.join(unknown)[:200]}"
            if unknown
            else f"{folder / MODULES} has no Pooling module",
            expected="Transformer, Pooling and optionally Normalize",
            hint="remove modules.json to use the transformer alone",
        )
    file = _module_folder(folder, kinds.get("Transformer", "")) / TRANSFORMER
    settings = read_object(file) if path_exists(file) else {}
    check_fields(file, settings, {"max_seq_length": or_null(COUNT), "do_lower_case": or_null(BOOLEAN)})
    length = settings.get("max_seq_length") or _tokenizer_limit(folder / "tokenizer_config.json")
    pooling = _pooling(_module_folder(folder, kinds["Pooling"]) / "config.json")
    return SentenceTransformerConfig(
        pooling, "Normalize" in kinds, length, bool(settings.get("do_lower_case")), _prompt(folder / SETTINGS)
    )


def _module_folder(folder: Path, name: str) -> Path:
    """Return the folder of a module. It must be in the model folder: other paths could open unrelated files."""
    if not re.fullmatch(r"[\w.-]*", name) or name == "..":
        raise UserError(
            f"{folder / MODULES} names the folder {format_value(name)}", expected="names of folders in the model folder"
        )
    return folder / name


def _prompt(file: Path) -> str:
    settings = read_object(file) if path_exists(file) else {}
    check_fields(file, settings, {"prompts": or_null(OBJECT), "default_prompt_name": or_null(STRING)})
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name") or "", "")
    check(file, "prompts", prompt, STRING)
    return prompt


def _pooling(file: Path) -> str:
    """Return `pooling_mode`, or for older files the name of the pooling_mode_* switch that is true."""
    values = read_object(file)
    name = values.get("pooling_mode")
    if name is None:
        active = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
        names = [key.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens") for key in active]
        name = "+".join(names)
    if name not in POOLINGS:
        raise UserError(
            f"{file}: the pooling_mode {format_value(name)} is not supported", expected=" or ".join(POOLINGS)
        )
    return str(name)


def _tokenizer_limit(file: Path) -> int:
    value = read_object(file).get("model_max_length", 0) if path_exists(file) else 0
    return value if type(value) is int and 0 <= value < 10**6 else 0  # transformers writes 10**30 for "unknown"


def _write_json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, value, indent=2)
