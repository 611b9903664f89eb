"""Terminal output of presets, config and env."""

from importlib.util import find_spec
from typing import Any, get_args, get_origin

import yaml
from rich.console import RenderableType

from unmask.console import make_table
from unmask.errors import UserError, nearest
from unmask.recipe import Recipe
from unmask.settings import Dumper, Section, Setting, settings_of
from unmask.text.cache import cache_dir

# Extra of the package → a module that it installs.
EXTRAS = {
    "serve": "granian", "onnx": "onnxruntime", "export": "onnxscript", "explain": "captum", "search": "faiss", "tune": "optuna",
    "track": "tensorboard",
}  # fmt: skip


def presets_table(catalog: dict[str, Any]) -> list[RenderableType]:
    table = make_table("preset", "layers>", "hidden>", "heads>", "tokenizer", "objective")
    for name, p in catalog["presets"].items():
        layers = f"{p['layers']} + {p['decoder_layers']}" if p["decoder_layers"] else str(p["layers"])
        table.add_row(name, layers, f"{p['hidden']:,}", str(p["heads"]), p["tokenizer"], p["objective"])
    return [
        table,
        f"\nobjectives: {', '.join(catalog['objectives'])}; join them with +, e.g. mlm+nsp",
        f"tasks: {', '.join(catalog['tasks'])}",
        "\nunmask pretrain CORPUS --preset bert-mini --objective mlm+nsp --minutes 5",
    ]


def commented_recipe(recipe: Recipe, section: str = "") -> str:
    """Format the recipe as YAML, each key with its meaning, choices and flag. `--recipe` reads it back."""
    names = list(dict.fromkeys(s.path.rpartition(".")[0] for s in settings_of(Recipe)))
    if section and section not in names:
        known = [name for name in names if name]
        raise UserError(f"no section {section!r}{nearest(section, known)}", expected=", ".join(known))
    lines: list[str] = []
    _write_section(recipe, type(recipe), "", section, lines)
    return "\n".join(lines)


def _write_section(values: Any, kind: type[Section], path: str, only: str, lines: list[str]) -> None:
    indent = "  " * path.count(".")
    for setting in settings_of(kind, path):
        key = setting.path.removeprefix(path)
        if "." not in key and (not only or only == path.rstrip(".")):
            lines += [f"{indent}# {line}" for line in _comment(setting)]
            lines.append(f"{indent}{key}: {_flow(getattr(values, key))}")
    for name in kind.model_fields:
        inner = kind.section(name)
        inside = f"{path}{name}"
        if inner and (not only or only == inside or only.startswith(f"{inside}.") or inside.startswith(f"{only}.")):
            lines += ["", f"{indent}# {(inner.__doc__ or '').splitlines()[0]}", f"{indent}{name}:"]
            _write_section(getattr(values, name), inner, f"{inside}.", only, lines)


def _flow(value: Any) -> str:
    text = yaml.dump(value, Dumper=Dumper, allow_unicode=True, default_flow_style=True, width=10_000)
    return text.removesuffix("\n...\n").strip()


def _comment(setting: Setting) -> list[str]:
    choices = [
        str(c) for kind in setting.kinds if get_origin(kind) is not None for c in get_args(kind) if isinstance(c, str)
    ]
    if choices and bool in setting.kinds:
        choices = ["true", "false", *choices]
    parts = [setting.help]
    if setting.stands_for:
        parts.append(f"{_flow(setting.field.default)}: {setting.stands_for}.")
    if choices:
        parts.append(f"[{'|'.join(choices)}]")
    if setting.commands:
        parts.append(f"({setting.option})")
    return [" ".join(parts)]


def env_facts(env: dict[str, Any]) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {version}" for name, version in env["versions"].items() if version)
    installed = [name for name, module in EXTRAS.items() if find_spec(module)]
    missing = [name for name in EXTRAS if name not in installed]
    return [
        ("python", f"{env['python']} on {env['platform']}"),
        ("packages", versions),
        ("cpu", f"{env['cpu']}, {env['cores']} cores, {env['threads']} torch threads, {env['capability']}"),
        ("gpu", env["cuda"] or "none"),
        ("extras", f"installed: {', '.join(installed) or 'none'}; missing: {', '.join(missing) or 'none'}"),
        ("cache", str(cache_dir())),
    ]
