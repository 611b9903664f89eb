"""Dependencies point one way, and the command line answers before anything heavy is imported."""

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
MAY = {
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
    "cli": BASE | DATA | {"tasks", "train", "inference", "exporting", "report", "server", "api"},
    **dict.fromkeys(BASE, BASE),
}
# Imports that still point the wrong way. This list may only shrink.
KNOWN: dict[str, set[str]] = {}


# Where a task's name may stand: its own package, the registry, settings, public methods of a Predictor, routes of clients, names of heads.
MAY_NAME_TASKS = (
    "tasks/", "registry.py", "task_recipe.py", "renamed.py", "inference/task_methods.py", "inference/methods.py", "server/routes/", "model/"
)  # fmt: skip
# The same words with another meaning: a command, a column of a file, a key of an answer, the recipe of a demonstration.
OTHER_MEANING = {
    "cli/searching.py": {"rank"},
    "cli/show/answers.py": {"answer"},
    "inference/filling.py": {"answer"},
    "inference/search.py": {"rank"},
    "labels/formats/conll.py": {"tag"},
    "labels/formats/entity_tables.py": {"tag"},
    "runs/quickstart.py": {"classify", "unmask.tasks.classify.linear", "unmask.tasks.classify.targets"},
    "text/columns.py": {"answer"},
}
# Places that still ask for a task by its name, or read what it has learnt. This list may only shrink.
KNOWN_NAMES: dict[str, set[str]] = {}


def imports(path: Path) -> set[str]:
    """Parts of unmask that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "unmask":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("unmask.")}
    return found - {"__version__"}


@pytest.mark.parametrize("part", sorted(MAY))
def test_dependencies_point_one_way(part: str) -> None:
    files = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").exists() else sorted((ROOT / part).rglob("*.py"))
    assert files
    for file in files:
        wrong = imports(file) - MAY[part] - {part} - KNOWN.get(str(file.relative_to(ROOT)), set())
        assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


def test_known_exceptions_are_still_needed() -> None:
    for name, parts in KNOWN.items():
        assert parts <= imports(ROOT / name), f"{name} no longer imports {sorted(parts)}: take it off the list"


def task_names(path: Path) -> set[str]:
    """Names of tasks that a file spells out, modules of single tasks that it imports, and ".task_state" where it looks into that."""
    found: set[str] = set()
    names = set(TASKS.names())
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
            found.add(node.value)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            parts = [(module, module.split(".")) for module in modules]
            found |= {module for module, p in parts if p[:2] == ["unmask", "tasks"] and names & set(p[2:3])}
            if isinstance(node, ast.ImportFrom) and node.module == "unmask.tasks":
                found |= {f"unmask.tasks.{alias.name}" for alias in node.names if alias.name in names}
        elif isinstance(node, ast.Subscript | ast.Attribute) and getattr(node.value, "attr", "") == "task_state":
            found.add(".task_state")
    return found


def test_nobody_asks_for_a_task_by_its_name() -> None:
    for file in sorted(ROOT.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith(MAY_NAME_TASKS):
            allowed = OTHER_MEANING.get(name, set()) | KNOWN_NAMES.get(name, set())
            wrong = task_names(file) - allowed
            assert not wrong, f"{name} names {sorted(wrong)}: read the task's spec (unmask/tasks/spec.py)"


def test_known_names_are_still_there() -> None:
    for name, names in {**OTHER_MEANING, **KNOWN_NAMES}.items():
        gone = names - task_names(ROOT / name) if (ROOT / name).exists() else names
        assert not gone, f"{name} no longer names {sorted(gone)}: take it off the list"


def test_every_part_is_in_the_table() -> None:
    parts = {p.stem if p.is_file() else p.name for p in ROOT.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert parts - {"__init__", "__main__", "__pycache__", "recipes"} == set(MAY)


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [(["--help"], ("torch", "numpy", "pydantic", "pyarrow")), (["pretrain", "--help"], ("torch", "numpy", "pyarrow"))],
)
def test_help_is_light(arguments: list[str], heavy: tuple[str, ...]) -> None:
    """A verb whose flags are made of the recipe imports pydantic, and only when that verb is asked."""
    code = (
        f"import sys; sys.argv = ['unmask', *{arguments}]; from unmask.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pretrain" in out
    assert out.strip().endswith("[]")


@pytest.mark.parametrize("module", ["pretrain", "finetune", "lifecycle", "loops"])
def test_training_imports_nothing_that_comes_after_it(module: str) -> None:
    """A run reaches inference when it has ended, or for a teacher; report and server never."""
    code = f"import sys, unmask.runs.{module}; print(sorted({{m.split('.')[1] for m in sys.modules if m.startswith('unmask.')}}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'train'" in out and not {"inference", "server", "report", "exporting", "api"} & set(ast.literal_eval(out))


def test_every_verb_has_worked_examples() -> None:
    from typer.main import get_command

    from unmask.cli import app

    def verbs(command, path=()):
        if hasattr(command, "commands"):
            for name, child in command.commands.items():
                yield from verbs(child, (*path, name))
        else:
            yield " ".join(path), command

    found = dict(verbs(get_command(app)))
    assert {"pretrain", "fill", "next-sentence", "score", "prepare", "tokenizer train", "cache prune"} <= set(found)
    for name, command in found.items():
        assert f"Examples:\n  unmask {name}" in (command.help or ""), name


def test_every_file_can_exist_on_windows() -> None:
    devices = {"aux", "con", "nul", "prn"}
    files = [*ROOT.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]
    assert len(files) > 100 and not [p for p in files if p.stem.lower() in devices]


def test_no_package_hides_a_public_function() -> None:
    """Importing `unmask.inference.x` would make `unmask.predict` a module instead of the function of that name."""
    import unmask

    parts = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert not parts & set(unmask._API)


def test_one_module_writes_whole_or_nothing() -> None:
    own = ("os.replace(", "os.rename(", ".rename(", "fsync(", "mkdtemp(", "NamedTemporaryFile(", "partial.replace(",
           ".write_text(", ".write_bytes(")  # fmt: skip
    for path in sorted(ROOT.rglob("*.py")):
        code = "\n".join(line for line in path.read_text("utf-8").split("\n") if ">>>" not in line)
        found = [name for name in own if name in code]
        assert not found or path == ROOT / "files.py", f"{path.relative_to(ROOT)} has {found}: see files.py"


# What is still too large: files by their lines, functions by lines and parameters. This list may only shrink.
KNOWN_LARGE: dict[str, int] = {}


def large() -> dict[str, int]:
    """Files of more than 350 lines, functions of more than 60, and, as "name()", those of more than 8 parameters."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        if text.count("\n") > 350:
            found[name] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 60:
                    found[f"{name}:{node.name}"] = lines
                given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                count = sum(a.arg not in ("self", "cls") for a in given)
                if count > 8 and not name.startswith(("cli/", "api.py")) and node.name != "forward":
                    found[f"{name}:{node.name}()"] = count
    return found


def test_files_and_functions_are_small() -> None:
    found = large()
    assert {name: size for name, size in found.items() if size > KNOWN_LARGE.get(name, 0)} == {}
    gone = set(KNOWN_LARGE) - set(found)
    assert not gone, f"no longer large: take {sorted(gone)} off the list"
