"""An export needs no torch, neither to import nor to predict."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from exporting.exports import assert_same, new_folder

import unmask

INFERENCE_MODULES = [
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


def test_inference_modules_do_not_import_torch() -> None:
    run(f"import importlib\nfor name in {INFERENCE_MODULES}: importlib.import_module(name)")


ASK = """
import json, unmask
model = unmask.load(sys.argv[1], backend="onnx")
result = eval(sys.argv[2])
print(json.dumps(result.as_dict() if hasattr(result, "as_dict") else result.tolist() if hasattr(result, "tolist") else result))
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
def test_export_predicts_without_torch(tmp_path: Path, family: str, heads: tuple[str, ...], question: str) -> None:
    folder = new_folder(tmp_path / "model", family, heads)
    export = unmask.export(folder)["folder"]
    result = eval(question, {"model": unmask.load(folder)})
    ours = result.as_dict() if hasattr(result, "as_dict") else result
    theirs = json.loads(run(ASK, export, question))
    assert_same(json.loads(json.dumps(ours)), theirs)
