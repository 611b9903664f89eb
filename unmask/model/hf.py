"""The folder format, which is Hugging Face's: config.json and model.safetensors, under the names transformers uses.

A family's file says which config.json key is which ModelConfig field, and which tensor there is which parameter here;
this reads it in both directions. Saving writes the class that opens the folder into `architectures`; heads for which
that class has no place go into heads.safetensors.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor

from unmask.errors import UserError
from unmask.hub import resolve
from unmask.model.config import PRESETS, ModelConfig, change
from unmask.model.families import FAMILIES
from unmask.model.family import Family
from unmask.model.heads import HEADS
from unmask.model.model import Model, with_needs
from unmask.model.weights import OLD_PATTERNS, PATTERNS, has_weights, read_json, read_tensors, read_weights

HEADS_FILE, HEADS_VERSION = "heads.safetensors", "1"


class Saves(Protocol):
    """What `save` asks of a tokenizer."""

    def save(self, folder: Path) -> Any: ...


def save(model: Model, folder: str | Path, tokenizer: Saves | None = None, extra: dict[str, Any] | None = None) -> str:
    """Write the model's folder and return the class in transformers that opens it.

    `extra` adds keys to config.json. Files are written one after the other: for an atomic save give a temporary
    folder, and rename it.
    """
    config, family, folder = model.config, FAMILIES[model.config.family], Path(folder)
    architecture = config.architecture(model.heads)
    held = family.architectures[architecture]
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    placed: dict[str, Tensor] = {}
    beside: dict[str, Tensor] = {}
    for name, value in state.items():
        if name.startswith("heads.") and name.split(".")[1] not in held:
            beside[name] = value
            continue
        targets = there(family, name)
        for target, part in zip(targets, value.chunk(len(targets)), strict=True):
            placed[target] = part.clone()  # safetensors refuses views of one storage
        if name in family.copies and not config.tie:
            placed[family.copies[name]] = value.clone()
    if architecture.endswith("Model"):
        placed = {name.removeprefix(family.prefix): value for name, value in placed.items()}

    folder.mkdir(parents=True, exist_ok=True)
    settings = {"architectures": [architecture], "model_type": config.family}
    settings["dtype"] = str(model.embedding.dtype).removeprefix("torch.")
    text = json.dumps(settings | write_config(config) | (extra or {}), indent=2, ensure_ascii=False, sort_keys=True)
    (folder / "config.json").write_text(text + "\n", "utf-8")
    save_file(placed, folder / "model.safetensors", {"format": "pt"})
    if beside:
        save_file(beside, folder / HEADS_FILE, {"format": "pt", "version": HEADS_VERSION})
    if tokenizer is not None:
        tokenizer.save(folder)
    return architecture


@dataclass
class Loaded:
    model: Model
    missing: list[str]  # parameters of heads that the folder lacks: drawn anew, so train them before use
    unexpected: list[str]  # tensors of the folder that nothing here reads
    folder: Path
    settings: dict[str, Any]  # config.json as it stands

    @property
    def config(self) -> ModelConfig:
        return self.model.config


def load(
    name: str | Path, heads: Iterable[str] | None = None, changes: dict[str, Any] | None = None, seed: int = 0
) -> Loaded:
    """Open a folder, or a name on the hub, of a supported family, in float32.

    `heads`: which heads the model gets; None = those the folder has. One that it lacks is drawn from `seed` and said
    in `missing`. `changes`: ModelConfig fields to change, e.g. {"labels": ("no", "yes"), "dropout": 0.0}.
    """
    folder = resolve(name, PATTERNS)
    if not folder.joinpath("config.json").is_file():
        raise UserError(f"{folder} is not a model folder: it has no config.json", valid="a folder with config.json")
    settings = read_json(folder / "config.json")
    found_config = read_config(settings)
    config = change(found_config, **(changes or {}))
    family = FAMILIES[config.family]
    if not has_weights(folder):
        folder = resolve(name, PATTERNS + OLD_PATTERNS)
    tensors = _modern_names(read_weights(folder), family)

    found = _heads_in(tensors, found_config, settings)
    beside = read_tensors(folder / HEADS_FILE) if (folder / HEADS_FILE).is_file() else {}
    stored = {key.split(".")[1] for key in beside if key.startswith("heads.")} & set(HEADS)
    model = Model(config, [*found, *stored] if heads is None else heads)

    read: set[str] = set()  # tensors that some parameter is made of
    for head in found:
        read.update(key for parameter in _head_names(head, found_config) for key in there(family, parameter))
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for parameter, empty in model.state_dict().items():
        in_head = parameter.startswith("heads.")
        if in_head and parameter.split(".")[1] not in found:
            value = beside.get(parameter)
        else:
            sources = there(family, parameter)
            if not config.tie and family.copies.get(parameter) in tensors:
                sources = (family.copies[parameter],)
            read.update(sources)
            parts = [tensors[key] for key in sources if key in tensors]
            value = torch.cat(parts) if len(parts) == len(sources) else None
        if value is not None and value.shape == empty.shape:
            state[parameter] = value.to(empty.dtype)
        elif in_head:
            missing.append(parameter)
        else:
            got = "is not there" if value is None else f"has shape {tuple(value.shape)}"
            raise UserError(
                f"{folder}: {' + '.join(there(family, parameter))} {got}",
                valid=f"shape {tuple(empty.shape)}, as config.json says",
            )
    model.load_state_dict(state, strict=False)
    model.init(seed, only=missing)
    unexpected = [key for key in tensors if key not in read and not re.fullmatch(family.ignored, key)]
    unexpected += [key for key in beside if key.split(".")[1:2] and key.split(".")[1] not in HEADS]
    return Loaded(model.eval(), missing, sorted(unexpected), folder, settings)


def there(family: Family, name: str) -> tuple[str, ...]:
    """A parameter's name here → its tensors' names in transformers.

    >>> there(FAMILIES["modernbert"], "encoder.layers.3.mlp.up.weight")
    ('model.layers.3.mlp.Wi.weight',)
    """
    stem, _, kind = name.rpartition(".")
    number = re.search(r"\blayers\.(\d+)\.", stem)
    if number:
        stem = stem.replace(number[0], "layers.{i}.")
    rules = family.heads[stem.split(".")[1]] if stem.startswith("heads.") else family.names
    targets = rules[stem]
    i = number[1] if number else ""
    return tuple(f"{t.replace('{i}', i)}.{kind}" for t in ((targets,) if isinstance(targets, str) else targets))


def read_config(raw: dict[str, Any]) -> ModelConfig:
    """config.json → ModelConfig. A key that is not there has the value that transformers gives it."""
    name = raw.get("model_type")
    if name not in FAMILIES:
        raise UserError(f"a folder of the family {name!r} (model_type)", valid=", ".join(FAMILIES))
    family = FAMILIES[name]
    values = {name: raw[key] for name, key in family.fields.items() if key in raw} | family.read(raw)
    if "classify" in family.architectures.get(_declared(raw), ()):
        # transformers leaves two classes with default names out of the file.
        names = raw.get("id2label") or {i: f"LABEL_{i}" for i in range(raw.get("num_labels", 2))}
        values["labels"] = tuple(names[i] for i in sorted(names, key=int))
    return change(ModelConfig(**PRESETS[family.base]), **values)


def write_config(config: ModelConfig) -> dict[str, Any]:
    """ModelConfig → config.json, the inverse of `read_config`.

    >>> write_config(ModelConfig())["hidden_size"]
    768
    """
    family = FAMILIES[config.family]
    values = {key: getattr(config, name) for name, key in family.fields.items()} | family.write(config)
    if config.labels:
        values["id2label"] = {str(i): label for i, label in enumerate(config.labels)}
        values["label2id"] = {label: i for i, label in enumerate(config.labels)}
    return values


def _declared(raw: dict[str, Any]) -> str:
    return (raw.get("architectures") or [""])[0]


def _modern_names(tensors: dict[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Names as the class with heads has them today: LayerNorms of 2018 said gamma and beta, bare models no prefix."""
    bare = not any(key.startswith(family.prefix) for key in tensors)
    out = {}
    for key, value in tensors.items():
        key = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key))
        out[family.prefix + key if bare else key] = value
    return out


def _head_names(head: str, config: ModelConfig) -> list[str]:
    with torch.device("meta"):
        return [f"heads.{head}.{key}" for key in HEADS[head](config).state_dict()]


def _heads_in(tensors: dict[str, Tensor], config: ModelConfig, raw: dict[str, Any]) -> tuple[str, ...]:
    """The heads of the first class whose tensors are all there, whatever `architectures` says.

    Google's own files hold more than the class they name. Only a classifier must be declared: token classification
    and multiple choice use the same tensor names for something else.
    """
    family = FAMILIES[config.family]
    for architecture, heads in family.architectures.items():
        if "classify" in heads and architecture != _declared(raw):
            continue
        names = [key for head in heads for name in _head_names(head, config) for key in there(family, name)]
        if all(key in tensors for key in names):
            return tuple(with_needs(heads))
    return ()
