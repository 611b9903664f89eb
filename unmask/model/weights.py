"""What a model folder holds, of every age: its settings, and its tensors under the names that transformers has for them.

| weights | settings | |
|---|---|---|
| model.safetensors, in shards or not | config.json | today's |
| pytorch_model.bin, in shards or not | config.json | a pickle, which may run anything: all but tensors is refused |
| *.index, *.data-… | bert_config.json | TensorFlow's (`tensorflow.py`) |
"""

import math
import pickle
import re
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from unmask.errors import UserError, first_line
from unmask.files import AGAIN, is_there, open_regular, read_object, size_of
from unmask.model.config import ModelConfig
from unmask.model.config_file import MAX_UNNAMED_LABELS
from unmask.model.families import FAMILIES
from unmask.model.tensorflow import checkpoints, read_checkpoint

# Asked of the hub in this order of preference; a repository often holds the same weights in several formats.
PATTERNS = [
    "config.json",
    "bert_config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "heads.safetensors",
    "generator/*",
    "unmask.json",  # a task's, and those of sentence-transformers
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "*_Pooling/config.json",
]
OLD_PATTERNS = ["pytorch_model*.bin", "pytorch_model.bin.index.json", "*.ckpt.index", "*.ckpt.data-*"]
# Sizes up to these need not be in the weights, as that of rotated positions, or of layers that are one.
LARGEST, MOST_LAYERS = 10**6, 1000
FORMATS = ("model.safetensors", "pytorch_model.bin")
HEADER = 16 << 20  # bytes of a safetensors header: 100,000 tensors
SHARED = 4  # tensors of a pickle may share memory, as tied matrices do; their total is at most this many times the file's bytes


def has_weights(folder: Path) -> bool:
    """
    >>> has_weights(Path("no-such-folder"))
    False
    """
    files = any((folder / (name + end)).exists() for name in FORMATS for end in ("", ".index.json"))
    return files or bool(checkpoints(folder))


def settings_file(folder: Path) -> Path:
    """config.json; or, in TensorFlow's folders, bert_config.json in the same words."""
    for name in ("config.json", "bert_config.json"):
        if is_there(folder / name):
            return folder / name
    raise UserError(
        f"{folder} is not a model folder: it has no config.json",
        expected="a folder with config.json or bert_config.json",
    )


def read_settings(folder: Path) -> dict[str, Any]:
    file = settings_file(folder)
    settings = read_object(file)
    if file.name == "config.json":
        return settings
    # A BERT whose embeddings are narrower than its layers is, to transformers, an ELECTRA.
    narrow = settings.get("embedding_size", settings.get("hidden_size")) != settings.get("hidden_size")
    return {"model_type": "electra" if narrow else "bert"} | settings


def read_weights(folder: Path) -> dict[str, Tensor]:
    for name in FORMATS:
        if (folder / name).exists():
            return read_tensors(folder / name)
        index = folder / f"{name}.index.json"
        if index.exists():
            shards = read_shards(index)
            if missing := [shard for shard in shards if not (folder / shard).is_file()]:
                raise UserError(f"{folder} lacks {', '.join(missing)}, which {index.name} names")
            return {key: value for shard in shards for key, value in read_tensors(folder / shard).items()}
    if found := checkpoints(folder):
        if len(found) > 1 and found[0].name != "bert_model.ckpt.index":
            names = ", ".join(file.stem for file in found)
            raise UserError(
                f"{folder} has {len(found)} checkpoints: {names}", expected="one", hint="move the others away"
            )
        return read_checkpoint(found[0])
    raise UserError(
        f"no weights in {folder}",
        expected=f"{' or '.join(FORMATS)}, whole or in shards with their .index.json, or bert_model.ckpt.index and its data",
        hint="it was exported: it answers with backend onnx; to train or change it, use the folder that it was made from"
        if (folder / "export.json").is_file()
        else None,
    )


def model_files(folder: Path) -> list[Path]:
    """The files that decide what a model answers: settings, weights, heads."""
    unread = ("generation_config.json", "generator/*")
    today = {file for pattern in PATTERNS if pattern not in unread for file in folder.glob(pattern)}
    old = {file for pattern in (*OLD_PATTERNS, "*.index", "*.data-*") for file in folder.glob(pattern)}
    return sorted(today if any(file.suffix == ".safetensors" for file in today) else today | old)


def read_shards(index: Path) -> list[str]:
    """The files that an index names. They lie beside it: a path that leads elsewhere would open what is not the model's."""
    places = read_object(index).get("weight_map", {})
    if not isinstance(places, dict):
        raise UserError(f"{index}: its weight_map is not an object", expected="weight_map: tensor → file name")
    for shard in places.values():
        if not isinstance(shard, str) or not re.fullmatch(r"[^/\\:\0]+", shard) or shard in (".", ".."):
            raise UserError(f"{index} names the file {shard!r}", expected="plain names of files beside it")
    return sorted(set(places.values()))


def read_tensors(path: Path) -> dict[str, Tensor]:
    size = size_of(path)
    try:
        if path.suffix == ".safetensors":
            _check_header(path)
            return load_file(path)
        _check_stored(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL (\S+)|[Uu]nsupported (?:class|global) (\S+)", str(error))
        if name is None:
            raise UserError(f"cannot read {path}: it is damaged, or holds more than tensors", hint=AGAIN) from None
        raise UserError(
            f"cannot read {path}: it asks to run {name[1] or name[2]}, so it holds more than tensors, and was not opened",
            expected="a file of tensors alone",
            hint="ask its author for model.safetensors",
        ) from None
    except Exception as error:  # a malformed pickle raises whatever its operations raise
        raise UserError(f"cannot read {path}: it is damaged ({first_line(error)})", hint=AGAIN) from None
    found = found if isinstance(found, dict) else {}
    tensors = {str(key): value for key, value in found.items() if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(f"{path} holds no tensors by name", expected="the state of a model, as torch.save writes it")
    _check_plain(path, tensors, size)
    return tensors


def _check_header(path: Path) -> None:
    with open_regular(path) as handle:
        length = int.from_bytes(handle.read(8), "little")
    if length > HEADER:
        raise UserError(
            f"cannot read {path}: its header has {length:,} bytes", expected=f"at most {HEADER:,}", hint=AGAIN
        )


def _check_stored(path: Path) -> None:
    """A pickle lies in an uncompressed zip: a compressed one could be a thousand times as large in memory."""
    with open_regular(path) as handle:
        if not zipfile.is_zipfile(handle):
            return  # of 2019 and before
        with zipfile.ZipFile(handle) as archive:
            packed = next((i.filename for i in archive.infolist() if i.compress_type != zipfile.ZIP_STORED), None)
    if packed is not None:
        raise UserError(f"cannot read {path}: {packed} in it is compressed", expected="a file as torch.save writes it")


def _check_plain(path: Path, tensors: dict[str, Tensor], size: int) -> None:
    """Numbers that lie in the file: a pickle may also hold a tensor of any size that repeats one number, or none."""
    total = 0
    for name, value in tensors.items():
        plain = value.layout is torch.strided and value.device.type == "cpu"
        if not plain or value.is_quantized or value.is_complex():
            raise UserError(f"cannot read {path}: {name} is no plain tensor of real numbers", hint=AGAIN)
        total += value.numel() * value.element_size()
        if total > SHARED * size:
            raise UserError(
                f"cannot read {path}: its tensors up to {name} would take {total:,} bytes, and the file has {size:,}",
                hint=AGAIN,
            )


def check_sizes(config: ModelConfig, tensors: dict[str, Tensor], file: Path) -> None:
    """A size in config.json far above those of the weights is a mistake, found before it is asked of the memory."""
    found = max((size for value in tensors.values() for size in value.shape), default=0)
    widest = max(LARGEST, found)
    if len(config.labels) > max(MAX_UNNAMED_LABELS, found):
        raise UserError(
            f"{file}: id2label has {len(config.labels):,} names, far more than the weights have",
            expected="the config.json that the weights were saved with",
        )
    keys = FAMILIES[config.family].fields
    for field in fields(config):
        value = getattr(config, field.name)
        most = max(MOST_LAYERS, len(tensors)) if field.name.endswith("layers") else widest
        if isinstance(value, int) and value > most:
            raise UserError(
                f"{file}: {keys.get(field.name, field.name)} is {value:,}, far more than the weights have",
                expected="the config.json that the weights were saved with",
            )


def check_finite(name: str, value: Tensor, folder: Path) -> None:
    if value.numel() and not all(map(math.isfinite, value.aminmax())):
        raise UserError(
            f"{folder}: the weights {name} hold NaN or infinity, so the model would answer nonsense",
            expected="finite numbers",
            hint="an earlier checkpoint of the run that diverged, or download the weights again",
        )
