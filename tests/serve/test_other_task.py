"""A third party's task: three methods and a spec. It is asked in Python, in the terminal, over HTTP and in the studio, explained and exported."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import near
from serve.serving import FACTS, base_model
from starlette.testclient import TestClient
from third_party import installed
from typer.testing import CliRunner

import unmask
from unmask.batch import Example
from unmask.cli import app as cli
from unmask.console import Console
from unmask.labels.fields import Field
from unmask.labels.form import Form
from unmask.labels.records import Record
from unmask.model import hf
from unmask.model.config import change
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.runs import baseline
from unmask.server.app import make_app
from unmask.server.routes.pipelines import sample
from unmask.tasks import folder as task_folder
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import Answer, Outputs, Task
from unmask.text.tokenizer import Tokenizer

LABELS = ["against", "for"]


class Stance(Task):
    """What a post says of a topic, on the head of `classify`, with fields that nobody else has."""

    SPEC = TaskSpec(
        name="stance",
        about="a topic and a post → for or against",
        form=Form(
            Field("topic", ("topic",)), Field("post", ("post",)), Field("stance", ("stance",), "label", "target")
        ),
        heads=("classify",),
        terms=("stance",),
        output="choice",
    )

    def rows(self, record: Record, labelled: bool = True) -> list[Example]:
        ids, segments = self.tokenizer.surround(
            self.tokenizer.encode(record["topic"]), self.tokenizer.encode(record["post"])
        )
        labels = {"stance.targets": np.array([LABELS.index(record["stance"])])} if labelled else {}
        return [Example(np.array(ids), np.array(segments), labels=labels)]

    def decode(self, outputs: Outputs) -> list[Answer]:
        return [{"stance": LABELS[int(v.argmax())], "margin": np.float32(abs(v[1] - v[0]))} for v in outputs.values]

    def score(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, float]:
        return {"accuracy": float(np.mean([a["stance"] == r["stance"] for a, r in zip(answers, records)]))}


ASKED = {"topic": "Rome", "post": FACTS[0]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("stance")
    with installed(root, {}, {"tasks": {"stance": f"{__name__}:Stance"}}):
        start = base_model(root / "start")
        tokenizer = Tokenizer.load(start)
        config = change(hf.config_of(start), labels=tuple(LABELS))
        hf.save(Model(config, ("pooler", "classify")).init(1), root / "model", tokenizer)
        task_folder.write(Stance(Recipe(), tokenizer, {"length": 32, "labels": LABELS}), root / "model")
        yield root / "model"


def test_python_and_the_terminal_ask_it(folder: Path) -> None:
    model = unmask.load(folder)
    (found,) = model.predict([ASKED])
    assert found["stance"] in LABELS and "stance" in model.methods()
    assert model.stance("Rome", FACTS[0]) == found == model(*ASKED.values())
    assert model.stance(["Rome", "Oslo"], FACTS[:2])[0]["margin"] == near(found["margin"], 1e-5)
    with pytest.raises(AttributeError):
        model.posture("Rome")
    shown = CliRunner().invoke(cli, ["predict", str(folder), *ASKED.values()]).output
    assert shown.startswith(f'Rome | {FACTS[0]}  →  {{"stance": "{found["stance"]}"')


def test_http_gives_its_predictions_and_not_vectors(folder: Path) -> None:
    model = unmask.load(folder)
    client = TestClient(make_app({"stance": model}, hosts=None))
    (ours,) = model.predict([ASKED])
    ours = ours | {"margin": near(ours["margin"], 1e-5)}
    about = client.get("/models/stance").json()
    assert about["pipeline"] == about["pipelines"][0] == "prediction" and about["task"] == "stance"
    for path in ("/models/stance", "/models/stance/pipeline/prediction"):
        assert client.post(path, json={"inputs": ASKED}).json() == ours
        assert client.post(path, json={"inputs": [ASKED, list(ASKED.values())]}).json() == [ours, ours]
    assert client.post("/models/stance", json=json.loads(sample(model))).status_code == 200
    for wrong, said in (
        ({"inputs": {**ASKED, "stanc": "for"}}, "no field 'stanc'"),
        ({"inputs": {"topic": "Rome"}}, "has no 'post'"),
        ({"inputs": {**ASKED, "post": ["a"]}}, "post is list, not text"),
        ({"inputs": "Rome"}, "1 texts for the task stance"),
        ({"inputs": ASKED, "parameters": {"top_k": 1}}, "parameters"),
    ):
        answer = client.post("/models/stance", json=wrong)
        assert answer.status_code == 422 and said in answer.json()["error"]["message"], answer.text
    refused = client.post("/predict", json={"inputs": "Rome"}).json()["error"]
    assert "no served model is fine-tuned for classify" in refused["message"]


def test_the_studio_has_a_form_for_it(folder: Path) -> None:
    client = TestClient(make_app({"stance": unmask.load(folder)}, hosts=None))
    (told,) = client.get("/studio/models").json()
    form = told["forms"][0]
    assert (form["name"], form["method"], form["view"]) == ("stance", "predict", "json")
    assert [(f["name"], f["caption"], f["required"]) for f in form["fields"]] == [
        ("topic", "TOPIC", True), ("post", "POST", True),
    ]  # fmt: skip
    found = client.post("/studio/task", json={"model": "stance", "record": ASKED}).json()
    assert found["stance"] in LABELS
    wrong = client.post("/studio/task", json={"model": "stance", "record": {**ASKED, "stance": "for"}})
    assert wrong.status_code == 422 and "no field 'stance'" in wrong.json()["error"]["message"]


def test_it_is_explained_by_what_its_spec_says(folder: Path) -> None:
    model = unmask.load(folder)
    found = model.explain(*ASKED.values(), target="for", steps=100)
    assert found.target == "for" and abs(found.delta) < 0.02 * max(1.0, abs(found.value - found.baseline))
    assert len(found.tokens) == len(Stance(Recipe(), model.tokenizer, {"length": 32}).rows(ASKED, False)[0])
    with pytest.raises(unmask.UserError, match="no label 'fo'"):
        model.explain(*ASKED.values(), target="fo")


def test_its_export_answers_alike(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    export = unmask.export(folder, out=tmp_path / "onnx")["folder"]
    about = json.loads(Path(export, "export.json").read_text())
    assert (about["task"], about["output"], about["grouped"]) == ("stance", "choice", False)
    ours, theirs = (unmask.load(path).predict([ASKED])[0] for path in (folder, export))
    assert theirs == ours | {"margin": near(ours["margin"], 1e-4)}


def test_it_has_no_baseline_and_that_is_said(folder: Path) -> None:
    told: list[str] = []

    class Heard(Console):
        def warn(self, text: str) -> None:
            told.append(text)

    task = unmask.load(folder).task
    records = [{**ASKED, "stance": "for"}]
    assert (
        baseline.counted(task, records, [], records, Heard(quiet=True)) == {}
        and "the task stance names none" in told[0]
    )
