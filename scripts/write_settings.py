"""Generate files from the recipe's fields: the reference page, and the package's signatures for editors.

python scripts/write_settings.py            # after a setting was added or changed: make settings
python scripts/write_settings.py --check    # exit code 1 if a file is not up to date
"""

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import unmask
from unmask.recipe import Recipe
from unmask.settings import Section, Setting, settings_of

ROOT = Path(__file__).parents[1]
NOTE = "made by scripts/write_settings.py (`make settings`): do not edit"


def type_name(kind: Any) -> str:
    """Return a type in source syntax."""
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(type_name, get_args(kind)))
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(json.dumps, get_args(kind)))}]"
    if get_origin(kind):
        return f"{get_origin(kind).__name__}[{', '.join(map(type_name, get_args(kind)))}]"
    return "None" if kind is NoneType else kind.__name__


def stub() -> str:
    """Return the package's stub file: the functions of `api.py`, with one parameter per setting."""
    source = "\n".join((ROOT / "unmask" / f"{name}.py").read_text("utf-8") for name in ("api", "api_learn"))
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    body = "\n".join(function(functions[name], source) for name in unmask.__all__ if name in functions)
    modules = {"typing": {"Literal"}}
    checking = [node for outer in tree.body if isinstance(outer, ast.If) for node in outer.body]
    for node in (*tree.body, *checking):
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "unmask.api":
            modules.setdefault(node.module, set()).update(alias.name for alias in node.names)
    words = set(re.findall(r"\w+", body))
    imports = {
        module: sorted(names & words)
        for module, names in sorted(modules.items())
        if names & words and module != "unmask.api"
    }
    lines = [f"from {module} import {', '.join(names)}" for module, names in imports.items()]
    lines.append("from unmask.errors import UserError as UserError")
    ours = sorted(line for line in lines if line.startswith("from unmask"))
    others = [line for line in lines if line not in ours]
    return "\n".join([f"# {NOTE}", *others, "", *ours, "", "__version__: str", "", body])


def function(node: ast.FunctionDef, source: str) -> str:
    """Return the stub of a function: one parameter per line, with its default, and the first line of its docstring."""
    shown = inspect.signature(getattr(unmask, node.name)).parameters
    arguments = node.args
    own = {a.arg: a for a in (*arguments.args, *arguments.kwonlyargs)}
    defaults = dict(zip(reversed(arguments.args), reversed(arguments.defaults), strict=False))
    defaults |= {a: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d}
    lines = []
    for name, parameter in shown.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "    *," not in lines:
            lines.append("    *,")
        if name in own:
            default = defaults.get(own[name])
            text = ast.get_source_segment(source, own[name])
            lines.append(f"    {text}{f' = {ast.get_source_segment(source, default)}' if default else ''},")
        elif parameter.kind is parameter.VAR_KEYWORD:
            lines.append(f"    **{name}: Any,")
        else:
            lines.append(f"    {name}: {type_name(parameter.annotation)} = None,")
    returns = ast.unparse(node.returns).strip("'") if node.returns else "Any"
    inner = "\n" + "\n".join(lines) + "\n" if lines else ""
    about = (ast.get_docstring(node) or "").split("\n")[0]
    return f'def {node.name}({inner}) -> {returns}:\n    """{about}"""\n'


def accepted_values(setting: Setting) -> str:
    """Return the values of a setting: the name of its type, or its choices."""
    words = {int: "integer", float: "number", str: "text", bool: "true, false", NoneType: "null"}
    words |= {list: "list", tuple: "pair", dict: "mapping"}
    shown = []
    for kind in setting.kinds:
        choices = [f"`{choice}`" for choice in get_args(kind)] if get_origin(kind) is Literal else None
        shown += choices or [words[get_origin(kind) or kind]]
    return ", ".join(shown)


def flags(setting: Setting) -> str:
    if not setting.commands:
        return ""
    python = "" if setting.option == f"--{setting.keyword.replace('_', '-')}" else f"; Python: `{setting.keyword}`"
    return f"`{setting.option}` ({', '.join(setting.commands)}){python}"


def table(section: type[Section], path: str) -> list[str]:
    lines = ["| setting | default | values | flag | |", "|---|---|---|---|---|"]
    for setting in settings_of(section, path):
        if setting.path.count(".") > path.count("."):
            continue  # belongs to a subsection
        default = json.dumps(setting.field.default, ensure_ascii=False)
        meaning = f" ({setting.stands_for})" if setting.stands_for else ""
        cells = (
            f"`{setting.path}`",
            f"`{default}`{meaning}",
            accepted_values(setting),
            flags(setting),
            setting.help.replace("|", "\\|"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def sections(root: type[Section], path: str = "") -> list[str]:
    lines: list[str] = []
    for name in root.model_fields:
        if inner := root.section(name):
            about = (inner.__doc__ or "").split("\n")[0]
            lines += ["", f"## {path}{name}", "", about, "", *table(inner, f"{path}{name}.")]
            lines += sections(inner, f"{path}{name}.")
    return lines


def page() -> str:
    lines = [
        f"<!-- {NOTE} -->",
        "# Recipe reference",
        "",
        "A recipe is a YAML file (`--recipe FILE`) with the settings of a run. `--set section.field=value` overrides any setting. The most common",
        "settings also have a flag, and a Python keyword argument of the same name. Flags take precedence over the file, and `--set` over flags.",
        "Some defaults differ in fine-tuning: [`finetune.yaml`](../unmask/recipes/finetune.yaml). The settings of a third-party task are in `task.NAME`.",
        "",
        *table(Recipe, ""),
        *sections(Recipe),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    files = {
        ROOT / "unmask" / "__init__.pyi": stub(),
        ROOT / "docs" / "recipe.md": page(),
    }
    check = "--check" in sys.argv
    old = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in old:
        print(
            f"{path.relative_to(ROOT)} is not up to date: make settings" if check else f"wrote {path.relative_to(ROOT)}"
        )
        if not check:
            path.write_text(files[path], "utf-8")
    return 1 if old and check else 0


if __name__ == "__main__":
    sys.exit(main())
