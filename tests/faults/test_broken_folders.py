"""Broken and hostile model directories: any file or field may contain anything, and the error message names it.

Whatever a directory contains, `load`, `predict` and `info` either work or raise a UserError (exit code 2): no traceback, no hang, and
no memory allocation requested by a number in a small file.
"""

import copy
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from server.serving import base_model, task_model
from typer.testing import CliRunner

from unmask import UserError, api
from unmask.cli import app

VALUES = [None, True, -1, 10**9, 1e308, "x", [], {}, {"a": [1]}]
INPUTS = {
    "classify": ["Ann lives"],
    "tag": ["Ann lives"],
    "answer": ["who ?", "Ann"],
    "embed": ["Ann"],
    "rank": ["who", "Ann"],
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    start = base_model(folder / "bert")
    for task in INPUTS:
        task_model(folder / task, start, task)
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """Copy of a classifier, to be damaged."""
    return shutil.copytree(good / "classify", tmp_path / "model")


def field_paths(value: Any, path: tuple[Any, ...] = (), max_items: int = 2) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every field; for long lists and tables, only of the first few items."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items)[: 50 if isinstance(value, dict) and len(value) <= 50 else max_items]:
        yield from field_paths(item, (*path, key), max_items)


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.deepcopy(value)
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = new
    return value


def without_field(value: Any, path: tuple[Any, ...]) -> Any:
    value = copy.deepcopy(value)
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    return value


FILES = [
    ("classify", "config.json"),
    ("classify", "tokenizer.json"),
    ("classify", "tokenizer_config.json"),
    ("classify", "unmask.json"),
    ("tag", "unmask.json"),
    ("answer", "unmask.json"),
    ("embed", "unmask.json"),
]


@pytest.mark.parametrize(("task", "name"), FILES)
def test_invalid_field_values_never_crash(good: Path, tmp_path: Path, task: str, name: str) -> None:
    folder = shutil.copytree(good / task, tmp_path / "model")
    raw = json.loads((folder / name).read_text())
    error_count, wrong = 0, []
    for path in field_paths(raw, max_items=1):
        some = [with_value(raw, path, value) for value in VALUES] + ([without_field(raw, path)] if path else [])
        for value in some:
            (folder / name).write_text(json.dumps(value))
            try:
                api.load(folder).predict([tuple(INPUTS[task]) if len(INPUTS[task]) > 1 else INPUTS[task][0]])
            except UserError as error:
                error_count += 1
                if name not in str(error) and "the task" not in str(
                    error
                ):  # one text, where the edited directory expects pairs
                    wrong.append(f"{path}: {error}")
            except BaseException as error:
                wrong.append(f"{path}: {type(error).__name__} {error}")
    assert not wrong, "\n".join(wrong[:20])
    assert error_count > len(VALUES)


def edit(folder: Path, name: str, **values: Any) -> None:
    raw = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(raw | values))


def nested(count: int) -> dict[str, Any]:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [step] * count}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


HOSTILE: dict[str, tuple[str, dict[str, Any], list[str]]] = {  # case → file, values, words in the message
    "labels": ("config.json", {"id2label": None, "num_labels": 10**9}, ["config.json", "num_labels", "1000000000"]),
    "many labels": ("config.json", {"id2label": None, "num_labels": 90_000}, ["config.json"]),
    "many names": (
        "config.json", {"id2label": {str(n): f"l{n}" for n in range(200_000)}}, ["config.json", "id2label", "200,000"]
    ),
    "label numbers": ("config.json", {"id2label": {"0": "a", "x": "b"}}, ["config.json", "id2label"]),
    "width": ("config.json", {"hidden_size": 10**8}, ["config.json", "hidden_size"]),
    "layers": ("config.json", {"num_hidden_layers": 10**7}, ["config.json", "num_hidden_layers"]),
    "a word for a number": ("config.json", {"num_hidden_layers": "two"}, ["config.json", "num_hidden_layers", "'two'"]),
    "growing": ("tokenizer.json", {"normalizer": nested(30)}, ["tokenizer.json", "normalizer.normalizers[6]"]),
    "regex": ("tokenizer.json", {"pre_tokenizer": split("(a+)+$")}, ["tokenizer.json", "pre_tokenizer.pattern", "(a+)+$"]),
    "unknown part": ("tokenizer.json", {"decoder": {"type": "Odd"}}, ["tokenizer.json", "decoder"]),
    "length": ("unmask.json", {"task_state": {"labels": ["a", "b"], "length": 10**9}}, ["unmask.json", "task_state.length"]),
    "no labels": ("unmask.json", {"task_state": {"length": 16}}, ["unmask.json", "task_state.labels"]),
    "another task": ("unmask.json", {"task": "choose", "task_state": {"length": 16}}, ["unmask.json", "choose"]),
    "settings": ("unmask.json", {"settings": {"long": 3}}, ["unmask.json", "task.overflow"]),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_command_line_error_names_file_and_field(folder: Path, case: str) -> None:
    name, values, words = HOSTILE[case]
    edit(folder, name, **values)
    done = CliRunner().invoke(app, ["predict", str(folder), "Ann lives"])
    assert done.exit_code == 2, done.output
    assert all(word in done.output for word in words), done.output
    info = CliRunner().invoke(
        app, ["info", str(folder)]
    )  # `info` does not load the task and reports errors of the tokenizer
    assert info.exit_code in (0, 2), info.output
    if name == "config.json" and case != "many labels":
        assert info.exit_code == 2
        assert all(word in info.output for word in words)


def test_huge_numbers_in_small_files_do_not_allocate_memory(good: Path, tmp_path: Path) -> None:
    """Measure the peak memory in a subprocess, minus what it needs without loading a directory."""
    folders = []
    for case in ("labels", "many labels", "many names", "width", "layers", "growing"):
        folders.append(shutil.copytree(good / "classify", tmp_path / case))
        edit(folders[-1], HOSTILE[case][0], **HOSTILE[case][1])
    entries = shutil.copytree(good / "classify", tmp_path / "entries")
    raw = json.loads((entries / "tokenizer.json").read_text())
    raw["model"]["vocab"] |= {f"word{n}": n + 1000 for n in range(1_000_000)}
    (entries / "tokenizer.json").write_text(json.dumps(raw))
    code = (
        "import sys, resource, torch\nfrom unmask import api, UserError\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "api.load(sys.argv[1]).predict(['Ann'])\nbefore = peak()\n"
        "for path in sys.argv[2:]:\n"
        "    try: api.load(path).predict(['a' * 40]); print('accepted', path)\n"
        "    except UserError as error: pass\n"
        "print((peak() - before) // 1024)"
    )
    paths = [str(good / "classify"), *map(str, folders), str(entries)]
    out = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True, timeout=300)
    assert "accepted" not in out.stdout
    assert int(out.stdout.split()[-1]) < 400, out.stdout  # MB; eagerly created labels alone would take 4,200


def test_named_pipe_in_a_model_directory_does_not_block(good: Path, tmp_path: Path) -> None:
    names = ["model.safetensors", "config.json", "tokenizer.json", "unmask.json", "pytorch_model.bin", "modules.json"]
    for name in names:
        folder = shutil.copytree(good / ("embed" if name == "modules.json" else "classify"), tmp_path / name)
        for other in ("unmask.json",) if name == "modules.json" else ("model.safetensors",) if "bin" in name else ():
            (folder / other).unlink()
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    code = (
        "import sys\nfrom unmask import api, UserError\n"
        "for path in sys.argv[1:]:\n"
        "    try: api.load(path); print('accepted', path)\n"
        "    except UserError as error: print(error)"
    )
    paths = [str(tmp_path / name) for name in names]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True, timeout=200)
    assert "accepted" not in done.stdout
    assert done.stdout.count("not a regular file") == len(names), done.stdout


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_weights_raise(folder: Path, value: float) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.1.output.dense.weight"
    tensors[name][3, 5] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match=rf"{name} contain NaN or infinity"):
        api.load(folder)


def test_damaged_pickles_raise_a_user_error(folder: Path) -> None:
    """Random bytes of the pickle are changed, or the file is truncated: loading raises a UserError or succeeds (a flipped bit in a weight)."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    whole, rng = file.read_bytes(), random.Random(0)
    start = whole.index(b"data.pkl")
    error_count = unnamed = 0
    for n in range(150):
        data = bytearray(whole)
        for _ in range(1 + n % 3):
            data[rng.randrange(start, start + 4000)] = rng.randrange(256)
        file.write_bytes(bytes(data) if n % 10 else whole[: rng.randrange(len(whole))])
        try:
            api.load(folder)
        except UserError as error:
            error_count += 1
            unnamed += str(folder) not in str(error)
    assert error_count > 50
    assert unnamed == 0


def test_pickles_that_expand_in_memory_raise(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    torch.save(tensors | {"extra": torch.zeros(1).expand(10**9)}, file)
    with pytest.raises(UserError, match=r"pytorch_model\.bin.*extra.*bytes"):
        api.load(folder)
    torch.save(tensors | {"extra": torch.eye(3).to_sparse()}, file)
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        api.load(folder)
    torch.save(tensors, file)
    packed = folder / "packed"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    packed.replace(file)
    with pytest.raises(UserError, match=r"pytorch_model\.bin.*compressed"):
        api.load(folder)


@pytest.mark.parametrize("pattern", [r" ?\p{L}+|\p{N}{1,3}|\s*[\r\n]+|\s+(?!\S)|\s+", r"[^\s]+|\s+"])
def test_common_split_patterns_are_accepted(folder: Path, pattern: str) -> None:
    edit(folder, "tokenizer.json", pre_tokenizer=split(pattern))
    assert api.load(folder).predict(["Ann lives"])


def test_common_normalizer_sequence_is_accepted(folder: Path) -> None:
    steps = [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "NFKD"},
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]
    edit(folder, "tokenizer.json", normalizer={"type": "Sequence", "normalizers": steps})
    assert api.load(folder).predict(["Ann  lives"])
