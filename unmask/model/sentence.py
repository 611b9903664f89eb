"""The files by which sentence-transformers makes one vector of a text: written beside a model, and read from a folder of its own.

modules.json names the parts (Transformer, Pooling, perhaps Normalize), 1_Pooling/config.json says how tokens become one vector,
sentence_bert_config.json how long a text may be and whether it is lower-cased first.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import is_there, read_json, read_object, shown, write_json
from unmask.json_checks import BOOLEAN, COUNT, OBJECT, STRING, check, check_fields, list_of, or_null

MODULES, TRANSFORMER, SETTINGS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
PATTERNS = [MODULES, TRANSFORMER, SETTINGS, "*_Pooling/config.json", "tokenizer_config.json"]
POOLINGS = ("mean", "cls")


@dataclass(frozen=True)
class SentenceTransformerConfig:
    """How a folder makes a vector of a text."""

    pooling: str = "mean"
    normalised: bool = True
    length: int = 0  # tokens, at most; 0 = the model's own limit
    lower: bool = False
    prompt: str = ""  # put before every text


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
    prompted = {"prompts": {"default": sentence.prompt}, "default_prompt_name": "default"} if sentence.prompt else {}
    _put(folder / MODULES, modules)
    _put(folder / "1_Pooling" / "config.json", pooling)
    if sentence.normalised:
        (folder / "2_Normalize").mkdir(exist_ok=True)
    _put(folder / TRANSFORMER, {"max_seq_length": sentence.length, "do_lower_case": sentence.lower})
    _put(folder / SETTINGS, {"similarity_fn_name": "cosine", **prompted})


def read(folder: Path) -> SentenceTransformerConfig | None:
    """None when the folder says nothing of sentence vectors; UserError when it wants what is not done here."""
    if not is_there(folder / MODULES):
        return None
    modules = read_json(folder / MODULES)
    check(folder / MODULES, "the file", modules, list_of(OBJECT))
    for number, module in enumerate(modules):
        check_fields(folder / MODULES, module, {"type": STRING, "path": STRING}, ("type", "path"), f"[{number}].")
    kinds = {m["type"].rpartition(".")[2]: m["path"] for m in modules}
    unknown = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
    if unknown or "Pooling" not in kinds:
        raise UserError(
            f"{folder / MODULES} asks for {', '.join(unknown)[:200] or 'no Pooling'}",
            expected="Transformer, Pooling and Normalize",
            hint="remove modules.json to use the transformer alone",
        )
    transformer = _inside(folder, kinds.get("Transformer", "")) / TRANSFORMER
    texts = read_object(transformer) if is_there(transformer) else {}
    check_fields(transformer, texts, {"max_seq_length": or_null(COUNT), "do_lower_case": or_null(BOOLEAN)})
    length = texts.get("max_seq_length") or _limit(folder / "tokenizer_config.json")
    pooling = _pooling(_inside(folder, kinds["Pooling"]) / "config.json")
    return SentenceTransformerConfig(
        pooling, "Normalize" in kinds, length, bool(texts.get("do_lower_case")), _prompt(folder / SETTINGS)
    )


def _inside(folder: Path, name: str) -> Path:
    """A module's folder. It lies in the model's: a path that leads elsewhere would open what is not the model's."""
    if not re.fullmatch(r"[\w.-]*", name) or name == "..":
        raise UserError(
            f"{folder / MODULES} names the folder {shown(name)}", expected="plain names of folders beside it"
        )
    return folder / name


def _prompt(file: Path) -> str:
    settings = read_object(file) if is_there(file) else {}
    check_fields(file, settings, {"prompts": or_null(OBJECT), "default_prompt_name": or_null(STRING)})
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name") or "", "")
    check(file, "prompts", prompt, STRING)
    return prompt


def _pooling(file: Path) -> str:
    """`pooling_mode` of today, or the one of the older switches that is on."""
    values = read_object(file)
    name = values.get("pooling_mode")
    if name is None:
        on = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
        name = "+".join(key.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens") for key in on)
    if name not in POOLINGS:
        raise UserError(f"{file}: pooling_mode is {shown(name)}", expected=" or ".join(POOLINGS))
    return str(name)


def _limit(file: Path) -> int:
    value = read_object(file).get("model_max_length", 0) if is_there(file) else 0
    return value if type(value) is int and 0 <= value < 10**6 else 0  # transformers writes 10**30 for "not known"


def _put(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, value, indent=2)
