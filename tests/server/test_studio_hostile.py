"""An unreadable run is listed with the reason and does not affect other runs, whatever its files contain."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from server.test_studio_runs import make, step
from starlette.testclient import TestClient

from unmask import UserError
from unmask.recipe import Recipe
from unmask.server.app import make_app
from unmask.server.studio.runs import Runs

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
BROKEN: dict[str, tuple[str, str, str]] = {  # name → file, text, pattern of the reason
    "yaml aliases": ("recipe.yaml", BOMB, "anchors and aliases"),
    "yaml depth": ("recipe.yaml", "[" * 5000, "nested"),
    "yaml size": ("recipe.yaml", "a: " + "x" * 3_000_000, "3,000,003 bytes"),
    "yaml many": ("recipe.yaml", "- a\n" * 60_000, "50,000 values"),
    "yaml list": ("recipe.yaml", "[1, 2]", "not a mapping"),
    "recipe inf": ("recipe.yaml", "train: {lr: 1e400}", "train.lr"),
    "yaml bytes": ("recipe.yaml", "start: !!binary /////w==", "start: a value of the type bytes"),
    "json depth": ("plan.json", "[" * 50_000, "nested"),
    "json depth within Python's": ("results.json", '{"a": ' + "[" * 300 + "]" * 300 + "}", "nested"),
    "json list": ("plan.json", "[1]", "plan.json is a list"),
    "json cut": ("results.json", '{"a": ', "results.json"),
    "json digits": ("results.json", '{"a": ' + "9" * 5000 + "}", "results.json"),
    "not UTF-8": ("plan.json", "\udcff", "plan.json"),
    "json size": ("plan.json", '{"a": "' + "x" * (17 << 20) + '"}', "bytes"),
}
STRANGE: dict[str, tuple[str, str]] = {  # readable, but with unexpected types
    "init_from": ("recipe.yaml", "{start: [1, {a: 2}], task: 3, objective: {a: 1}}"),
    "tasks": ("recipe.yaml", "{1: 2, tasks: [1], task: {kind: [4], train: 5}}"),
    "empty": ("recipe.yaml", ""),
    "1e308": ("plan.json", '{"length_phases": [{"start": 1e308, "steps": 1e308}]}'),
    "words": ("plan.json", '{"length_phases": [{"start": "a", "steps": "b"}]}'),
    "length_phases": ("plan.json", '{"length_phases": {"a": 1}}'),
    "infinite": ("results.json", '{"score": NaN, "other": -Infinity}'),
    "log of types": (
        "log.jsonl",
        '{"event": [1], "step": "x"}\n{"event": "train", "step": 1e308, "loss": NaN}\n[]\n3\nnull\n'
        '{"event": "warning", "text": {"a": [1]}}\n{"event": "train", "step": true, "loss": 1' + "0" * 39 + "}\n",
    ),
    "deep log": ("log.jsonl", '{"event": "train", "x": ' + "[" * 900 + "]" * 900 + "}\n" + "[" * 60_000 + "\n"),
}


def listing(root: Path) -> dict[str, dict[str, Any]]:
    answer = TestClient(make_app({}, allowed_hosts=None, runs=root)).get("/studio/runs")
    assert answer.status_code == 200, answer.text
    return {entry["name"]: entry for entry in answer.json()["runs"]}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_run_is_listed_with_the_reason(tmp_path: Path, case: str) -> None:
    make(tmp_path, "good", [step(1)])
    bad = make(tmp_path, "bad", [step(1)])
    file, text, words = BROKEN[case]
    (bad / file).write_text(text, "utf-8", "surrogateescape")
    listed = listing(tmp_path)
    assert listed["good"]["state"] == "interrupted" and "problem" not in listed["good"]
    assert listed["bad"]["state"] == "failed" and words in listed["bad"]["problem"]
    assert str(tmp_path) not in listed["bad"]["problem"]  # paths of the machine are not disclosed


@pytest.mark.parametrize("case", STRANGE)
def test_unexpected_values_do_not_break_the_listing(tmp_path: Path, case: str) -> None:
    make(tmp_path, "good", [step(1)])
    file, text = STRANGE[case]
    (make(tmp_path, "bad", [step(1)]) / file).write_text(text)
    assert set(listing(tmp_path)) == {"good", "bad"}
    client = TestClient(make_app({}, allowed_hosts=None, runs=tmp_path))
    for path in ("run?name=bad", "log?name=bad", "compare?a=bad&b=good"):
        assert client.get(f"/studio/{path}").status_code in (200, 422), path


@pytest.mark.parametrize("file", ["recipe.yaml", "plan.json", "results.json", "log.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "dangling"])
def test_only_regular_files_are_opened(tmp_path: Path, file: str, kind: str) -> None:
    make(tmp_path, "good", [step(1)])
    path = make(tmp_path, "bad", [step(1)]) / file
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "bad" / "nowhere")
    listed = listing(tmp_path)
    assert listed["good"]["state"] == "interrupted"
    if (file, kind) != ("recipe.yaml", "folder"):  # then it is not a run
        assert listed["bad"]["state"] == "failed" and file in listed["bad"]["problem"]


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"root\xff")
    make(root, "good", [step(1)])
    os.rename(make(root, "bad", [step(1)]), os.fsencode(root) + b"/bad\xff")
    listed = listing(root)
    assert listed["good"]["state"] == "interrupted"
    assert listed["bad?"]["state"] == "failed" and "not UTF-8" in listed["bad?"]["problem"]
    assert Runs(root).models(9) == []


def test_a_lock_and_a_report_that_are_pipes(tmp_path: Path) -> None:
    folder = make(tmp_path, "a", [step(1)])
    os.mkfifo(folder / "lock")
    os.mkfifo(folder / "report.html")
    assert Runs(tmp_path).entries()[0]["state"] == "interrupted"
    with pytest.raises(UserError, match="not a regular file"):
        Runs(tmp_path).report("a")


def test_end_of_a_huge_log_is_read(tmp_path: Path) -> None:
    folder = make(tmp_path, "a", [])
    with open(folder / "log.jsonl", "wb") as file:
        file.truncate(4 << 30)  # sparse: uses no disk space
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + json.dumps(step(7)).encode() + b"\n")
    assert Runs(tmp_path).entries()[0]["steps"]["done"] == 7


def test_recipe_is_written_without_yaml_aliases(tmp_path: Path) -> None:
    same = ["text"]
    Recipe.build({"task": {"train": same, "dev": same, "test": same}}).write(tmp_path / "recipe.yaml")
    assert Recipe.read(tmp_path / "recipe.yaml")["task"]["dev"] == ["text"]
