"""A setting is defined once: flags, Python keywords, `--set`, YAML and documentation are derived from a field of the recipe."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unmask.cli.flags import PANELS
from unmask.errors import UserError
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.runs.keywords import make_recipe, task_recipe
from unmask.settings import settings_of

ROOT = Path(__file__).parents[1]
SETTINGS = settings_of(Recipe)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the package in the directory."""
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, env=environment)


def test_generated_files_are_up_to_date() -> None:
    checked = run(ROOT, "scripts/write_settings.py", "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.path)
def test_every_setting_has_a_description(setting) -> None:
    assert setting.help and (not setting.commands or setting.panel in PANELS)


def test_setting_names_are_unique_per_command() -> None:
    for command in {command for setting in SETTINGS for command in setting.commands}:
        mine = [setting for setting in SETTINGS if command in setting.commands]
        assert len({s.keyword for s in mine}) == len({s.option for s in mine}) == len(mine), command


ADDED = '    ripeness: Count = setting(7, "Days until it is sweet.", TRAINING)\n'
INSPECT = """
import inspect, json, re, unmask
from typer.testing import CliRunner
from unmask.cli import app
from unmask.recipe import Recipe
flags = {command: CliRunner().invoke(app, [command, "--help"]).output for command in ("pretrain", "finetune", "tune", "prepare")}
rejected = CliRunner().invoke(app, ["pretrain", "corpus.txt", "--ripeness", "0"]).output
print(json.dumps({
    "package": unmask.__file__,
    "flags": [command for command, text in flags.items() if re.search(r"--ripeness +N +Days until it is sweet", text)],
    "given": "recipe key train.ripeness: must be greater than or equal to 1 (got 0)" in rejected,
    "signatures": [n for n in ("pretrain", "finetune", "tune", "dry_run") if "ripeness" in inspect.signature(getattr(unmask, n)).parameters],
    "keyword": unmask.api.make_recipe("corpus.txt", ripeness=8).train.ripeness,
    "set": Recipe.build({}, ["train.ripeness=6"]).train.ripeness,
    "yaml": Recipe.build(Recipe.read("mine.yaml")).train.ripeness,
    "default": Recipe().train.ripeness,
}))
"""


def test_new_setting_needs_one_line(tmp_path: Path) -> None:
    """In a copy of the package with one more line, the setting is a flag, a keyword, a field for `--set` and YAML, and documented."""
    for part in ("unmask", "scripts"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    recipe = tmp_path / "unmask" / "sections.py"
    before = "    muon_lr: Positive"
    recipe.write_text(recipe.read_text("utf-8").replace(before, ADDED + before, 1), "utf-8")
    (tmp_path / "mine.yaml").write_text("train: {ripeness: 5}\n")
    assert "__init__.pyi is not up to date" in run(tmp_path, "scripts/write_settings.py", "--check").stdout
    assert run(tmp_path, "scripts/write_settings.py").returncode == 0
    done = run(tmp_path, "-c", INSPECT)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout.splitlines()[-1])
    assert Path(values.pop("package")).is_relative_to(tmp_path)
    assert values == {
        "flags": ["pretrain", "finetune", "tune"],
        "given": True,
        "signatures": ["pretrain", "finetune", "tune", "dry_run"],
        "keyword": 8,
        "set": 6,
        "yaml": 5,
        "default": 7,
    }
    page = (tmp_path / "docs" / "recipe.md").read_text("utf-8")
    row = "| `train.ripeness` | `7` | integer | `--ripeness` (pretrain, finetune, tune) | Days until it is sweet. |"
    assert row in page.splitlines()
    assert (tmp_path / "unmask" / "__init__.pyi").read_text("utf-8").count("    ripeness: int | None = None,\n") == 8


def test_list_settings_accept_a_string() -> None:
    recipe = task_recipe("model", train=Path("a.csv"), dev=["b.csv", Path("c.csv")], labels="neg, pos")
    assert (recipe.task.train, recipe.task.dev, recipe.task.labels) == (["a.csv"], ["b.csv", "c.csv"], ["neg", "pos"])
    assert make_recipe("corpus", special_tokens="<user>").tokenizer.special_tokens == ["<user>"]
    with pytest.raises(UserError, match=r"unknown keyword 'stpes' \(did you mean steps\?\)"):
        make_recipe("corpus", stpes=3)


THEIRS = """
from typing import Literal

from unmask.settings import Count, Section, setting


class Settings(Section):
    depth: Count = setting(3, "Layers that are read.")
    way: Literal["up", "down"] = setting("up", "Which way.")


class Theirs:
    class SPEC:
        settings = Settings


class Plain:
    class SPEC:
        settings = None
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package with a task that has settings and one that has none."""
    (tmp_path / "strange_tasks.py").write_text(THEIRS)
    info = tmp_path / "strange_tasks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-tasks\nVersion: 1.0\n")
    points = "[unmask.tasks]\nsort = strange_tasks:Theirs\nplain = strange_tasks:Plain\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("unmask.task_recipe.TASKS", type(TASKS)("tasks", {"tag": "unmask.tasks.tag.task:Tag"}))
    yield
    sys.modules.pop("strange_tasks", None)


@pytest.mark.usefixtures("theirs")
def test_third_party_task_has_settings(tmp_path: Path) -> None:
    recipe = Recipe.build({"task": {"name": "sort", "sort": {"way": "down"}}}, ["task.sort.depth=5"])
    assert (recipe.task.sort.depth, recipe.task.sort.way) == (5, "down")  # type: ignore[attr-defined]
    recipe.write(tmp_path / "recipe.yaml")
    again = Recipe.build(Recipe.read(tmp_path / "recipe.yaml"))
    assert again == recipe and again.task.sort == recipe.task.sort  # type: ignore[attr-defined]
    stored = recipe.task.model_dump(mode="json", exclude_defaults=True)  # as stored in unmask.json
    assert stored == {"name": "sort", "sort": {"depth": 5, "way": "down"}}
    assert Recipe.build({"task": stored}).task.sort == recipe.task.sort  # type: ignore[attr-defined]
    assert make_recipe(recipe=recipe).task.sort == recipe.task.sort  # type: ignore[attr-defined]
    assert recipe.model_copy(deep=True).task.sort.depth == 5  # type: ignore[attr-defined]
    several = Recipe.build({"tasks": {"mine": {"sort": {"depth": 2}}}})
    assert several.tasks["mine"].sort.depth == 2  # type: ignore[attr-defined]
    assert Recipe().task.sort.depth == 3, "its defaults"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task.sort.dept=5", "unknown recipe key task.sort.dept (did you mean depth?)"),
        ("task.sort.depth=0", "recipe key task.sort.depth: must be greater than or equal to 1 (got 0)"),
        ("task.sort=3", "recipe key task.sort: must be a section with the fields depth, way (got 3)"),
        ("task.plain.depth=5", "unknown recipe key task.plain (did you mean pooling?)"),
        ("task.xyz.depth=5", "unknown recipe key task.xyz; expected one of name, train"),
        ("task.lenght=5", "unknown recipe key task.lenght (did you mean max_length?)"),
    ],
)
def test_unknown_task_keys_raise(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Recipe.build({}, [text])
    assert caught.value.message.startswith(message) and "\n" not in caught.value.message


@pytest.mark.usefixtures("theirs")
def test_task_has_only_attributes_of_installed_tasks() -> None:
    assert hasattr(Recipe().task, "sort") and not hasattr(Recipe().task, "sorts")
