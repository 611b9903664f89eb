"""The folder format, which is Hugging Face's: config.json and model.safetensors, under the names transformers uses.

One table per family serves both directions: which config.json key is which ModelConfig field, and which tensor there
is which parameter here. Adding a family is adding its traits (`config.py`) and its table. Saving writes the class that
opens the folder into `architectures`; heads for which that class has no place go into heads.safetensors.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor

from unmask.errors import UserError
from unmask.hub import resolve
from unmask.model.config import FAMILIES, PRESETS, ModelConfig, change
from unmask.model.heads import HEADS
from unmask.model.model import Model, with_needs
from unmask.model.weights import OLD_PATTERNS, PATTERNS, has_weights, read_json, read_tensors, read_weights

HEADS_FILE, HEADS_VERSION = "heads.safetensors", "1"

# Names without .weight and .bias. A tuple: the parameter here is those tensors, one below the other.
Names = dict[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Table:
    base: str  # the preset that gives the values a config.json leaves out
    prefix: str  # before the encoder's names in every class but the bare model
    fields: dict[str, str]  # ModelConfig field → config.json key
    encoder: Names
    heads: dict[str, Names]
    read: Callable[[dict[str, Any]], dict[str, Any]]  # config.json → fields that need more than another name
    write: Callable[[ModelConfig], dict[str, Any]]  # and back
    copies: dict[str, str] = field(default_factory=dict)  # parameter → a second tensor, when embeddings are not tied
    ignored: str = r"(?!)"  # tensors that carry nothing: buffers, and what tying repeats


_COMMON_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "initializer_range": "initializer_range",
    "classifier_dropout": "classifier_dropout",
    "tie": "tie_word_embeddings",
    "pad_id": "pad_token_id",
    "cls_id": "cls_token_id",
    "sep_id": "sep_token_id",
}


def _read_bert(raw: dict[str, Any]) -> dict[str, Any]:
    for key, only in (("is_decoder", False), ("position_embedding_type", "absolute")):
        if raw.get(key, only) != only:
            raise UserError(f"a bert folder with {key}: {raw[key]!r}", valid=f"{key}: {only!r}")
    return {}


def _read_modernbert(raw: dict[str, Any]) -> dict[str, Any]:
    rope = raw.get("rope_parameters") or {}
    thetas = []
    # Folders older than transformers 5 have global_rope_theta and local_rope_theta instead.
    for kind, old, default in (
        ("full_attention", "global_rope_theta", 160_000.0),
        ("sliding_attention", "local_rope_theta", 10_000.0),
    ):
        given = rope.get(kind) or {}
        if given.get("rope_type", "default") != "default" or raw.get("rope_scaling"):
            raise UserError(f"a modernbert folder with rope_type {given.get('rope_type')!r}", valid="default")
        thetas.append(float(given.get("rope_theta", raw.get(old, default))))
    layers = raw.get("num_hidden_layers", PRESETS["modernbert-base"]["layers"])
    every = raw.get("global_attn_every_n_layers", 3)
    if kinds := raw.get("layer_types"):
        fits = [n for n in range(1, layers + 1) if kinds == _layer_types(layers, n)]
        if not fits:
            raise UserError(f"layer_types {kinds}", valid="every n-th layer full_attention, beginning with the first")
        every = fits[0]
    return {"rope_theta": thetas[0], "local_rope_theta": thetas[1], "global_every": every}


def _write_modernbert(config: ModelConfig) -> dict[str, Any]:
    return {
        "bos_token_id": config.cls_id,
        "eos_token_id": config.sep_id,
        "embedding_dropout": config.dropout,
        "layer_types": _layer_types(config.layers, config.global_every),
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": config.rope_theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.local_rope_theta},
        },
    }


def _layer_types(layers: int, every: int) -> list[str]:
    return ["sliding_attention" if i % every else "full_attention" for i in range(layers)]


TABLES: dict[str, Table] = {
    "bert": Table(
        base="bert-base",
        prefix="bert.",
        fields=_COMMON_FIELDS
        | {
            "segments": "type_vocab_size",
            "activation": "hidden_act",
            "dropout": "hidden_dropout_prob",
            "attention_dropout": "attention_probs_dropout_prob",
            "norm_eps": "layer_norm_eps",
        },
        read=_read_bert,
        write=lambda config: {},
        encoder={
            "encoder.embeddings.tokens": "bert.embeddings.word_embeddings",
            "encoder.embeddings.positions": "bert.embeddings.position_embeddings",
            "encoder.embeddings.segments": "bert.embeddings.token_type_embeddings",
            "encoder.embeddings.norm": "bert.embeddings.LayerNorm",
            "encoder.layers.{i}.attention.qkv": (
                "bert.encoder.layer.{i}.attention.self.query",
                "bert.encoder.layer.{i}.attention.self.key",
                "bert.encoder.layer.{i}.attention.self.value",
            ),
            "encoder.layers.{i}.attention.out": "bert.encoder.layer.{i}.attention.output.dense",
            "encoder.layers.{i}.attention_norm": "bert.encoder.layer.{i}.attention.output.LayerNorm",
            "encoder.layers.{i}.mlp.up": "bert.encoder.layer.{i}.intermediate.dense",
            "encoder.layers.{i}.mlp.down": "bert.encoder.layer.{i}.output.dense",
            "encoder.layers.{i}.mlp_norm": "bert.encoder.layer.{i}.output.LayerNorm",
        },
        heads={
            "mlm": {
                "heads.mlm.dense": "cls.predictions.transform.dense",
                "heads.mlm.norm": "cls.predictions.transform.LayerNorm",
                "heads.mlm.decoder": "cls.predictions.decoder",
                "heads.mlm": "cls.predictions",
            },
            "pooler": {"heads.pooler.dense": "bert.pooler.dense"},
            "nsp": {"heads.nsp.out": "cls.seq_relationship"},
            "classify": {"heads.classify.out": "classifier"},
        },
        # Untied, transformers computes with the decoder's bias and leaves cls.predictions.bias beside it, unread.
        copies={"heads.mlm.bias": "cls.predictions.decoder.bias"},
        ignored=r"bert\.embeddings\.(position|token_type)_ids|cls\.predictions\.decoder\.(weight|bias)",
    ),
    "modernbert": Table(
        base="modernbert-base",
        prefix="model.",
        fields=_COMMON_FIELDS
        | {
            "activation": "hidden_activation",
            # transformers has the two other places of `dropout` under other names; see also _write_modernbert.
            "dropout": "mlp_dropout",
            "attention_dropout": "attention_dropout",
            "local_window": "local_attention",
            "norm_eps": "norm_eps",
            "norm_bias": "norm_bias",
            "attention_bias": "attention_bias",
            "mlp_bias": "mlp_bias",
            "pooling": "classifier_pooling",
            "head_activation": "classifier_activation",
            "head_bias": "classifier_bias",
            "decoder_bias": "decoder_bias",
            "init_cutoff": "initializer_cutoff_factor",
        },
        read=_read_modernbert,
        write=_write_modernbert,
        encoder={
            "encoder.embeddings.tokens": "model.embeddings.tok_embeddings",
            "encoder.embeddings.norm": "model.embeddings.norm",
            "encoder.layers.{i}.attention.qkv": "model.layers.{i}.attn.Wqkv",
            "encoder.layers.{i}.attention.out": "model.layers.{i}.attn.Wo",
            "encoder.layers.{i}.attention_norm": "model.layers.{i}.attn_norm",
            "encoder.layers.{i}.mlp.up": "model.layers.{i}.mlp.Wi",
            "encoder.layers.{i}.mlp.down": "model.layers.{i}.mlp.Wo",
            "encoder.layers.{i}.mlp_norm": "model.layers.{i}.mlp_norm",
            "encoder.norm": "model.final_norm",
        },
        heads={
            "mlm": {
                "heads.mlm.dense": "head.dense",
                "heads.mlm.norm": "head.norm",
                "heads.mlm.decoder": "decoder",
                "heads.mlm": "decoder",
            },
            "pooler": {"heads.pooler.dense": "head.dense", "heads.pooler.norm": "head.norm"},
            "classify": {"heads.classify.out": "classifier"},
        },
        ignored=r"decoder\.weight",
    ),
}


class Saves(Protocol):
    """What `save` asks of a tokenizer."""

    def save(self, folder: Path) -> Any: ...


def save(model: Model, folder: str | Path, tokenizer: Saves | None = None, extra: dict[str, Any] | None = None) -> str:
    """Write the model's folder and return the class in transformers that opens it.

    `extra` adds keys to config.json. Files are written one after the other: for an atomic save give a temporary
    folder, and rename it.
    """
    config, table, folder = model.config, TABLES[model.config.family], Path(folder)
    architecture = config.architecture(model.heads)
    held = FAMILIES[config.family].architectures[architecture]
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    placed: dict[str, Tensor] = {}
    beside: dict[str, Tensor] = {}
    for name, value in state.items():
        if name.startswith("heads.") and name.split(".")[1] not in held:
            beside[name] = value
            continue
        targets = there(table, name)
        for target, part in zip(targets, value.chunk(len(targets)), strict=True):
            placed[target] = part.clone()  # safetensors refuses views of one storage
        if name in table.copies and not config.tie:
            placed[table.copies[name]] = value.clone()
    if architecture.endswith("Model"):
        placed = {name.removeprefix(table.prefix): value for name, value in placed.items()}

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
    table = TABLES[config.family]
    if not has_weights(folder):
        folder = resolve(name, PATTERNS + OLD_PATTERNS)
    tensors = _modern_names(read_weights(folder), table)

    found = _heads_in(tensors, found_config, settings)
    beside = read_tensors(folder / HEADS_FILE) if (folder / HEADS_FILE).is_file() else {}
    stored = {key.split(".")[1] for key in beside if key.startswith("heads.")} & set(HEADS)
    model = Model(config, [*found, *stored] if heads is None else heads)

    read: set[str] = set()  # tensors that some parameter is made of
    for head in found:
        read.update(key for parameter in _head_names(head, found_config) for key in there(table, parameter))
    state: dict[str, Tensor] = {}
    missing: list[str] = []
    for parameter, empty in model.state_dict().items():
        in_head = parameter.startswith("heads.")
        if in_head and parameter.split(".")[1] not in found:
            value = beside.get(parameter)
        else:
            sources = there(table, parameter)
            if not config.tie and table.copies.get(parameter) in tensors:
                sources = (table.copies[parameter],)
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
                f"{folder}: {' + '.join(there(table, parameter))} {got}",
                valid=f"shape {tuple(empty.shape)}, as config.json says",
            )
    model.load_state_dict(state, strict=False)
    model.init(seed, only=missing)
    unexpected = [key for key in tensors if key not in read and not re.fullmatch(table.ignored, key)]
    unexpected += [key for key in beside if key.split(".")[1:2] and key.split(".")[1] not in HEADS]
    return Loaded(model.eval(), missing, sorted(unexpected), folder, settings)


def there(table: Table, name: str) -> tuple[str, ...]:
    """A parameter's name here → its tensors' names in transformers.

    >>> there(TABLES["modernbert"], "encoder.layers.3.mlp.up.weight")
    ('model.layers.3.mlp.Wi.weight',)
    """
    stem, _, kind = name.rpartition(".")
    number = re.search(r"\blayers\.(\d+)\.", stem)
    if number:
        stem = stem.replace(number[0], "layers.{i}.")
    rules = table.heads[stem.split(".")[1]] if stem.startswith("heads.") else table.encoder
    targets = rules[stem]
    i = number[1] if number else ""
    return tuple(f"{t.replace('{i}', i)}.{kind}" for t in ((targets,) if isinstance(targets, str) else targets))


def read_config(raw: dict[str, Any]) -> ModelConfig:
    """config.json → ModelConfig. A key that is not there has the value that transformers gives it."""
    family = raw.get("model_type")
    if family not in TABLES:
        raise UserError(f"a folder of the family {family!r} (model_type)", valid=", ".join(TABLES))
    table = TABLES[family]
    values = {name: raw[key] for name, key in table.fields.items() if key in raw} | table.read(raw)
    if "classify" in FAMILIES[family].architectures.get(_declared(raw), ()):
        # transformers leaves two classes with default names out of the file.
        names = raw.get("id2label") or {i: f"LABEL_{i}" for i in range(raw.get("num_labels", 2))}
        values["labels"] = tuple(names[i] for i in sorted(names, key=int))
    return change(ModelConfig(**PRESETS[table.base]), **values)


def write_config(config: ModelConfig) -> dict[str, Any]:
    """ModelConfig → config.json, the inverse of `read_config`.

    >>> write_config(ModelConfig())["hidden_size"]
    768
    """
    table = TABLES[config.family]
    values = {key: getattr(config, name) for name, key in table.fields.items()} | table.write(config)
    if config.labels:
        values["id2label"] = {str(i): label for i, label in enumerate(config.labels)}
        values["label2id"] = {label: i for i, label in enumerate(config.labels)}
    return values


def _declared(raw: dict[str, Any]) -> str:
    return (raw.get("architectures") or [""])[0]


def _modern_names(tensors: dict[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Names as the class with heads has them today: LayerNorms of 2018 said gamma and beta, bare models no prefix."""
    bare = not any(key.startswith(table.prefix) for key in tensors)
    out = {}
    for key, value in tensors.items():
        key = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key))
        out[table.prefix + key if bare else key] = value
    return out


def _head_names(head: str, config: ModelConfig) -> list[str]:
    with torch.device("meta"):
        return [f"heads.{head}.{key}" for key in HEADS[head](config).state_dict()]


def _heads_in(tensors: dict[str, Tensor], config: ModelConfig, raw: dict[str, Any]) -> tuple[str, ...]:
    """The heads of the first class whose tensors are all there, whatever `architectures` says.

    Google's own files hold more than the class they name. Only a classifier must be declared: token classification
    and multiple choice use the same tensor names for something else.
    """
    table = TABLES[config.family]
    for architecture, heads in FAMILIES[config.family].architectures.items():
        if "classify" in heads and architecture != _declared(raw):
            continue
        names = [key for head in heads for name in _head_names(head, config) for key in there(table, name)]
        if all(key in tensors for key in names):
            return tuple(with_needs(heads))
    return ()
