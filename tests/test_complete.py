"""Checks that every objective and task is complete. Run it after adding one (CONTRIBUTING.md): a failure names the file and the table
in which something is missing."""

import json
import sys
from pathlib import Path

import pytest
from contract.test_tasks import CASES
from golden import recordings
from labels.test_doctor import SHAPES

from unmask.metrics import Metric, metric
from unmask.model.config import preset
from unmask.registry import OBJECTIVES, TASKS

ROOT = Path(__file__).parents[1]


def recorded_objectives() -> set[str]:
    """Return the objectives of the recorded runs: the given one, else the default of the family."""
    named = [case.get("objective") or case.get("preset") for case in recordings.PRETRAIN.values()]
    texts = [name if name.partition("+")[0] in OBJECTIVES else preset(name).default_objective for name in named if name]
    return {part for text in texts for part in text.split("+")}


def recorded_tasks() -> set[str]:
    files = [recordings.file_of(name) for name in recordings.FINETUNE]
    return {json.loads(file.read_text("utf-8"))["results"]["task"] for file in files if file.exists()}


@pytest.mark.parametrize("name", OBJECTIVES.names())
def test_objective_is_complete(name: str) -> None:
    kind, page = OBJECTIVES[name], (ROOT / "docs" / "objectives.md").read_text("utf-8")
    module = sys.modules[kind.__module__]
    missing = []
    if kind.name != name:
        missing.append(
            f"unmask/registry.py, OBJECTIVES: the class is registered as {name!r} and has the name {kind.name!r}"
        )
    if not kind.terms:
        missing.append(f"{module.__file__}: `terms` is empty; name each part of the loss")
    if "|---" not in (module.__doc__ or ""):
        missing.append(f"{module.__file__}: the docstring has no table of example rows (see unmask/objectives/sop.py)")
    if f"| [`{name}`](" not in page and f"| `{name}` |" not in page:
        missing.append(f"docs/objectives.md, the first table: no row that begins with | [`{name}`](#…)")
    for term in kind.terms:
        if metric(term).kind != "loss":
            missing.append(f"unmask/metrics.py, METRICS: no entry for the term {term!r}; add it to a line of `_loss`")
    if name not in recorded_objectives():
        missing.append(
            f"tests/golden/recordings.py, PRETRAIN: no case of {name!r}; add one, then run python tests/golden/recordings.py CASE"
        )
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("name", TASKS.names())
def test_task_is_complete(name: str) -> None:
    spec = TASKS[name].SPEC
    missing = []
    if spec.name != name:
        missing.append(
            f"unmask/registry.py, TASKS: the class is registered as {name!r} and its spec is of {spec.name!r}"
        )
    if not spec.baseline:
        missing.append(f"unmask/tasks/{name}: its spec has no baseline; write baseline.py (see unmask/tasks/choose)")
    if undeclared := [each for each in spec.metrics if metric(each) == Metric(each)]:
        missing.append(
            f"unmask/metrics.py, METRICS: no {undeclared}; the first metric of a spec selects the best model"
        )
    for page in (f"{name}.md", f"{name}.zh.md"):
        if not (ROOT / "docs" / page).exists():
            missing.append(f"docs/{page}: no guide (see docs/choose.md)")
    if name not in CASES:
        missing.append(
            f"tests/contract/test_tasks.py, CASES: no case of {name!r}; it is trained, saved, resumed and used for predictions"
        )
    if name not in SHAPES:
        missing.append(
            f"tests/labels/test_doctor.py, SHAPES: no two records of {name!r}; the data doctor looks at them"
        )
    if name not in recorded_tasks():
        missing.append(
            f"tests/golden/recordings.py, FINETUNE: no case of {name!r}; add one, its file in `rows` and its inputs in INPUTS, "
            "then run python tests/golden/recordings.py CASE"
        )
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("table", "registered", "file"),
    [(CASES, TASKS, "tests/contract/test_tasks.py, CASES"), (SHAPES, TASKS, "tests/labels/test_doctor.py, SHAPES")],
    ids=["CASES", "SHAPES"],
)
def test_tables_list_only_registered_names(table: dict, registered: dict, file: str) -> None:
    unknown = sorted(set(table) - set(registered))
    assert not unknown, f"{file}: {unknown} are not in unmask/registry.py"


def test_every_directory_with_code_is_a_package() -> None:
    """A wheel leaves out a directory without __init__.py, although every other test passes."""
    folders = {file.parent for file in (ROOT / "unmask").rglob("*.py")}
    missing = [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()]
    assert not missing, f"no __init__.py in {', '.join(missing)}: an installed package would not have it"
