"""Description of a model folder for `unmask info`: architecture, size, available and missing heads, tokenizer."""

from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import path_exists, read_object
from unmask.inference.exported import export_format
from unmask.inference.onnx_engine import OnnxEngine
from unmask.inference.static_engine import StaticEngine
from unmask.model import hf
from unmask.model.families import FAMILIES
from unmask.text.tokenizer import Tokenizer

SHAPE = ("layers", "decoder_layers", "hidden", "vocab_size", "max_positions")
CONFIG_FILES = ("config.json", "bert_config.json")  # a model folder contains one of these


def is_model(folder: str | Path) -> bool:
    """
    >>> is_model("no-such-folder")
    False
    """
    return any(path_exists(Path(folder) / name) for name in CONFIG_FILES)


def describe(folder: str | Path) -> dict[str, Any]:
    """Load everything, so that a damaged folder raises an error instead of being described."""
    describe_format = {"": _describe_model, "onnx": _describe_export, "static": _describe_static}
    facts = describe_format[export_format(folder)](folder)
    config, settings = facts.pop("config"), facts.pop("settings")
    return {
        "kind": "model",
        "path": str(folder),
        "family": config.family,
        "architecture": (settings.get("architectures") or [None])[0],
        **{name: getattr(config, name) for name in SHAPE},
        **facts,
        "tokenizer": _describe_tokenizer(folder, config.vocab_size),
    }


def _describe_model(folder: str | Path) -> dict[str, Any]:
    loaded = hf.load(folder)
    damaged = {name.split(".")[1] for name in loaded.missing}
    heads = [name for name in loaded.model.heads if name not in damaged]
    family_heads = dict.fromkeys(h for heads in FAMILIES[loaded.config.family].architectures.values() for h in heads)
    return {
        "config": loaded.config,
        "settings": loaded.settings,
        "parameters": sum(value.numel() for value in loaded.model.parameters()),
        "heads": heads,
        "missing_heads": [name for name in family_heads if name not in heads],
        "unexpected_keys": loaded.unexpected,
    }


def _describe_export(folder: str | Path) -> dict[str, Any]:
    folder = Path(folder)
    engine = OnnxEngine(folder)
    return {
        "config": engine.config,
        "settings": read_object(folder / "config.json"),
        "parameters": engine.manifest.get("parameters", 0),
        "heads": engine.heads,
        "missing_heads": [],
        "unexpected_keys": [],
        "export": {key: engine.manifest.get(key) for key in ("format", "precision", "task", "graphs", "validation")},
    }


def _describe_static(folder: str | Path) -> dict[str, Any]:
    folder = Path(folder)
    engine = StaticEngine.load(folder)
    return {
        "config": engine.config,
        "settings": read_object(folder / "config.json"),
        "family": "static",
        "parameters": engine.manifest.get("parameters", 0),
        "heads": engine.heads,
        "missing_heads": [],
        "unexpected_keys": [],
        "export": {key: engine.manifest.get(key) for key in ("format", "task", "validation")},
    }


def _describe_tokenizer(folder: str | Path, vocab_size: int) -> dict[str, Any]:
    try:
        t = Tokenizer.load(folder, vocab_size)
    except UserError as error:
        return {"error": error.message}
    roles = {"pad": t.pad, "unk": t.unk, "cls": t.cls, "sep": t.sep, "mask": t.mask}
    special = {role: t.token(id) for role, id in roles.items() if id is not None}
    return {"type": t.type, "vocabulary": t.size, "special": special, "notes": t.notes}


def description_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (label, text) of each line in the terminal."""
    tokenizer = facts["tokenizer"]
    if "error" in tokenizer:
        text = f"none: {tokenizer['error']}"
    else:
        text = f"{tokenizer['type']}, {tokenizer['vocabulary']:,} tokens; {' '.join(dict.fromkeys(tokenizer['special'].values()))}"
    depth = f"{facts['layers']} + {facts['decoder_layers']}" if facts["decoder_layers"] else str(facts["layers"])
    missing, unexpected, export = ", ".join(facts["missing_heads"]), facts["unexpected_keys"], facts.get("export")
    out = [
        ("model", facts["path"]),
        ("family", facts["family"] + (f" ({facts['architecture']})" if facts["architecture"] else "")),
        ("shape", f"{depth} layers × {facts['hidden']}, {facts['max_positions']:,} positions"),
        ("parameters", f"{facts['parameters']:,}"),
        ("heads", ", ".join(facts["heads"]) or "none"),
        ("missing heads", f"{missing} (initialized when needed for fine-tuning)" if missing else "none"),
        ("tokenizer", text),
    ]
    if export and export["format"] == "static":
        out[2] = ("shape", f"one vector of {facts['hidden']} values per token")
        out.insert(1, ("export", f"a static copy for the task {export['task']}: inference only"))
    elif export:
        files = ", ".join(export["graphs"].values())
        out.insert(1, ("export", f"{files} ({export['precision']}): inference only"))
    out += [("note", note) for note in tokenizer.get("notes", [])]
    if unexpected:
        names = ", ".join(unexpected[:6]) + (f" and {len(unexpected) - 6} more" if len(unexpected) > 6 else "")
        out.append(("unexpected keys", f"{names}: not used"))
    return out
