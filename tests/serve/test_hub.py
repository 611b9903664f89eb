"""There and back: `unmask export --push` to a hub, and a model loaded from it by its name, by the real huggingface_hub client."""

import json
import os
import subprocess
import sys
from pathlib import Path

from serve.exports import new_folder
from serve.hub_stand_in import Hub, hub

ASK = """
import json, sys, unmask
model = unmask.load("me/tiny", backend="onnx")
print(json.dumps([[c.token for c in model.fill("a [MASK] cab").masks[0].candidates], sorted(set(sys.modules) & {"torch"})]))
"""


def call(server: Hub, home: Path, *words: str) -> subprocess.CompletedProcess:
    settings = {"HF_ENDPOINT": server.url, "HF_HOME": str(home), "HF_TOKEN": "hf_secret"}
    kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300, env=kept | settings)


def test_an_export_is_pushed_and_loaded_by_its_name(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", "bert", ("mlm",))
    out = tmp_path / "export"
    with hub() as server:
        words = ["-m", "unmask", "export", str(folder), "--to", "onnx", "-o", str(out), "--push", "me/tiny"]
        pushed = call(server, tmp_path / "home", *words)
        assert pushed.returncode == 0, pushed.stdout + pushed.stderr
        assert f"uploaded to {server.url}/me/tiny" in pushed.stdout
        assert server.private == {"me/tiny": True} and set(server.keys) == {"Bearer hf_secret"}
        there = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
        assert server.files["me/tiny"] == there and "onnx/model.onnx" in there
        asked = call(server, tmp_path / "other", "-c", ASK)
        assert asked.returncode == 0, asked.stderr
        tokens, torch = json.loads(asked.stdout)
        assert len(tokens) == 5 and torch == []
        missing = call(server, tmp_path / "other", "-m", "unmask", "fill", "me/nothing", "a [MASK]")
        assert missing.returncode == 2 and "the hub did not give it" in missing.stderr
        assert "Traceback" not in missing.stderr
