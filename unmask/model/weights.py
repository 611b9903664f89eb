"""Read the settings and tensors of a model folder, in all formats that transformers and BERT have used.

| weights | settings | |
|---|---|---|
| model.safetensors, also sharded | config.json | the current format |
| pytorch_model.bin, also sharded | config.json | a pickle, which could execute code: only tensors are loaded |
| *.index, *.data-… | bert_config.json | TensorFlow (`tensorflow.py`) |
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

from unmask.errors import UserError, command, first_line
from unmask.files import COPY_AGAIN, file_size, open_regular, path_exists, read_object
from unmask.model.config import ModelConfig
from unmask.model.config_file import MAX_UNNAMED_LABELS
from unmask.model.families import FAMILIES
from unmask.model.tensorflow import checkpoints, read_checkpoint

# Files to download from the hub. OLD_PATTERNS are requested only if there is no safetensors file, because a repository
# often has the same weights in several formats.
PATTERNS = [
    "config.json",
    "bert_config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "heads.safetensors",
    "linear.safetensors",
    "generator/*",
    "unmask.json",  # of a fine-tuned task; the files below are those of sentence-transformers
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "*_Pooling/config.json",
]
OLD_PATTERNS = ["pytorch_model*.bin", "pytorch_model.bin.index.json", "*.ckpt.index", "*.ckpt.data-*"]
# Sizes in config.json up to these limits are accepted even if no tensor has them (rotary positions, shared layers).
MAX_UNUSED_SIZE, MAX_UNUSED_LAYERS = 10**6, 1000
FORMATS = ("model.safetensors", "pytorch_model.bin")
MAX_HEADER_BYTES = 16 << 20  # maximum header of a safetensors file; enough for 100,000 tensors
MAX_SHARING = (
    4  # tensors of a pickle may share memory (tied matrices): their total is at most this many times the file size
)


def has_weights(folder: Path) -> bool:
    """Return whether the folder has weights in any format.

    >>> has_weights(Path("no-such-folder"))
    False
    """
    files = any((folder / (name + end)).exists() for name in FORMATS for end in ("", ".index.json"))
    return files or bool(checkpoints(folder))


def settings_file(folder: Path) -> Path:
    """Return the path of config.json, or of bert_config.json (TensorFlow), which has the same keys."""
    for name in ("config.json", "bert_config.json"):
        if path_exists(folder / name):
            return folder / name
    if folder.is_file():
        raise UserError(
            f"{folder} is a file, not a model folder",
            expected="a folder that contains config.json, or owner/name on the Hugging Face hub",
            hint=command("unmask finetune MODEL --train", folder),
        )
    raise UserError(
        f"{folder} is not a model folder: it has no config.json",
        expected="a folder that contains config.json or bert_config.json",
        hint="pass the folder `model` of a run: unmask pretrain and unmask finetune print its path",
    )


def read_settings(folder: Path) -> dict[str, Any]:
    file = settings_file(folder)
    settings = read_object(file)
    if file.name == "config.json":
        return settings
    # transformers represents a BERT with narrower embeddings as an ELECTRA model.
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
                raise UserError(
                    f"{folder}: {', '.join(missing)} is missing, but listed in {index.name}",
                    hint="copy or download the model folder again",
                )
            return {key: value for shard in shards for key, value in read_tensors(folder / shard).items()}
    if indexes := checkpoints(folder):
        if len(indexes) > 1 and indexes[0].name != "bert_model.ckpt.index":
            names = ", ".join(file.stem for file in indexes)
            raise UserError(
                f"{folder} has {len(indexes)} checkpoints: {names}",
                expected="one checkpoint",
                hint="move the other checkpoints to another folder",
            )
        return read_checkpoint(indexes[0])
    exported = (folder / "export.json").is_file()
    raise UserError(
        f"there are no weights in {folder}",
        expected=f"{' or '.join(FORMATS)}, possibly sharded with an .index.json, or bert_model.ckpt.index and its data files",
        hint='this is an ONNX export: load it with backend="onnx"; to train it, use the folder that it was exported from'
        if exported
        else None,
    )


def model_files(folder: Path) -> list[Path]:
    """Return the files that determine the outputs of a model: settings, weights, heads."""
    skipped = ("generation_config.json", "generator/*")
    current = {file for pattern in PATTERNS if pattern not in skipped for file in folder.glob(pattern)}
    old = {file for pattern in (*OLD_PATTERNS, "*.index", "*.data-*") for file in folder.glob(pattern)}
    return sorted(current if any(file.suffix == ".safetensors" for file in current) else current | old)


def read_shards(index: Path) -> list[str]:
    """Return the files that an index lists. They must be in its folder: other paths could open unrelated files."""
    shards = read_object(index).get("weight_map", {})
    if not isinstance(shards, dict):
        raise UserError(f"{index}: weight_map is not an object", expected="weight_map: tensor → file name")
    for shard in shards.values():
        if not isinstance(shard, str) or not re.fullmatch(r"[^/\\:\0]+", shard) or shard in (".", ".."):
            raise UserError(f"{index} names the file {shard!r}", expected="names of files in the same folder")
    return sorted(set(shards.values()))


def read_tensors(path: Path) -> dict[str, Tensor]:
    size = file_size(path)
    try:
        if path.suffix == ".safetensors":
            _check_header(path)
            return load_file(path)
        _check_uncompressed(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL (\S+)|[Uu]nsupported (?:class|global) (\S+)", str(error))
        if name is None:
            raise UserError(
                f"cannot read {path}: it is damaged, or contains more than tensors", hint=COPY_AGAIN
            ) from None
        raise UserError(
            f"cannot read {path}: refusing to unpickle it, because it would execute {name[1] or name[2]}",
            expected="a file that contains only tensors",
            hint="ask its author for model.safetensors",
        ) from None
    except Exception as error:  # a malformed pickle can raise any exception
        raise UserError(f"cannot read {path}: it is damaged ({first_line(error)})", hint=COPY_AGAIN) from None
    loaded = loaded if isinstance(loaded, dict) else {}
    tensors = {str(key): value for key, value in loaded.items() if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(f"{path} contains no named tensors", expected="a state dict written by torch.save")
    _check_dense(path, tensors, size)
    return tensors


def _check_header(path: Path) -> None:
    with open_regular(path) as handle:
        length = int.from_bytes(handle.read(8), "little")
    if length > MAX_HEADER_BYTES:
        raise UserError(
            f"cannot read {path}: its header has {length:,} bytes",
            expected=f"at most {MAX_HEADER_BYTES:,}",
            hint=COPY_AGAIN,
        )


def _check_uncompressed(path: Path) -> None:
    """Raise UserError if the zip file around a pickle is compressed: it could expand to a thousand times its size."""
    with open_regular(path) as handle:
        if not zipfile.is_zipfile(handle):
            return  # a file of 2019 or earlier
        with zipfile.ZipFile(handle) as archive:
            compressed = next((i.filename for i in archive.infolist() if i.compress_type != zipfile.ZIP_STORED), None)
    if compressed is not None:
        raise UserError(
            f"cannot read {path}: {compressed} in it is compressed",
            expected="an uncompressed file written by torch.save",
        )


def _check_dense(path: Path, tensors: dict[str, Tensor], size: int) -> None:
    """Raise UserError unless all numbers are stored in the file: a pickle can contain a huge tensor without data."""
    total = 0
    for name, value in tensors.items():
        dense = value.layout is torch.strided and value.device.type == "cpu"
        if not dense or value.is_quantized or value.is_complex():
            raise UserError(f"cannot read {path}: {name} is not a dense tensor of real numbers", hint=COPY_AGAIN)
        total += value.numel() * value.element_size()
        if total > MAX_SHARING * size:
            raise UserError(
                f"cannot read {path}: its tensors up to {name} need {total:,} bytes, but the file has only {size:,}",
                hint=COPY_AGAIN,
            )


def check_sizes(config: ModelConfig, tensors: dict[str, Tensor], file: Path) -> None:
    """Raise UserError, before memory is allocated, if a size in config.json is far larger than the weights."""
    largest = max((size for value in tensors.values() for size in value.shape), default=0)
    if len(config.labels) > max(MAX_UNNAMED_LABELS, largest):
        raise UserError(
            f"{file}: id2label has {len(config.labels):,} names, far more than the weights",
            expected="the config.json that was saved with the weights",
        )
    keys = FAMILIES[config.family].fields
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name == "pretrained_tokens":  # not a size
            continue
        is_depth = field.name.endswith("layers")
        limit = max(MAX_UNUSED_LAYERS, len(tensors)) if is_depth else max(MAX_UNUSED_SIZE, largest)
        if isinstance(value, int) and value > limit:
            raise UserError(
                f"{file}: {keys.get(field.name, field.name)} is {value:,}, far larger than the weights",
                expected="the config.json that was saved with the weights",
            )


def check_finite(name: str, value: Tensor, folder: Path) -> None:
    if value.numel() and not all(map(math.isfinite, value.aminmax())):
        raise UserError(
            f"{folder}: the weights {name} contain NaN or infinity",
            expected="finite numbers",
            hint="use an earlier checkpoint of the run, or copy or download the weights again",
        )
