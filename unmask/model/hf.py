"""The folder format, which is Hugging Face's: config.json and model.safetensors, under the names transformers uses.

A family's file says which config.json key is which ModelConfig field, and which tensor there is which parameter here;
this reads it in both directions. Saving writes the class that opens the folder into `architectures`; heads for which
that class has no place go into heads.safetensors.
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
from unmask.files import is_there, read_object, write_json
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
LARGEST_NEW = 10**8  # parameters of heads that a folder lacks, at most, unless its weights have more
GENERATOR = "generator"  # the head that is a model, and its folder


class SavableTokenizer(Protocol):
    """What `save` asks of a tokenizer."""

    def save(self, folder: Path, *, segments: bool, max_length: int) -> Any: ...


def save(
    model: Model, folder: str | Path, tokenizer: SavableTokenizer | None = None, extra: dict[str, Any] | None = None
) -> str:
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
            if name.split(".")[1] != GENERATOR:
                beside[name] = value
            continue
        targets = hf_tensor_names(family, name, config, architecture)
        for target, part in zip(targets, value.chunk(len(targets)), strict=True):
            # safetensors refuses views of one storage
            placed[target] = part.t().contiguous().clone() if _is_transposed(family, name) else part.clone()
        if name in family.copies and not config.tie:
            placed[family.copies[name]] = value.clone()
    if architecture.endswith("Model") and not architecture.endswith("HeadModel"):
        placed = {name.removeprefix(family.prefix): value for name, value in placed.items()}

    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"architectures": [architecture], "model_type": config.family}
    if GENERATOR in model.heads:
        settings["generator_size"] = config.generator
    settings["dtype"] = str(model.embedding.dtype).removeprefix("torch.")
    settings |= write_config(config, architecture, model.heads) | (extra or {})
    write_json(folder / "config.json", settings, indent=2, sort_keys=True)
    save_file(placed, folder / "model.safetensors", {"format": "pt"})
    if beside:
        save_file(beside, folder / HEADS_FILE, {"format": "pt", "version": HEADS_VERSION})
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
    settings = read_settings(folder)
    found_config = read_config(settings, settings_file(folder))
    family = FAMILIES[found_config.family]
    if not has_weights(folder):
        folder = resolve(name, PATTERNS + OLD_PATTERNS)
    tensors = _modern_names(read_weights(folder), family)

    check_sizes(found_config, tensors, settings_file(folder))
    found_config = _untied(found_config, tensors)
    config = change(found_config, **(changes or {}))
    architecture, found = _heads_in(tensors, found_config, settings)
    beside = read_tensors(folder / HEADS_FILE) if is_there(folder / HEADS_FILE) else {}
    stored = {key.split(".")[1] for key in beside if key.startswith("heads.")} & set(HEADS)
    generator = folder / GENERATOR
    if generator.is_dir():
        stored.add(GENERATOR)
    wanted = [*found, *stored] if heads is None else list(heads)
    with torch.device("meta"):  # no memory is asked for until the shapes are known to be those of the files
        shape = Model(config, wanted)
    if GENERATOR in shape.heads and generator.is_dir():
        inside = load(generator, heads=["mlm"]).model.state_dict()
        beside |= {f"heads.{GENERATOR}.{key}": value for key, value in inside.items()}

    sources = _sources(shape, tensors, architecture, found)
    state, missing = _state(shape, sources, tensors, beside, folder)
    _check_new(missing, shape, tensors, settings_file(folder))
    model = Model(config, wanted)
    model.load_state_dict(state, strict=False)
    model.init(seed, only=missing)
    model.generation = read_generation(folder, settings)
    read = {key for keys in sources.values() for key in keys}
    for parameter in (name for head in found for name in _head_names(head, found_config)):
        read.update(hf_tensor_names(family, parameter, found_config, architecture))
    unexpected = [key for key in tensors if key not in read and not re.fullmatch(family.ignored, key)]
    unexpected += [key for key in beside if key.split(".")[1:2] and key.split(".")[1] not in HEADS]
    return Loaded(model.eval(), missing, sorted(unexpected), folder, settings)


def _sources(
    shape: Model, tensors: dict[str, Tensor], architecture: str, found: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Parameter → names of the tensors that it is made of; none for heads that the class lacks."""
    config, family = shape.config, FAMILIES[shape.config.family]
    sources: dict[str, tuple[str, ...]] = {}
    for name in shape.state_dict():
        if name in TIED:
            continue  # read under the model's own name
        if name.startswith("heads.") and name.split(".")[1] not in found:
            sources[name] = ()
        elif not config.tie and family.copies.get(name) in tensors:
            sources[name] = (family.copies[name],)
        else:
            sources[name] = hf_tensor_names(family, name, config, architecture)
    return sources


def _state(
    shape: Model,
    sources: dict[str, tuple[str, ...]],
    tensors: dict[str, Tensor],
    beside: dict[str, Tensor],
    folder: Path,
) -> tuple[dict[str, Tensor], list[str]]:
    """The values of the parameters, and the parameters of heads that have none; UserError where another one has none."""
    empty, family = shape.state_dict(), FAMILIES[shape.config.family]
    drawn = {key for key, _ in shape.named_parameters()}  # BART's bias is a buffer: without a file it is 0
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for name, keys in sources.items():
        value = (
            _concatenate([tensors.get(key) for key in keys], _is_transposed(family, name)) if keys else beside.get(name)
        )
        if value is not None and value.shape == empty[name].shape:
            state[name] = value.to(empty[name].dtype)
            check_finite(name if name.startswith("heads.") else " + ".join(keys), state[name], folder)
        elif name.startswith("heads."):
            missing += [name] if name in drawn else []
        else:
            held = all(key in tensors for key in keys)
            got = f"has shape {tuple(value.shape)}" if value is not None else "has another shape"
            raise UserError(
                f"{folder}: {' + '.join(keys)} {got if held else 'is not there'}",
                expected=f"shape {tuple(empty[name].shape)}, as config.json says",
            )
    return state, missing


def hf_tensor_names(
    family: Family, name: str, config: ModelConfig | None = None, architecture: str = ""
) -> tuple[str, ...]:
    """A parameter's name here → its tensors' names in transformers, in that class where classes differ.

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
    """The config of a model folder or hub name, without its weights."""
    file = resolve(name, PATTERNS) / "config.json"
    return read_config(read_object(file), file) if file.is_file() else load(name, heads=()).config


def _is_transposed(family: Family, name: str) -> bool:
    """Whether the matrix lies on its side in the folder, as GPT's do."""
    return name.endswith(tuple(f"{end}.weight" for end in family.transposed)) and not name.startswith("heads.")


def _concatenate(parts: list[Tensor | None], lies: bool) -> Tensor | None:
    """The tensors of a parameter, one below the other; None where one is not there, or they do not fit together."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or any(part.dim() != 2 for part in found if lies):
        return None
    found = [part.t() if lies else part for part in found]
    if len(found) > 1 and len({(part.dim(), part.shape[1:]) for part in found if part.dim()}) != 1:
        return None
    return torch.cat(found) if len(found) > 1 else found[0]


def _check_new(missing: list[str], shape: Model, tensors: dict[str, Tensor], file: Path) -> None:
    """Heads that are drawn anew have the size that config.json says: it is compared with the weights before it is allocated."""
    values = shape.state_dict()
    new = sum(values[name].numel() for name in missing)
    known = sum(value.numel() for value in tensors.values())
    if new > max(LARGEST_NEW, 2 * known):
        raise UserError(
            f"{file}: {', '.join(missing)} would have {new:,} parameters, and the weights have {known:,}",
            expected="the config.json that the weights were saved with",
        )


def _untied(config: ModelConfig, tensors: dict[str, Tensor]) -> ModelConfig:
    """Where config.json says that embedding and logits share a matrix, but two are there that differ, they count.

    transformers 5 writes that of every T5 v1.1.
    """
    family = FAMILIES[config.family]
    for head, names in family.heads.items():
        if config.tie and HEADS[head].reads == "vocabulary" and f"heads.{head}.decoder" in names:
            (own,) = hf_tensor_names(family, f"heads.{head}.decoder.weight")
            shared = tensors.get(hf_tensor_names(family, "encoder.embeddings.tokens.weight")[0])
            if own in tensors and shared is not None and not _same(tensors[own], shared):
                return change(config, tie=False)
    return config


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b.to(a.dtype))


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
        return [f"heads.{head}.{key}" for key, _ in HEADS[head].build(config).named_parameters()]


def _heads_in(tensors: dict[str, Tensor], config: ModelConfig, raw: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The first class whose tensors are all there, whatever `architectures` says, and its heads.

    Google's own files hold more than the class they name. Only the heads of tasks must be declared: a classifier, a
    tagger and multiple choice use the same tensor names.
    """
    family = FAMILIES[config.family]
    for architecture, heads in family.architectures.items():
        if any(HEADS[head].declared for head in heads) and architecture != declared(raw):
            continue
        parameters = [name for head in heads for name in _head_names(head, config)]
        names = [key for name in parameters for key in hf_tensor_names(family, name, config, architecture)]
        if heads and not names and declared(raw) not in ("", architecture):
            continue  # a head without tensors of its own is there when it is declared
        if all(key in tensors for key in names):
            return architecture, tuple(with_dependencies(heads))
    return "", ()
