"""Load and save model folders in the format of Hugging Face: config.json and model.safetensors, with transformers' names.

The family's file maps config.json keys to ModelConfig fields and tensor names to parameters, for both directions. `save`
writes the transformers class that opens the folder to `architectures`. Heads that this class does not have are saved in
heads.safetensors.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor

from unmask.errors import UserError
from unmask.files import path_exists, read_object, write_json
from unmask.hub import resolve
from unmask.model.config import ModelConfig, change
from unmask.model.config_file import (
    GENERATION_FILE,
    declared,
    default_generation,
    read_config,
    read_generation,
    write_config,
)
from unmask.model.families import FAMILIES
from unmask.model.family import Family
from unmask.model.head_spec import HEADS
from unmask.model.model import TIED, Model, with_dependencies
from unmask.model.weights import (
    OLD_PATTERNS,
    PATTERNS,
    check_finite,
    check_sizes,
    has_weights,
    read_settings,
    read_tensors,
    read_weights,
    settings_file,
)

HEADS_FILE, HEADS_VERSION = "heads.safetensors", "1"
MAX_NEW_PARAMETERS = 10**8  # maximum for heads that are missing in a folder, unless its weights have more
GENERATOR = "generator"  # the head that is itself a model, and the name of its folder


class SavableTokenizer(Protocol):
    """The tokenizer interface that `save` needs."""

    def save(self, folder: Path, *, segments: bool, max_length: int) -> Any: ...


def save(
    model: Model, folder: str | Path, tokenizer: SavableTokenizer | None = None, extra: dict[str, Any] | None = None
) -> str:
    """Write the model folder and return the transformers class that opens it.

    `extra` adds keys to config.json. The save is not atomic: pass a temporary folder and rename it if you need that.
    """
    config, family, folder = model.config, FAMILIES[model.config.family], Path(folder)
    architecture = config.architecture(model.heads)
    class_heads = family.architectures[architecture]
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    tensors: dict[str, Tensor] = {}  # written to model.safetensors
    head_tensors: dict[str, Tensor] = {}  # written to heads.safetensors
    for name, value in state.items():
        if name.startswith("heads.") and name.split(".")[1] not in class_heads:
            if name.split(".")[1] != GENERATOR:
                head_tensors[name] = value
            continue
        targets = hf_tensor_names(family, name, config, architecture)
        for target, part in zip(targets, value.chunk(len(targets)), strict=True):
            # clone: safetensors rejects tensors that share memory
            tensors[target] = part.t().contiguous().clone() if _is_transposed(family, name) else part.clone()
        if name in family.copies and not config.tie:
            tensors[family.copies[name]] = value.clone()
    if architecture.endswith("Model") and not architecture.endswith("HeadModel"):
        tensors = {name.removeprefix(family.prefix): value for name, value in tensors.items()}

    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"architectures": [architecture], "model_type": config.family}
    if GENERATOR in model.heads:
        settings["generator_size"] = config.generator
    settings["dtype"] = str(model.embedding.dtype).removeprefix("torch.")
    settings |= write_config(config, architecture, model.heads) | (extra or {})
    write_json(folder / "config.json", settings, indent=2, sort_keys=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    if head_tensors:
        save_file(head_tensors, folder / HEADS_FILE, {"format": "pt", "version": HEADS_VERSION})
    if "lm" in model.heads:
        write_json(folder / GENERATION_FILE, model.generation or default_generation(config), indent=2, sort_keys=True)
    if tokenizer is not None:
        tokenizer.save(folder, segments=config.segments > 1, max_length=config.max_positions)
    if GENERATOR in model.heads:
        save(model.heads[GENERATOR], folder / GENERATOR, tokenizer)  # type: ignore[arg-type]
    return architecture


@dataclass
class Loaded:
    model: Model
    missing: list[str]  # head parameters that are not in the folder: randomly initialized, so train them before use
    unexpected: list[str]  # tensors of the folder that are not used
    folder: Path
    settings: dict[str, Any]  # config.json, unchanged

    @property
    def config(self) -> ModelConfig:
        return self.model.config


def load(
    name: str | Path, heads: Iterable[str] | None = None, changes: dict[str, Any] | None = None, seed: int = 0
) -> Loaded:
    """Load a model folder, or a model on the hub, in float32.

    heads: the heads of the model; None = those of the folder. A head that the folder does not have is initialized with
        `seed` and listed in `missing`.
    changes: ModelConfig fields to change, e.g. {"labels": ("no", "yes"), "dropout": 0.0}.
    """
    folder = resolve(name, PATTERNS)
    settings = read_settings(folder)
    stored_config = read_config(settings, settings_file(folder))
    family = FAMILIES[stored_config.family]
    if not has_weights(folder):
        folder = resolve(name, PATTERNS + OLD_PATTERNS)
    tensors = _modern_names(read_weights(folder), family)

    check_sizes(stored_config, tensors, settings_file(folder))
    stored_config = _untie_if_different(stored_config, tensors)
    config = change(stored_config, **(changes or {}))
    architecture, class_heads = _find_architecture(tensors, stored_config, settings)
    head_tensors = read_tensors(folder / HEADS_FILE) if path_exists(folder / HEADS_FILE) else {}
    other_heads = {key.split(".")[1] for key in head_tensors if key.startswith("heads.")} & set(HEADS)
    generator = folder / GENERATOR
    if generator.is_dir():
        other_heads.add(GENERATOR)
    selected = [*class_heads, *other_heads] if heads is None else list(heads)
    with torch.device("meta"):  # allocate no memory before the shapes are compared with the files
        skeleton = Model(config, selected)
    if GENERATOR in skeleton.heads and generator.is_dir():
        generator_state = load(generator, heads=["mlm"]).model.state_dict()
        head_tensors |= {f"heads.{GENERATOR}.{key}": value for key, value in generator_state.items()}

    sources = _tensor_sources(skeleton, tensors, architecture, class_heads)
    state, missing = _collect_state(skeleton, sources, tensors, head_tensors, folder)
    _check_new_heads(missing, skeleton, tensors, settings_file(folder))
    model = Model(config, selected)
    model.load_state_dict(state, strict=False)
    model.init(seed, only=missing)
    model.generation = read_generation(folder, settings)
    used = {key for keys in sources.values() for key in keys}
    for parameter in (name for head in class_heads for name in _head_parameters(head, stored_config)):
        used.update(hf_tensor_names(family, parameter, stored_config, architecture))
    unexpected = [key for key in tensors if key not in used and not re.fullmatch(family.ignored, key)]
    unexpected += [key for key in head_tensors if key.split(".")[1:2] and key.split(".")[1] not in HEADS]
    return Loaded(model.eval(), missing, sorted(unexpected), folder, settings)


def _tensor_sources(
    skeleton: Model, tensors: dict[str, Tensor], architecture: str, class_heads: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Map each parameter to the names of its tensors; () for heads that the transformers class does not have."""
    config, family = skeleton.config, FAMILIES[skeleton.config.family]
    sources: dict[str, tuple[str, ...]] = {}
    for name in skeleton.state_dict():
        if name in TIED:
            continue  # loaded as the model's embeddings
        if name.startswith("heads.") and name.split(".")[1] not in class_heads:
            sources[name] = ()
        elif not config.tie and family.copies.get(name) in tensors:
            sources[name] = (family.copies[name],)
        else:
            sources[name] = hf_tensor_names(family, name, config, architecture)
    return sources


def _collect_state(
    skeleton: Model,
    sources: dict[str, tuple[str, ...]],
    tensors: dict[str, Tensor],
    head_tensors: dict[str, Tensor],
    folder: Path,
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the state dict and the names of missing head parameters; raise UserError if another parameter is missing."""
    empty, family = skeleton.state_dict(), FAMILIES[skeleton.config.family]
    parameters = {key for key, _ in skeleton.named_parameters()}  # BART's bias is a buffer: if it is missing, it is 0
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for name, keys in sources.items():
        if keys:
            value = _concatenate([tensors.get(key) for key in keys], _is_transposed(family, name))
        else:
            value = head_tensors.get(name)
        if value is not None and value.shape == empty[name].shape:
            state[name] = value.to(empty[name].dtype)
            check_finite(name if name.startswith("heads.") else " + ".join(keys), state[name], folder)
        elif name.startswith("heads."):
            missing += [name] if name in parameters else []
        else:
            if not all(key in tensors for key in keys):
                problem = "is missing"
            else:
                problem = "has the wrong shape" if value is None else f"has shape {tuple(value.shape)}"
            raise UserError(
                f"{folder}: {' + '.join(keys)} {problem}",
                expected=f"shape {tuple(empty[name].shape)}, according to config.json",
                hint="copy or download the model folder again",
            )
    return state, missing


def hf_tensor_names(
    family: Family, name: str, config: ModelConfig | None = None, architecture: str = ""
) -> tuple[str, ...]:
    """Return the names of a parameter's tensors in transformers, for the class `architecture` if classes differ.

    >>> hf_tensor_names(FAMILIES["modernbert"], "encoder.layers.3.mlp.up.weight")
    ('model.layers.3.mlp.Wi.weight',)
    """
    if family.unmask_only:
        return (name,)
    stem, _, kind = name.rpartition(".")
    number = re.search(r"\blayers\.(\d+)\.", stem)
    if number:
        stem = stem.replace(number[0], "layers.{i}.")
    rules = family.heads[stem.split(".")[1]] if stem.startswith("heads.") else family.names
    targets = (
        rules
        | ({} if config is None else family.conditional_names(config))
        | family.architecture_names.get(architecture, {})
    )[stem]
    i = number[1] if number else ""
    owners = (targets,) if isinstance(targets, str) else targets
    return tuple(f"{t.replace('{i}', i)}.{kind}".lstrip(".") for t in owners)


def config_of(name: str | Path) -> ModelConfig:
    """Return the config of a model folder or a model on the hub, without loading its weights."""
    file = resolve(name, PATTERNS) / "config.json"
    return read_config(read_object(file), file) if file.is_file() else load(name, heads=()).config


def _is_transposed(family: Family, name: str) -> bool:
    """Return whether the matrix is transposed in the folder, as GPT's matrices are."""
    return name.endswith(tuple(f"{end}.weight" for end in family.transposed)) and not name.startswith("heads.")


def _concatenate(parts: list[Tensor | None], transposed: bool) -> Tensor | None:
    """Concatenate the tensors of a parameter; return None if one is missing or the shapes do not match."""
    tensors = [part for part in parts if part is not None]
    if len(tensors) < len(parts) or any(part.dim() != 2 for part in tensors if transposed):
        return None
    tensors = [part.t() if transposed else part for part in tensors]
    if len(tensors) > 1 and len({(part.dim(), part.shape[1:]) for part in tensors if part.dim()}) != 1:
        return None
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]


def _check_new_heads(missing: list[str], skeleton: Model, tensors: dict[str, Tensor], file: Path) -> None:
    """Raise UserError, before memory is allocated, if config.json makes the missing heads far larger than the weights."""
    values = skeleton.state_dict()
    new = sum(values[name].numel() for name in missing)
    stored = sum(value.numel() for value in tensors.values())
    if new > max(MAX_NEW_PARAMETERS, 2 * stored):
        raise UserError(
            f"{file}: {', '.join(missing)} would have {new:,} parameters, but the weights have only {stored:,}",
            expected="the config.json that was saved with the weights",
        )


def _untie_if_different(config: ModelConfig, tensors: dict[str, Tensor]) -> ModelConfig:
    """Set `tie` to False if the folder has different matrices for embedding and logits.

    transformers 5 writes `tie_word_embeddings: true` for every T5 v1.1, which is not tied.
    """
    family = FAMILIES[config.family]
    for head, names in family.heads.items():
        if config.tie and HEADS[head].reads == "vocabulary" and f"heads.{head}.decoder" in names:
            decoder = tensors.get(hf_tensor_names(family, f"heads.{head}.decoder.weight")[0])
            embedding = tensors.get(hf_tensor_names(family, "encoder.embeddings.tokens.weight")[0])
            if decoder is None or embedding is None:
                continue
            if decoder.shape != embedding.shape or not torch.equal(decoder, embedding.to(decoder.dtype)):
                return change(config, tie=False)
    return config


def _modern_names(tensors: dict[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Rename tensors to the current names: LayerNorms of 2018 have gamma and beta, and bare models have no prefix."""
    bare = not any(key.startswith(family.prefix) for key in tensors)
    renamed = {}
    for key, value in tensors.items():
        key = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key))
        renamed[family.prefix + key if bare else key] = value
    return renamed


def _head_parameters(head: str, config: ModelConfig) -> list[str]:
    with torch.device("meta"):
        return [f"heads.{head}.{key}" for key, _ in HEADS[head].build(config).named_parameters()]


def _find_architecture(
    tensors: dict[str, Tensor], config: ModelConfig, raw: dict[str, Any]
) -> tuple[str, tuple[str, ...]]:
    """Return the first transformers class whose tensors are all in the folder, and its heads.

    Google's files contain more heads than the class in `architectures` has. Only task heads must be declared there,
    because classifier, tagger and multiple choice share tensor names.
    """
    family = FAMILIES[config.family]
    for architecture, heads in family.architectures.items():
        if any(HEADS[head].declared for head in heads) and architecture != declared(raw):
            continue
        parameters = [name for head in heads for name in _head_parameters(head, config)]
        names = [key for name in parameters for key in hf_tensor_names(family, name, config, architecture)]
        if heads and not names and declared(raw) not in ("", architecture):
            continue  # a head without tensors is present only if it is declared
        if all(key in tensors for key in names):
            return architecture, tuple(with_dependencies(heads))
    return "", ()
