"""The files by which sentence-transformers makes one vector of a text: written beside a model, and read from a folder of its own.

modules.json names the parts (Transformer, Pooling, perhaps Normalize), 1_Pooling/config.json says how tokens become one vector,
sentence_bert_config.json how long a text may be and whether it is lower-cased first.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UserError

MODULES, TRANSFORMER, SETTINGS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
PATTERNS = [MODULES, TRANSFORMER, SETTINGS, "*_Pooling/config.json", "tokenizer_config.json"]
POOLINGS = ("mean", "cls")


@dataclass(frozen=True)
class Sentence:
    """How a folder makes a vector of a text."""

    pooling: str = "mean"
    normalised: bool = True
    length: int = 0  # tokens, at most; 0 = the model's own limit
    lower: bool = False
    prompt: str = ""  # put before every text


def write(folder: Path, sentence: Sentence, width: int) -> None:
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


def read(folder: Path) -> Sentence | None:
    """None when the folder says nothing of sentence vectors; UserError when it wants what is not done here."""
    if not (folder / MODULES).is_file():
        return None
    modules = _get(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(m, dict) for m in modules):
        raise UserError(f"{folder / MODULES} is not a list of modules", fix="copy the folder again")
    kinds = {str(m.get("type", "")).rpartition(".")[2]: str(m.get("path", "")) for m in modules}
    unknown = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
    if unknown or "Pooling" not in kinds:
        raise UserError(
            f"{folder / MODULES} asks for {', '.join(unknown) or 'no Pooling'}",
            valid="Transformer, Pooling and Normalize",
            fix="remove modules.json to use the transformer alone",
        )
    transformer = folder / kinds.get("Transformer", "") / TRANSFORMER
    texts = _get(transformer) if transformer.is_file() else {}
    settings = _get(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name") or "", "")
    length = texts.get("max_seq_length") or _limit(folder / "tokenizer_config.json")
    pooling = _pooling(_get(folder / kinds["Pooling"] / "config.json"), folder)
    return Sentence(pooling, "Normalize" in kinds, int(length), bool(texts.get("do_lower_case")), prompt)


def _pooling(values: dict[str, Any], folder: Path) -> str:
    """`pooling_mode` of today, or the one of the older switches that is on."""
    name = values.get("pooling_mode")
    if name is None:
        on = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
        name = "+".join(key.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens") for key in on)
    if name not in POOLINGS:
        raise UserError(f"{folder}: its vectors are pooled by {name!r}", valid=" or ".join(POOLINGS))
    return str(name)


def _limit(file: Path) -> int:
    value = _get(file).get("model_max_length", 0) if file.is_file() else 0
    return value if isinstance(value, int) and value < 10**6 else 0  # transformers writes 10**30 for "not known"


def _put(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _get(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}: {error}", fix="copy the folder again") from None
