"""Imports point in one direction, and the command line responds before any heavy import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from unmask.registry import TASKS

ROOT = Path(__file__).parents[1] / "unmask"
BASE = {
    "errors",
    "files",
    "json_checks",
    "numeric",
    "console",
    "stopping",
    "registry",
    "recipe",
    "sections",
    "settings",
    "seeds",
    "batch",
    "hub",
    "protobuf",
    "metrics",
    "renamed",
    "task_recipe",
}
DATA = {"text", "labels", "model"}
ALLOWED_IMPORTS = {
    "text": BASE,
    "labels": BASE | {"text"},
    "model": BASE | {"text"},
    "objectives": BASE | DATA,
    "tasks": BASE | DATA | {"objectives"},
    "train": BASE | DATA | {"objectives"},
    "inference": BASE | DATA | {"objectives", "tasks", "train"},
    "exporting": BASE | DATA | {"objectives", "tasks", "inference"},
    "runs": BASE | DATA | {"objectives", "tasks", "train", "inference"},
    "report": BASE | DATA | {"tasks", "train", "runs"},
    "server": BASE | DATA | {"objectives", "tasks", "inference", "runs", "report", "train"},
    "api": BASE | DATA | {"objectives", "tasks", "train", "inference", "exporting", "runs", "report"},
    "api_learn": BASE | {"runs", "train", "report", "api"},
    "cli": BASE | DATA | {"tasks", "train", "inference", "exporting", "report", "server", "api", "api_learn"},
    **dict.fromkeys(BASE, BASE),
}
# Imports that still point the wrong way. This list may only shrink.
KNOWN: dict[str, set[str]] = {}


# Where task names may occur: their packages, the registry, settings, public methods of Predictor, HTTP routes, names of heads.
MAY_NAME_TASKS = (
    "tasks/", "registry.py", "task_recipe.py", "renamed.py", "inference/task_methods.py", "inference/methods.py", "server/routes/", "model/"
)  # fmt: skip
# The same words with another meaning: a command, a column of a file, a key of a result, the recipe of a demonstration.
OTHER_MEANING = {
    "cli/searching.py": {"rank"},
    "cli/show/answers.py": {"answer"},
    "inference/filling.py": {"answer"},
    "inference/search.py": {"rank"},
    "labels/formats/conll.py": {"tag"},
    "labels/formats/entity_tables.py": {"tag"},
    "runs/quickstart.py": {"classify", "unmask.tasks.classify.few_labels"},
    "text/columns.py": {"answer"},
}
# Files that still refer to a task by its name, or read its state. This list may only shrink.
KNOWN_NAMES: dict[str, set[str]] = {}


def imports(path: Path) -> set[str]:
    """Return the parts of unmask that a file imports, at the top or inside functions."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "unmask":
            parts = node.module.split(".")
            imported |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {a.name.split(".")[1] for a in node.names if a.name.startswith("unmask.")}
    return imported - {"__version__"}


@pytest.mark.parametrize("part", sorted(ALLOWED_IMPORTS))
def test_imports_follow_the_layers(part: str) -> None:
    files = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").exists() else sorted((ROOT / part).rglob("*.py"))
    assert files
    for file in files:
        wrong = imports(file) - ALLOWED_IMPORTS[part] - {part} - KNOWN.get(str(file.relative_to(ROOT)), set())
        assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


def test_known_exceptions_are_still_needed() -> None:
    for name, parts in KNOWN.items():
        assert parts <= imports(ROOT / name), f"{name} no longer imports {sorted(parts)}: take it off the list"


def task_names(path: Path) -> set[str]:
    """Return task names in a file, modules of single tasks that it imports, and ".task_state" if it accesses that."""
    names_found: set[str] = set()
    names = set(TASKS.names())
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
            names_found.add(node.value)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            parts = [(module, module.split(".")) for module in modules]
            names_found |= {module for module, p in parts if p[:2] == ["unmask", "tasks"] and names & set(p[2:3])}
            if isinstance(node, ast.ImportFrom) and node.module == "unmask.tasks":
                names_found |= {f"unmask.tasks.{alias.name}" for alias in node.names if alias.name in names}
        elif isinstance(node, ast.Subscript | ast.Attribute) and getattr(node.value, "attr", "") == "task_state":
            names_found.add(".task_state")
    return names_found


def test_code_does_not_refer_to_tasks_by_name() -> None:
    for file in sorted(ROOT.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith(MAY_NAME_TASKS):
            allowed = OTHER_MEANING.get(name, set()) | KNOWN_NAMES.get(name, set())
            wrong = task_names(file) - allowed
            assert not wrong, f"{name} names {sorted(wrong)}: read the task's spec (unmask/tasks/spec.py)"


def test_listed_exceptions_are_still_needed() -> None:
    for name, names in {**OTHER_MEANING, **KNOWN_NAMES}.items():
        obsolete = names - task_names(ROOT / name) if (ROOT / name).exists() else names
        assert not obsolete, f"{name} no longer names {sorted(obsolete)}: take it off the list"


def test_every_package_is_in_the_import_table() -> None:
    parts = {p.stem if p.is_file() else p.name for p in ROOT.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert parts - {"__init__", "__main__", "__pycache__", "recipes"} == set(ALLOWED_IMPORTS)


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [(["--help"], ("torch", "numpy", "pydantic", "pyarrow")), (["pretrain", "--help"], ("torch", "numpy", "pyarrow"))],
)
def test_help_does_not_import_heavy_packages(arguments: list[str], heavy: tuple[str, ...]) -> None:
    """A command whose flags come from the recipe imports pydantic, but only when it is called."""
    code = (
        f"import sys; sys.argv = ['unmask', *{arguments}]; from unmask.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pretrain" in out
    assert out.strip().endswith("[]")


@pytest.mark.parametrize("module", ["pretrain", "finetune", "lifecycle", "loops"])
def test_training_does_not_import_later_layers(module: str) -> None:
    """Runs import inference only after training or for a teacher, and never report and server."""
    code = f"import sys, unmask.runs.{module}; print(sorted({{m.split('.')[1] for m in sys.modules if m.startswith('unmask.')}}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'train'" in out and not {"inference", "server", "report", "exporting", "api"} & set(ast.literal_eval(out))


def test_every_command_has_examples() -> None:
    from typer.main import get_command

    from unmask.cli import app

    def leaf_commands(command, path=()):
        if hasattr(command, "commands"):
            for name, child in command.commands.items():
                yield from leaf_commands(child, (*path, name))
        else:
            yield " ".join(path), command

    commands = dict(leaf_commands(get_command(app)))
    assert {"pretrain", "fill", "next-sentence", "score", "prepare", "tokenizer train", "cache prune"} <= set(commands)
    for name, command in commands.items():
        assert f"Examples:\n  unmask {name}" in (command.help or ""), name


def test_file_names_are_valid_on_windows() -> None:
    devices = {"aux", "con", "nul", "prn"}
    files = [*ROOT.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]
    assert len(files) > 100 and not [p for p in files if p.stem.lower() in devices]


def test_no_module_hides_a_public_function() -> None:
    """A module `unmask.predict` would hide the function of that name once it is imported."""
    import unmask

    parts = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert not parts & set(unmask._API)


def test_only_one_module_writes_files() -> None:
    write_calls = ("os.replace(", "os.rename(", ".rename(", "fsync(", "mkdtemp(", "NamedTemporaryFile(", "partial.replace(",
           ".write_text(", ".write_bytes(")  # fmt: skip
    for path in sorted(ROOT.rglob("*.py")):
        code = "\n".join(line for line in path.read_text("utf-8").split("\n") if ">>>" not in line)
        calls = [name for name in write_calls if name in code]
        assert not calls or path == ROOT / "files.py", f"{path.relative_to(ROOT)} has {calls}: see files.py"


# Files and functions that are still too large: number of lines or parameters. This list may only shrink.
KNOWN_LARGE: dict[str, int] = {}


def oversized() -> dict[str, int]:
    """Return files of more than 350 lines, functions of more than 60, and, as "name()", functions of more than 8 parameters."""
    sizes = {}
    for path in sorted(ROOT.rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        if text.count("\n") > 350:
            sizes[name] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 60:
                    sizes[f"{name}:{node.name}"] = lines
                parameters = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                count = sum(a.arg not in ("self", "cls") for a in parameters)
                if count > 8 and not name.startswith(("cli/", "api.py", "api_learn.py")) and node.name != "forward":
                    sizes[f"{name}:{node.name}()"] = count
    return sizes


def test_files_and_functions_stay_small() -> None:
    sizes = oversized()
    assert {name: size for name, size in sizes.items() if size > KNOWN_LARGE.get(name, 0)} == {}
    obsolete = set(KNOWN_LARGE) - set(sizes)
    assert not obsolete, f"no longer large: take {sorted(obsolete)} off the list"
