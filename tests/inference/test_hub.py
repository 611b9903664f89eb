"""Round trip: `unmask export --push` to a hub, and loading the model by its ID, with the real huggingface_hub client."""

import json
import os
import subprocess
import sys
from pathlib import Path

from exporting.exports import new_folder
from inference.hub_stand_in import Hub, hub
from runs.tiny import labeled, model_folder

ASK = """
import json, sys, unmask
model = unmask.load("me/tiny", backend="onnx")
print(json.dumps([[c.token for c in model.fill("a [MASK] cab").masks[0].candidates], sorted(set(sys.modules) & {"torch"})]))
"""


FIRST, SECOND = "a" * 40, "b" * 40
TRAIN = """
import json, unmask
run = unmask.finetune("me/tiny", train="train.csv", task="classify", steps=1, out="run")
print(json.dumps([run.recipe().init_from, (run.model / "README.md").read_text()]))
"""
AGAIN = """
import json, sys
from unmask.hub import resolve
from unmask.runs.keywords import task_recipe
def read(name):
    return (resolve(name, ["*.safetensors"]) / "model.safetensors").read_bytes().hex()
kept, new = task_recipe("", recipe="run/recipe.yaml").init_from, task_recipe("me/tiny").init_from
print(json.dumps({"kept": [kept, read(kept)], "new": [new, read(new)], "first": read("me/tiny@" + sys.argv[1])}))
"""


def call(server: Hub, home: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess:
    settings = {"HF_ENDPOINT": server.url, "HF_HOME": str(home), "HF_TOKEN": "hf_secret"}
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=300, env=environment | settings, cwd=cwd
    )


def test_export_is_pushed_and_loaded_by_its_id(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", "bert", ("mlm",))
    out = tmp_path / "export"
    with hub() as server:
        words = ["-m", "unmask", "export", str(folder), "--format", "onnx", "-o", str(out), "--push", "me/tiny"]
        pushed = call(server, tmp_path / "home", *words)
        assert pushed.returncode == 0, pushed.stdout + pushed.stderr
        assert f"uploaded to {server.url}/me/tiny" in pushed.stdout
        assert server.private == {"me/tiny": True} and set(server.keys) == {"Bearer hf_secret"}
        exported = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
        assert server.files["me/tiny"] == exported and "onnx/model.onnx" in exported
        loaded = call(server, tmp_path / "other", "-c", ASK)
        assert loaded.returncode == 0, loaded.stderr
        tokens, torch = json.loads(loaded.stdout)
        assert len(tokens) == 5 and torch == []
        missing = call(server, tmp_path / "other", "-m", "unmask", "fill", "me/nothing", "a [MASK]")
        assert missing.returncode == 2 and "the hub has no such model" in missing.stderr
        assert "Traceback" not in missing.stderr


def test_model_id_without_owner_suggests_the_full_id(tmp_path: Path) -> None:
    with hub() as server:
        server.publish("google-bert/bert-base-uncased", model_folder(tmp_path / "bert"), FIRST)
        result = call(server, tmp_path / "home", "-m", "unmask", "fill", "bert-base-uncased", "a [MASK]", cwd=tmp_path)
    assert result.returncode == 2 and "on the hub it is called google-bert/bert-base-uncased\n" in result.stderr
    result = call(server, tmp_path / "home", "-m", "unmask", "fill", "bert-base-uncased", "a [MASK]", cwd=tmp_path)
    assert "google-bert/bert-base-uncased; the hub could not be reached" in result.stderr, result.stderr


def test_missing_local_path_is_reported_as_missing(tmp_path: Path) -> None:
    (tmp_path / "models" / "film-1").mkdir(parents=True)
    with hub() as server:
        for name, message in (("runs/x", "runs/x\n"), ("models/film-2", "models/film-2 (did you mean film-1?)\n")):
            result = call(server, tmp_path / "home", "-m", "unmask", "fill", name, "a [MASK]", cwd=tmp_path)
            assert result.returncode == 2 and f"error: no such file or folder: {message}" in result.stderr
            assert "hf download" not in result.stderr


def test_run_pins_the_commit_of_its_base_model(tmp_path: Path) -> None:
    labeled(tmp_path / "train.csv", 40)
    first, second = (
        (model_folder(tmp_path / name, seed=seed) / "model.safetensors").read_bytes().hex()
        for seed, name in enumerate(("first", "second"))
    )
    with hub() as server:
        server.publish("me/tiny", tmp_path / "first", FIRST)
        done = call(server, tmp_path / "home", "-c", TRAIN, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        start, card = json.loads(done.stdout)
        assert start == f"me/tiny@{FIRST}" and f"me/tiny@{FIRST}" in card
        server.publish("me/tiny", tmp_path / "second", SECOND)
        done = call(server, tmp_path / "home", "-c", AGAIN, FIRST, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kept"] == [start, first]  # the pinned files, although the hub has newer ones
    assert result["new"] == [f"me/tiny@{SECOND}", second] and result["first"] == first != second
