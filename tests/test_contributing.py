"""CONTRIBUTING.md is sufficient: its objective, setting and task are added to a copy of the package, and work."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runs.tiny import model_folder, sentence

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
SMALL = ["model.layers=1", "model.hidden=32", "model.heads=2", "model.intermediate=64"]
PRETRAIN = shlex.split(
    "pretrain corpus.txt --preset bert-tiny --objective shuffle --shuffle-fraction 0.5 --vocab-size 80 --steps 3 "
    "--out shuffled"
)
FINETUNE = shlex.split("finetune start --train messages.csv --baseline --steps 2 --out urgent")


def blocks() -> dict[str, str]:
    """Return {file: code} of the code blocks that name a file in their first line."""
    return dict(re.findall(r"```python\n# (unmask/\S+)\n(.*?)```", PAGE, re.DOTALL))


def insert(file: Path, before: str, text: str) -> None:
    code = file.read_text("utf-8")
    assert before in code, f"{file.name} has no {before!r}"
    file.write_text(code.replace(before, text + before, 1), "utf-8")


def python(folder: Path, *words: str) -> str:
    """Run Python with the package in the directory; return its output."""
    environment = os.environ | {"PYTHONPATH": str(folder), "UNMASK_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr


def unmask(folder: Path, *words: str) -> str:
    return python(folder, "-m", "unmask", *words)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the package with everything that the page adds."""
    folder = tmp_path_factory.mktemp("contributing")
    for part in ("unmask", "scripts"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "docs").mkdir()
    for name, code in blocks().items():
        file = folder / name
        if file.exists():  # code to append to an existing file
            file.write_text(f"{file.read_text('utf-8')}\n\n{code}", "utf-8")
            continue
        file.parent.mkdir(exist_ok=True)
        file.write_text(code, "utf-8")
        (file.parent / "__init__.py").touch()
    for line, path in re.findall(r'`("\w+": "(unmask[.\w]+):\w+",)`', PAGE):
        first = '        "bilm":' if ".objectives." in path else '        "answer": "unmask.tasks'
        insert(folder / "unmask" / "registry.py", first, f"        {line}\n")
    (field,) = re.findall(r"`(shuffle: \w+ = (\w+)\(\))`", PAGE)
    recipe = folder / "unmask" / "recipe.py"
    insert(recipe, "    task: TaskRecipe =", f"    {field[0]}\n")
    insert(recipe, "\n\nclass ", f"\nfrom unmask.sections import {field[1]}\n")
    texts = [sentence(n) for n in range(400)]
    documents = (" ".join(text for text, _ in texts[n : n + 8]) for n in range(0, 400, 8))
    (folder / "corpus.txt").write_text("\n\n".join(documents))
    lines = [f"{text},{'urgent' if label == 'pos' else 'later'}\n" for text, label in texts[:40]]
    (folder / "messages.csv").write_text("message,urgency\n" + "".join(lines))
    (folder / "wrong.csv").write_text("message,urgency\n" + "".join([*lines, "so so,medium\n"]))
    model_folder(folder / "start")
    return folder


def test_page_is_short() -> None:
    assert len(blocks()) == 3 and PAGE.count("\n") < 160


def test_objective_and_its_setting_work(copy: Path) -> None:
    output = python(copy, "scripts/write_settings.py")
    assert "wrote docs/recipe.md" in output, output
    output = unmask(copy, *PRETRAIN, *(word for text in SMALL for word in ("--set", text)))
    assert "shuffle" in (copy / "shuffled" / "log.jsonl").read_text(), output
    store = json.loads((copy / "shuffled" / "data.json").read_text())["store"]
    output = unmask(copy, "show-batch", store, "--objective", "shuffle", "--shuffle-fraction", "0.5")
    assert re.search(r"tokens · \d+ selected", output), output


def test_task_works(copy: Path) -> None:
    output = unmask(copy, "doctor", "messages.csv")
    assert "urgency" in output and "medium" not in output, output
    for words in (["doctor", "wrong.csv"], ["finetune", "start", "--train", "wrong.csv"]):
        output = unmask(copy, *words)
        assert "wrong.csv:42" in output and "'medium'" in output and "'later', 'urgent'" in output, output
    output = unmask(copy, *FINETUNE)
    assert "most frequent" in output, output
    (answer,) = json.loads(unmask(copy, "predict", "urgent", "a good film", "--json"))
    assert answer["urgency"] in ("later", "urgent")


HEADS = 'heads = ("mlm",)'


@pytest.mark.parametrize(
    ("file", "old", "new", "words", "message"),
    [
        ("objectives/shuffle.py", HEADS, 'heads = ("mlmm",)', PRETRAIN, "the head 'mlmm', which does not exist (did you mean mlm"),
        ("objectives/shuffle.py", HEADS, 'heads = ("rtd",)', PRETRAIN, "term shuffle: cross-entropy needs logits (N, classes)"),
        ("sections.py", 'panel = "Masking"  # the group', "# the group", PRETRAIN, "shuffle.fraction has a flag and no panel; expected one of Data, Model,"),
        ("tasks/urgency/task.py", ", labels=LABELS", "", FINETUNE, "the task urgency has no labels"),
    ],
    ids=["unknown head", "head of another shape", "no panel", "no labels"],
)  # fmt: skip
def test_mistakes_raise_a_clear_error(
    file: str, old: str, new: str, words: list[str], message: str, copy: Path, tmp_path: Path
) -> None:
    shutil.copytree(
        copy, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__", "shuffled", "urgent", "cache")
    )
    path = tmp_path / "copy" / "unmask" / file
    code = path.read_text("utf-8")
    assert old in code
    path.write_text(code.replace(old, new), "utf-8")
    output = unmask(tmp_path / "copy", *words)
    assert message in output, output
