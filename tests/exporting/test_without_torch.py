"""What an exported folder needs: no torch, at import and when it answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from exporting.exports import new_folder, same

import unmask

ANSWERING = [
    "unmask.api",
    "unmask.batch",
    "unmask.objectives.objective",
    "unmask.inference.predictor",
    "unmask.inference.onnx_engine",
    *(
        f"unmask.tasks.{name}"
        for name in ("answer", "choose", "classify", "embed", "generate", "rank", "tag", "folder")
    ),
]
WITHOUT = "import sys; sys.modules['torch'] = None  # from here on, importing it fails\n"


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", WITHOUT + code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_answers_imports_no_torch() -> None:
    run(f"import importlib\nfor name in {ANSWERING}: importlib.import_module(name)")


ASK = """
import json, unmask
model = unmask.load(sys.argv[1], backend="onnx")
said = eval(sys.argv[2])
print(json.dumps(said.as_dict() if hasattr(said, "as_dict") else said.tolist() if hasattr(said, "tolist") else said))
"""


@pytest.mark.parametrize(
    ("family", "heads", "question"),
    [
        ("roberta", ("tag",), "model.tag('a cab')"),
        ("distilbert", ("mlm",), "model.fill('a c[MASK]b', top_k=3)"),
        ("openai-gpt", ("lm",), "model.generate('a cab', max_new_tokens=4, num_beams=2)"),
    ],
    ids=["tag", "fill", "generate"],
)
def test_an_export_answers_without_torch(tmp_path: Path, family: str, heads: tuple[str, ...], question: str) -> None:
    folder = new_folder(tmp_path / "model", family, heads)
    export = unmask.export(folder)["folder"]
    said = eval(question, {"model": unmask.load(folder)})
    ours = said.as_dict() if hasattr(said, "as_dict") else said
    theirs = json.loads(run(ASK, export, question))
    same(json.loads(json.dumps(ours)), theirs)
