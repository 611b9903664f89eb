"""Hyperparameter search: the first trial uses the recipe, the best trial is kept and evaluated, a killed search
resumes, and pruned trials keep no weights."""

import csv
import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from near import near
from runs.tiny import labeled, model_folder, sentence
from safetensors.torch import load_file
from typer.testing import CliRunner

pytest.importorskip("optuna")

from unmask import api
from unmask.cli import app
from unmask.errors import UserError
from unmask.model.sentence import SentenceTransformerConfig, write
from unmask.runs import tune
from unmask.runs.part import prepare
from unmask.train.run import Run
from unmask.train.trainer import Trainer

SETS = ["train.num_evals=3", "train.threads=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    model_folder(folder / "model")
    labeled(folder / "train.csv", 60)
    labeled(folder / "test.csv", 20, 300)
    return folder


def search(folder: Path, out: str, **more) -> Run:
    settings = {
        "trials": 4,
        "params": ["lr", "batch_size"],
        "task": "classify",
        "steps": 6,
        "batch_size": 16,
        "lr": 3e-3,
    } | more
    return api.tune(
        folder / "model",
        train=folder / "train.csv",
        test=folder / "test.csv",
        out=folder / out,
        overrides=SETS,
        **settings,
    )


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return search(folder, "run")


def params(run: Run) -> list[dict]:
    return [{k: v for k, v in t.items() if k not in ("seconds",)} for t in run.read_json("results.json")["trials"]]


def test_best_trial_is_kept_and_evaluated(run: Run, folder: Path) -> None:
    results = run.read_json("results.json")
    trials = results["trials"]
    assert len(trials) == 4 and trials[0]["lr"] == pytest.approx(3e-3) and trials[0]["batch_size"] == 16
    assert all(3e-3 / 5 <= t["lr"] <= 3e-3 * 5 and t["batch_size"] in (8, 16, 32) for t in trials)
    finished = [t["score"] for t in trials if t["state"] == "complete"]
    assert results["dev"][results["metric"]] == pytest.approx(max(finished))
    assert results["test"]["records"] == 20 and api.info(run.path)["records"]["test"] == 20
    assert (run.path / "model" / "config.json").exists() and not list(run.path.glob("trials/*/model"))
    assert not list(run.path.glob("trials/*/checkpoints"))
    rows = list(csv.DictReader((run.path / "trials.csv").open()))
    assert [row["trial"] for row in rows] == ["0", "1", "2", "3"]
    for name in ("history.png", "slices.png", "report.html", "curves.png"):
        assert (run.path / name).stat().st_size > 1000, name
    assert not list(run.path.glob("trials/*/test.predictions.jsonl")), "trials must not use the test set"
    assert api.predict(run.path, "anna saw a good film number 3 .")[0]["label"] in ("pos", "neg")


@pytest.mark.usefixtures("no_report")
def test_command_reproduces_the_best_trial(run: Run, folder: Path) -> None:
    command = run.read_json("results.json")["command"].split()
    assert command[:3] == ["unmask", "finetune", "--recipe"]
    again = api.finetune(recipe=command[3], out=folder / "again")
    a, b = (load_file(r.model / "model.safetensors") for r in (run, again))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.usefixtures("no_report")
def test_killed_search_resumes_within_a_trial(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kill(BaseException):
        pass

    real, seen = Trainer.step, []

    def step(self, number, batches):
        if len(seen) == 10:
            raise Kill
        seen.append(number)
        return real(self, number, batches)

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(Kill):
        search(folder, "killed")
    monkeypatch.setattr(Trainer, "step", real)
    info = api.info(folder / "killed")
    assert info["state"] == "interrupted" and info["resume_command"] == f"unmask tune --resume {folder / 'killed'}"
    result = CliRunner().invoke(app, ["tune", "--resume", str(folder / "killed"), "--json"])
    assert result.exit_code == 0, result.output
    assert params(Run(folder / "killed")) == params(run)
    a, b = (load_file(r / "model" / "model.safetensors") for r in (run.path, folder / "killed"))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.usefixtures("no_report")
def test_resumed_search_can_add_trials(folder: Path) -> None:
    short = search(folder, "short", trials=2)
    assert len(params(short)) == 2
    before = params(short)
    api.resume_tune(short.path, trials=3)
    assert len(params(short)) == 3 and params(short)[:2] == before
    assert (short.model / "config.json").exists()


@pytest.mark.usefixtures("no_report")
def test_bad_trials_are_pruned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial whose every evaluation is below the others' stops before its last step."""
    real = tune.suggest

    def suggest(trial, ranges):
        values = real(trial, ranges)
        return values | {"lr": 1e-9 if trial.number == 3 else 1e-2}

    monkeypatch.setattr(tune, "suggest", suggest)
    run = search(folder, "pruned", trials=4, steps=30, params=["lr"])
    states = [t["state"] for t in run.read_json("results.json")["trials"]]
    assert states[:3] == ["complete"] * 3 and states[3] == "pruned"
    done = [json.loads(line) for line in (run.path / "trials" / "003" / "log.jsonl").open()]
    assert max(e["step"] for e in done) < 30


def test_search_space_depends_on_the_model_and_the_task(folder: Path) -> None:
    recipe = api.task_recipe(folder / "model", task="classify", train="x.csv", lr=1e-4, epochs=3)
    assert set(tune.search_space(recipe)) == {"lr", "epochs", "batch_size", "layerwise_lr_decay", "warmup"}, (
        "BERT has its own pooler, so pooling is not searched"
    )
    model_folder(folder / "modern", "modernbert-mini")
    settings = {"task": "classify", "train": folder / "train.csv", "lr": 1e-4, "steps": 9, "freeze": "encoder"}
    modern = api.task_recipe(folder / "modern", **settings)
    assert set(tune.search_space(modern)) == {"lr", "batch_size", "warmup", "pooling"}
    assert tune.default_values(prepare(modern), tune.search_space(modern))["pooling"] == "cls"
    tag = api.task_recipe(folder / "modern", task="tag", train="x.csv", lr=1e-4)
    assert "pooling" not in tune.search_space(tag)
    with pytest.raises(UserError, match="--params depth"):
        tune.search_space(recipe, ["depth"])


def test_invalid_settings_raise_before_the_search(folder: Path, tmp_path: Path) -> None:
    few = labeled(tmp_path / "few.csv", 8)
    with pytest.raises(UserError, match="needs a dev set"):
        api.tune(folder / "model", train=few, task="classify", out=tmp_path / "a")
    result = CliRunner().invoke(app, ["tune", "--resume", str(tmp_path / "a"), "--lr", "1e-3"])
    assert result.exit_code == 2 and "takes all settings but --trials" in result.output


def numbered(path: Path, count: int, first: int = 0) -> Path:
    """Scores of films, far from 0 and with a large variance."""
    rows = [(sentence(n)[0], 1000 + 250 * (sentence(n)[1] == "pos") + n % 4) for n in range(first, first + count)]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


@pytest.mark.usefixtures("no_report")
def test_regression_score_equals_that_of_the_best_trial(folder: Path) -> None:
    """A trial's model stores mean and standard deviation in its last layer; they must not be applied twice."""
    numbered(folder / "numbers.csv", 60)
    settings = {"task": "classify", "trials": 2, "params": ["lr"], "steps": 20, "lr": 1e-2, "out": folder / "numbers"}
    run = api.tune(
        folder / "model",
        train=folder / "numbers.csv",
        overrides=[*SETS, "task.classify.problem_type=regression"],
        **settings,
    )
    results = run.read_json("results.json")
    assert results["metric"] == "r2"
    assert results["dev"]["r2"] == near(max(t["score"] for t in results["trials"]), 1e-5)
    assert 900 < api.predict(run.path, sentence(3)[0])[0]["value"] < 1400


@pytest.mark.usefixtures("no_report")
def test_undefined_score_raises(folder: Path) -> None:
    numbered(folder / "numbers.csv", 60)
    (folder / "constant.csv").write_text("text,label\n" + "".join(f"a good film {n},7.5\n" for n in range(8)))
    settings = {"task": "classify", "trials": 2, "params": ["lr"], "steps": 2, "out": folder / "constant"}
    with pytest.raises(UserError, match="r2, the metric that trials are compared by, is not defined"):
        api.tune(
            folder / "model",
            train=folder / "numbers.csv",
            dev=folder / "constant.csv",
            overrides=[*SETS, "task.classify.problem_type=regression"],
            **settings,
        )


def test_first_trial_uses_the_values_of_the_recipe(folder: Path, tmp_path: Path) -> None:
    rows = "".join(f"{sentence(n)[0]},{sentence(n)[0]}\n" for n in range(24))
    (tmp_path / "pairs.csv").write_text("anchor,positive\n" + rows)
    start = shutil.copytree(folder / "model", tmp_path / "cls")
    write(start, SentenceTransformerConfig(pooling="cls"), 32)

    def first(*sets: str) -> tuple[dict, dict]:
        recipe = api.task_recipe(start, task="embed", train=tmp_path / "pairs.csv", overrides=[*SETS, *sets])
        ranges = tune.search_space((job := prepare(recipe)).recipe)
        return ranges, tune.default_values(job, ranges)

    ranges, values = first("train.layerwise_lr_decay=0.5", "train.warmup=0.4", "train.epochs=2.5", "train.batch_size=1")
    assert values["pooling"] == "cls", "must be the pooling of the initial model"
    assert (values["layerwise_lr_decay"], values["warmup"], values["epochs"], values["batch_size"]) == (
        0.5,
        0.4,
        2.5,
        1,
    )
    study = tune._optuna().create_study()
    study.enqueue_trial(values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Optuna warns about values outside of a range
        assert tune.suggest(study.ask(), ranges) == values
    assert first("train.warmup=8")[0]["warmup"] == {"low": 1.0, "high": 16.0}, "must be in steps, as configured"
    for override in ("task.pooling=mean", "task.embed.pooling=mean"):
        assert "pooling" not in first(override)[0], "settings of the user must not be searched"
