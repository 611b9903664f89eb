"""A third-party package (tests/packages/unmask_extra), built and installed with pip, is supported everywhere.

Two tasks are used from a labeled file to a served model: `urgency` with the head of `classify` and a setting, and `wait` with its own head
and metric. An objective, a family, an optimizer and a file format are used in a run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from near import near
from runs.tiny import model_folder, sentence
from safetensors.torch import load_file
from starlette.testclient import TestClient
from third_party import pip_installed, reload_entry_points
from typer.testing import CliRunner

import unmask
from unmask.cli import app as cli
from unmask.errors import UserError
from unmask.labels.records import open_source
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.families import FAMILIES
from unmask.model.head_spec import HEADS
from unmask.model.model import Model
from unmask.recipe import Recipe, TrainRecipe
from unmask.registry import FORMATS, OBJECTIVES, TASKS
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import execute
from unmask.server.app import make_app
from unmask.server.routes.pipelines import sample_body
from unmask.train.optim import Optimizers
from unmask.train.run import Run

TARGETS = {"urgency": ("urgency", {"pos": "urgent", "neg": "later"}), "wait": ("hours", {"pos": 0, "neg": 3})}
MESSAGE = sentence(1)[0]
INPUTS = {"urgency": {"message": MESSAGE}, "wait": {"sender": "anna", "message": MESSAGE}}
RATES = {"urgency": 0.005, "wait": 0.01}
SETS = ["train.batch_size=8", "train.eval_steps=10", "train.save_steps=10"]


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pip_installed("unmask_extra", tmp_path_factory.mktemp("pip")) as folder:
        yield folder


def run_command(*words: Any) -> str:
    """Return the output of a command."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def options(task: str) -> list[Any]:
    return ["--lr", RATES[task], *(word for text in SETS for word in ("--set", text))]


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


@dataclass
class Trained:
    task: str
    start: Path
    train: Path
    test: Path
    run: Run
    output: str  # output of the training command

    @property
    def target(self) -> str:
        return TARGETS[self.task][0]

    @property
    def inputs(self) -> dict[str, str]:
        return INPUTS[self.task]


@pytest.fixture(scope="module", params=list(TARGETS))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model fine-tuned through the command line, with baselines; the task is detected from the columns."""
    root, name = tmp_path_factory.mktemp(request.param), request.param
    column, values = TARGETS[name]
    for file, count in (("train.csv", 40), ("test.csv", 20)):
        rows = [
            {"sender": "anna", "message": text, column: values[label]} for text, label in map(sentence, range(count))
        ]
        write_table(root / file, [{key: row[key] for key in (*INPUTS[name], column)} for row in rows])
    start = model_folder(root / "start")
    words = [
        "--train",
        root / "train.csv",
        "--test",
        root / "test.csv",
        "--baseline",
        "--steps",
        60,
        "--out",
        root / "run",
    ]
    more = ["--set", "task.urgency.threshold=0.6"] if name == "urgency" else []
    output = run_command("finetune", start, *words, *options(name), *more)
    return Trained(name, start, root / "train.csv", root / "test.csv", Run.open(root / "run"), output)


def test_doctor_reads_its_files(trained: Trained, tmp_path: Path) -> None:
    report = json.loads(run_command("doctor", trained.train, "--json"))
    assert (report["task"], report["records"]["train"], report["errors"]) == (trained.task, 40, 0)
    bad = tmp_path / "bad.csv"
    write_table(bad, [dict.fromkeys((*trained.inputs, trained.target), "")])
    findings = unmask.doctor(bad, task=trained.task)["findings"]
    assert {f["kind"] for f in findings if f["error"]}, findings


def test_fine_tuning_reduces_the_loss_and_reports_baselines(trained: Trained) -> None:
    results = trained.run.results()
    metric = {"urgency": "accuracy", "wait": "within"}[trained.task]
    assert (results["task"], results["metric"]) == (trained.task, metric) and 0 <= results["test"][metric] <= 1
    losses = [event[trained.task] for event in trained.run.events() if event["event"] == "train"]
    assert losses[-1] < 0.8 * losses[0]
    assert "pooler head" not in trained.output or trained.task == "urgency", "unused heads are not trained"
    lexical = ["shared words"] if trained.task == "urgency" else []
    assert [baseline["baseline"] for baseline in results["baselines"]] == [*lexical, "without pre-training"]
    assert ("the task wait has no baseline except" in trained.output) == (trained.task == "wait")


def test_report_and_model_card_describe_it(trained: Trained) -> None:
    page, card = ((trained.run.path / name).read_text() for name in ("report.html", "model/README.md"))
    assert trained.task in page and "without pre-training" in page
    assert f"A model for {trained.task}" in card and "unmask.predict('.'" in card
    if trained.task == "urgency":
        assert "shared words" in page and "Labels: `later`, `urgent`" in card
    else:
        assert re.search(r"validation within \d+\.\d%", trained.output), "a percentage, as its metric declares"


def test_interrupted_run_resumes(trained: Trained, tmp_path: Path) -> None:
    evaluated: list[float] = []

    def stop(score: float) -> None:
        evaluated.append(score)
        if len(evaluated) == 4:  # at step 30 or 40, after a checkpoint
            raise KeyboardInterrupt

    recipe = trained.run.recipe()
    with pytest.raises(KeyboardInterrupt):
        execute(Finetune(), recipe, replace(Context.single_process(), eval_callback=stop), tmp_path / "run")
    assert not (tmp_path / "run" / "results.json").exists()
    run_command("finetune", "--resume", tmp_path / "run")
    for name in [file.name for file in trained.run.model.glob("*.safetensors")]:
        uninterrupted, resumed = (load_file(path / name) for path in (trained.run.model, tmp_path / "run/model"))
        assert uninterrupted.keys() == resumed.keys() and all(
            torch.equal(uninterrupted[key], resumed[key]) for key in uninterrupted
        )
    assert Run(tmp_path / "run").results()["test"] == trained.run.results()["test"]


def test_evaluate_and_predict(trained: Trained, site: Path) -> None:
    scores, results = (
        json.loads(run_command("evaluate", trained.run.path, trained.test, "--json")),
        trained.run.results(),
    )
    assert scores["task"] == trained.task and scores.items() >= results["test"].items()
    (prediction,) = unmask.predict(trained.run.path, [trained.inputs])
    # the real command, in a process that finds the package only by its entry points
    command = [sys.executable, "-m", "unmask", "predict", str(trained.run.path), *trained.inputs.values(), "--json"]
    paths = os.pathsep.join(path for path in (str(site), *sys.path) if path)
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [up_to_rounding(prediction)], "numpy numbers are serialized as numbers"
    shown = run_command("predict", trained.run.path, *trained.inputs.values())
    assert shown.startswith(f'{" | ".join(trained.inputs.values())}  →  {{"{trained.target}": ')


def up_to_rounding(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value if isinstance(value, str) else near(value, 1e-4) for key, value in answer.items()}


def test_predictor_has_a_method_of_its_name(trained: Trained) -> None:
    model = unmask.load(trained.run.path)
    (prediction,), texts = model.predict([trained.inputs]), list(trained.inputs.values())
    assert trained.task in model.methods() and getattr(model, trained.task)(*texts) == prediction == model(*texts)
    several = getattr(model, trained.task)(*([text, "bob saw a film"] for text in texts))
    assert len(several) == 2 and up_to_rounding(several[0]) == prediction
    with pytest.raises(AttributeError):
        model.posture(MESSAGE)


def test_setting_is_applied_and_saved_with_the_model(trained: Trained, tmp_path: Path) -> None:
    if trained.task == "wait":
        with pytest.raises(UserError, match=r"unknown recipe key task\.wait"):
            unmask.finetune(trained.start, train=trained.train, overrides=["task.wait.threshold=0.6"])
        return
    shutil.copytree(trained.run.model, tmp_path / "model")
    about = json.loads((tmp_path / "model" / "unmask.json").read_text())
    assert about["settings"]["urgency"] == {"threshold": 0.6}
    about["settings"]["urgency"]["threshold"] = 1.0
    (tmp_path / "model" / "unmask.json").write_text(json.dumps(about))
    answers = [unmask.predict(path, [MESSAGE])[0] for path in (trained.run.model, tmp_path / "model")]
    assert [a["urgency"] for a in answers] == ["urgent", "later"]
    with pytest.raises(UserError, match=r"task\.urgency\.threshold: must be less than or equal to 1"):
        unmask.finetune(trained.start, train=trained.train, overrides=["task.urgency.threshold=2"])


def test_http_returns_predictions(trained: Trained) -> None:
    model = unmask.load(trained.run.path)
    client = TestClient(make_app({"mine": model}, allowed_hosts=None))
    inputs, ours = trained.inputs, up_to_rounding(model.predict([trained.inputs])[0])
    about = client.get("/models/mine").json()
    assert about["pipeline"] == about["pipelines"][0] == "prediction" and about["task"] == trained.task
    for path in ("/models/mine", "/models/mine/pipeline/prediction"):
        assert client.post(path, json={"inputs": inputs}).json() == ours
        assert client.post(path, json={"inputs": [inputs, list(inputs.values())]}).json() == [ours, ours]
    assert client.post("/models/mine", json=json.loads(sample_body(model))).status_code == 200
    for wrong, message in (
        ({"inputs": inputs | {"messag": "x"}}, "unknown field 'messag'"),
        ({"inputs": {}}, f"has no '{next(iter(inputs))}'"),
        ({"inputs": inputs | {"message": ["a"]}}, "message is list, not text"),
        ({"inputs": [["a", "b", "c"]]}, f"3 texts given for the task {trained.task}"),
        ({"inputs": inputs, "parameters": {"top_k": 1}}, "parameters"),
    ):
        answer = client.post("/models/mine", json=wrong)
        assert answer.status_code == 422 and message in answer.json()["error"]["message"], answer.text
    error = client.post("/predict", json={"inputs": MESSAGE}).json()["error"]
    assert "no served model is fine-tuned for classify" in error["message"]


def test_studio_has_a_form_for_it(trained: Trained) -> None:
    client = TestClient(make_app({"mine": unmask.load(trained.run.path)}, allowed_hosts=None))
    (model_info,) = client.get("/studio/models").json()
    form = model_info["forms"][0]
    assert (form["name"], form["method"], form["view"]) == (trained.task, "predict", "json")
    assert [(f["name"], f["caption"], f["required"]) for f in form["fields"]] == [
        (name, name.upper(), True) for name in trained.inputs
    ]
    response = client.post("/studio/task", json={"model": "mine", "record": trained.inputs}).json()
    assert trained.target in response
    wrong = client.post("/studio/task", json={"model": "mine", "record": trained.inputs | {trained.target: "x"}})
    assert wrong.status_code == 422 and f"unknown field '{trained.target}'" in wrong.json()["error"]["message"]


def test_explanation_follows_its_spec(trained: Trained) -> None:
    model = unmask.load(trained.run.path)
    target = "urgent" if trained.task == "urgency" else None
    explanation = model.explain(*trained.inputs.values(), target=target, steps=300)
    assert abs(explanation.delta) < 0.02 * max(1.0, abs(explanation.value - explanation.baseline))
    assert len(explanation.tokens) == len(model.task.encode(trained.inputs, False)[0])
    with pytest.raises(UserError, match="no label 'urgen'"):
        model.explain(*trained.inputs.values(), target="urgen")
    assert "film" in run_command("explain", trained.run.path, *trained.inputs.values())


def test_export_gives_the_same_predictions(trained: Trained, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    run_command("export", trained.run.path, "--out", tmp_path / "onnx")
    about = json.loads((tmp_path / "onnx" / "export.json").read_text())
    output = {"urgency": "choice", "wait": "number"}[trained.task]
    assert (about["task"], about["output"], about["grouped"]) == (trained.task, output, False)
    inputs = [trained.inputs, trained.inputs | {"message": f"{MESSAGE} {MESSAGE}"}]  # of two lengths
    ours, theirs = (unmask.load(path).predict(inputs) for path in (trained.run.path, tmp_path / "onnx"))
    for one, other in zip(ours, theirs, strict=True):
        assert other == up_to_rounding(one)


def test_training_with_a_teacher_and_auxiliary_mlm(trained: Trained, tmp_path: Path) -> None:
    words = ["--train", trained.train, "--teacher", trained.run.path, "--aux-mlm", "0.1", "--steps", 80]
    run_command("finetune", trained.start, *words, *options(trained.task), "--out", tmp_path / "run")
    steps = [e for e in Run(tmp_path / "run").events() if e["event"] == "train"]
    assert all({trained.task, "teacher", "mlm"} <= set(e) for e in steps)
    first, last = steps[0], steps[-1]
    assert last["teacher"] < 0.5 * first["teacher"] and last[trained.task] < 0.8 * first[trained.task]
    loss = 0.5 * last[trained.task] + 0.5 * last["teacher"] + 0.1 * last["mlm"]
    assert last["loss"] == pytest.approx(loss, rel=1e-5)


# --------------------------------------------------------------------- an objective, a family, an optimizer, a format


def test_objective_family_optimizer_and_format_work_in_a_run(tmp_path):
    texts = [(("good", "bad")[n % 2], f"a {('fine', 'dull')[n % 2]} film about number {n}") for n in range(80)]
    data = tmp_path / "texts.bars"
    data.write_text("".join(f"{label}|{text}\n" for label, text in texts))
    common = {"preset": "extra-tiny", "objective": "parity", "batch_size": 8, "max_length": 16}
    sets = ["train.optimizer=signs", "train.num_evals=1"]
    run = unmask.pretrain(data, steps=4, out=tmp_path / "run", overrides=sets, **common)
    config = json.loads((run.model / "config.json").read_text())
    assert (config["model_type"], config["hidden_size"]) == ("extra", 32)
    assert "other" in str(json.loads((run.path / "data.json").read_text()))
    loaded = hf.load(run.model)
    assert not loaded.missing and not loaded.unexpected
    first = Model(loaded.config, loaded.model.heads).init(0)
    assert not torch.equal(loaded.model.heads["even"].weight, first.heads["even"].weight), "the head was trained"
    model = unmask.load(run.path)
    assert model.engine.config.family == "extra" and len(model.fill("a fine [MASK]", top_k=3).masks) == 1
    tuned = unmask.finetune(
        run.path, train=data, steps=4, batch_size=8, max_length=16, out=tmp_path / "tuned", overrides=sets
    )
    assert {answer["label"] for answer in unmask.predict(tuned.path, ["a dull film"])} <= {"good", "bad"}
    assert FAMILIES["bert"].base == "bert-base", "built-in names take precedence"
    table = tmp_path / "a.csv"
    table.write_text("text,label\nfine,good\n")
    assert open_source(str(table), []).columns == ["text", "label"]


def test_names_are_unknown_without_the_package(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [path for path in sys.path if path != str(site)])
        reload_entry_points()
        for kind, name in ((TASKS, "wait"), (OBJECTIVES, "parity"), (FORMATS, "bars"), (HEADS, "dial")):
            assert name not in kind
        with pytest.raises(UserError, match="must be 'muon' or 'adamw'"):
            Recipe.build({"train": {"optimizer": "signs"}})
        with pytest.raises(UserError, match="unknown preset 'extra-tiny'"):
            preset("extra-tiny")
    reload_entry_points()
    assert "wait" in TASKS


def test_optimizer_state_resumes():
    settings = TrainRecipe(optimizer="signs")
    uninterrupted, resumed = (Model(preset("extra-tiny", vocab_size=50)).init(0).eval() for _ in range(2))

    def train(model, optimizers, steps):
        for step in steps:
            optimizers.zero_grad()
            ids = torch.tensor([[2, step + 5, 3]])
            model.logits("mlm", model(ids)[0]).square().sum().backward()
            optimizers.step(1.0)

    train(uninterrupted, Optimizers(uninterrupted, settings, dict(uninterrupted.named_parameters())), range(4))
    first = Optimizers(resumed, settings, dict(resumed.named_parameters()))
    train(resumed, first, range(2))
    again = Optimizers(resumed, settings, dict(resumed.named_parameters()))
    again.load_state(first.state())
    train(resumed, again, range(2, 4))
    for a, b in zip(uninterrupted.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
