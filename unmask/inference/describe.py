"""What a model folder is, whoever made it: family, size, which heads are there and which are not, its tokenizer."""

from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import path_exists, read_object
from unmask.inference.onnx_engine import OnnxEngine, is_export
from unmask.model import hf
from unmask.model.families import FAMILIES
from unmask.text.tokenizer import Tokenizer

SHAPE = ("layers", "decoder_layers", "hidden", "vocab_size", "max_positions")
SETTINGS = ("config.json", "bert_config.json")  # one of these makes a folder a model's


def is_model(folder: str | Path) -> bool:
    """
    >>> is_model("no-such-folder")
    False
    """
    return any(path_exists(Path(folder) / name) for name in SETTINGS)


def describe(folder: str | Path) -> dict[str, Any]:
    """Everything is read: what this says is there does open."""
    found = _exported(Path(folder)) if is_export(folder) else _trained(folder)
    config, settings = found.pop("config"), found.pop("settings")
    return {
        "kind": "model",
        "path": str(folder),
        "family": config.family,
        "architecture": (settings.get("architectures") or [None])[0],
        **{name: getattr(config, name) for name in SHAPE},
        **found,
        "tokenizer": _tokenizer(folder, config.vocab_size),
    }


def _trained(folder: str | Path) -> dict[str, Any]:
    loaded = hf.load(folder)
    broken = {name.split(".")[1] for name in loaded.missing}
    heads = [name for name in loaded.model.heads if name not in broken]
    known = dict.fromkeys(head for held in FAMILIES[loaded.config.family].architectures.values() for head in held)
    return {
        "config": loaded.config,
        "settings": loaded.settings,
        "parameters": sum(value.numel() for value in loaded.model.parameters()),
        "heads": heads,
        "missing_heads": [name for name in known if name not in heads],
        "unexpected_keys": loaded.unexpected,
    }


def _exported(folder: Path) -> dict[str, Any]:
    engine = OnnxEngine(folder)
    return {
        "config": engine.config,
        "settings": read_object(folder / "config.json"),
        "parameters": engine.about.get("parameters", 0),
        "heads": engine.heads,
        "missing_heads": [],
        "unexpected_keys": [],
        "export": {key: engine.about.get(key) for key in ("format", "precision", "task", "graphs", "validation")},
    }


def _tokenizer(folder: str | Path, most: int) -> dict[str, Any]:
    try:
        t = Tokenizer.load(folder, most)
    except UserError as error:
        return {"error": error.message}
    roles = {"pad": t.pad, "unk": t.unk, "cls": t.cls, "sep": t.sep, "mask": t.mask}
    special = {role: t.token(id) for role, id in roles.items() if id is not None}
    return {"type": t.type, "vocabulary": t.size, "special": special, "notes": t.notes}


def lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) for a terminal."""
    tokenizer = found["tokenizer"]
    if "error" in tokenizer:
        text = f"none: {tokenizer['error']}"
    else:
        text = f"{tokenizer['type']}, {tokenizer['vocabulary']:,} tokens; {' '.join(dict.fromkeys(tokenizer['special'].values()))}"
    depth = f"{found['layers']} + {found['decoder_layers']}" if found["decoder_layers"] else str(found["layers"])
    missing, unread, export = ", ".join(found["missing_heads"]), found["unexpected_keys"], found.get("export")
    out = [
        ("model", found["path"]),
        ("family", found["family"] + (f" ({found['architecture']})" if found["architecture"] else "")),
        ("shape", f"{depth} layers × {found['hidden']}, {found['max_positions']:,} positions"),
        ("parameters", f"{found['parameters']:,}"),
        ("heads", ", ".join(found["heads"]) or "none"),
        ("missing heads", f"{missing} (initialized when needed for fine-tuning)" if missing else "none"),
        ("tokenizer", text),
    ]
    if export:
        files = ", ".join(export["graphs"].values())
        out.insert(1, ("export", f"{files} ({export['precision']}): inference only"))
    out += [("note", note) for note in tokenizer.get("notes", [])]
    if unread:
        names = ", ".join(unread[:6]) + (f" and {len(unread) - 6} more" if len(unread) > 6 else "")
        out.append(("unexpected keys", f"{names}: not used"))
    return out
