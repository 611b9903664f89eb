"""Tensors of a model folder: model.safetensors, in shards or not, or the older pytorch_model.bin, read without code.

A pickle may run anything, so a .bin is read with `weights_only=True`, which refuses all but tensors.
"""

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from unmask.errors import UserError

# Asked of the hub in this order of preference; a repository often holds the same weights in several formats.
PATTERNS = ["config.json", "model*.safetensors", "model.safetensors.index.json", "heads.safetensors"]
OLD_PATTERNS = ["pytorch_model*.bin", "pytorch_model.bin.index.json"]
FORMATS = ("model.safetensors", "pytorch_model.bin")


def has_weights(folder: Path) -> bool:
    return any((folder / (name + end)).exists() for name in FORMATS for end in ("", ".index.json"))


def read_weights(folder: Path) -> dict[str, Tensor]:
    for name in FORMATS:
        if (folder / name).exists():
            return read_tensors(folder / name)
        index = folder / f"{name}.index.json"
        if index.exists():
            shards = sorted(set(read_json(index).get("weight_map", {}).values()))
            if missing := [shard for shard in shards if not (folder / shard).is_file()]:
                raise UserError(f"{folder} lacks {', '.join(missing)}, which {index.name} names")
            return {key: value for shard in shards for key, value in read_tensors(folder / shard).items()}
    raise UserError(
        f"no weights in {folder}", valid=f"{' or '.join(FORMATS)}, whole or in shards with their .index.json"
    )


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise UserError(
            f"cannot read {path}: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            fix="copy or download the file again",
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object")
    return value
