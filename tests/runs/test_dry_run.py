"""`unmask finetune --dry-run` prints the plan of a run without training or writing anything."""

import json
from pathlib import Path

import pytest
from runs.tiny import labeled, model_folder, tagged
from typer.testing import CliRunner

from unmask import api
from unmask.cli import app
from unmask.cli.show.tables import finetune_dry_run_lines
from unmask.errors import UserError
from unmask.runs import dry_run


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("start"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dry_run, "TIMING_SECONDS", 0.0)
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_dry_run_predicts_the_run_and_writes_nothing(start: Path, here: Path) -> None:
    train, test = labeled(here / "train.csv", 60), labeled(here / "test.csv", 20, 100)
    before, weights = snapshot(here), snapshot(start)
    estimate = api.dry_run_finetune(start, train=train, test=test, epochs=2, batch_size=8)
    assert snapshot(here) == before and snapshot(start) == weights
    part = estimate["tasks"]["classify"]
    assert part["columns"] == {"text": "text", "label": "label"} and part["labels"] == ["neg", "pos"]
    assert part["records"] == {"train": 54, "dev": 6, "test": 20} and part["warnings"] == len(part["findings"])
    assert 0 < part["tokens"]["median"] <= part["tokens"]["p95"] <= part["tokens"]["longest"] <= part["tokens"]["row"]
    assert estimate["minutes"] > 0 and estimate["memory_bytes"]["weights"] == 4 * part["parameters"]
    run = api.finetune(start, train=train, test=test, epochs=2, batch_size=8, out=here / "run")
    plan, recipe = run.read_json("plan.json")["length_phases"][-1], run.recipe()
    assert estimate["steps"] == plan["steps"] and estimate["epochs"] == 2 and estimate["lr"] == recipe.train.lr
    assert run.read_json("data.json")["records"] == part["records"]
    assert estimate["recipe"]["task"]["name"] == "classify" and recipe.train.max_eval_examples == 2000


def test_command_line_prints_text_and_json(start: Path, here: Path) -> None:
    labeled(here / "train.csv", 90)  # some of them twice
    words = [
        "finetune",
        str(start),
        "--train",
        "train.csv",
        "--steps",
        "7",
        "--batch-size",
        "16",
        "--num-seeds",
        "2",
        "--baseline",
    ]
    shown = CliRunner().invoke(app, [*words, "--dry-run"])
    assert shown.exit_code == 0, shown.output
    for text in (
        "classify (text ← text, label ← label)",
        "81 train, 9 dev",
        "pos",
        "7 with 16 rows each",
        "for 2 seeds",
    ):
        assert text in shown.stdout, text
    assert "the baselines" in shown.stdout and "nothing was written" in shown.stdout and "warning" in shown.stdout
    json_result = CliRunner().invoke(app, [*words, "--dry-run", "--json"])
    assert json.loads(json_result.stdout)["steps"] == 7 and json.loads(json_result.stdout)["seeds"] == 2
    assert not (here / "runs").exists()
    both = CliRunner().invoke(app, ["finetune", "--resume", "runs/x", "--dry-run"])
    assert both.exit_code == 2 and "--dry-run" in both.output


def test_file_errors_match_those_of_a_run(start: Path, here: Path) -> None:
    (here / "train.csv").write_text("text,label\na film,pos\nanother,\n")
    with pytest.raises(UserError, match=r"train.csv:3: no label"):
        api.dry_run_finetune(start, train="train.csv")


def test_incompatible_teacher_raises(start: Path, here: Path) -> None:
    labeled(here / "train.csv", 40)
    with pytest.raises(UserError, match="no such file or folder: nosuch"):
        api.dry_run_finetune(start, train="train.csv", teacher="nosuch")
    tagged(here / "train.jsonl", 40)
    run = api.finetune(start, task="tag", train="train.jsonl", steps=1, out=here / "tagger")
    with pytest.raises(UserError, match="the teacher's task is tag, this one is classify"):
        api.dry_run_finetune(start, train="train.csv", teacher=str(run.path))
    for bad in ("nosuch", str(run.path)):
        with pytest.raises(UserError):
            api.finetune(start, train="train.csv", teacher=bad)
    assert not list((here / "runs").glob("*/*"))  # no files are left behind


def test_small_data_uses_small_batches_unless_batch_size_is_given(start: Path, here: Path) -> None:
    labeled(here / "train.csv", 40)
    assert api.dry_run_finetune(start, train="train.csv")["batch"] == 8
    assert api.dry_run_finetune(start, train="train.csv", batch_size=16)["batch"] == 16
    assert api.dry_run_finetune(start, train="train.csv", overrides=["train.batch_size=16"])["batch"] == 16
    labeled(here / "many.csv", 2000)
    assert api.dry_run_finetune(start, train="many.csv")["batch"] == 16
    rows = "".join(f"a film {n},film number {n}\n" for n in range(40))
    (here / "pairs.csv").write_text("anchor,positive\n" + rows)  # the batch size of embed defines its negatives
    assert api.dry_run_finetune(start, task="embed", train="pairs.csv")["batch"] == 16


def test_minutes_become_steps_and_frozen_weights_need_no_gradients(start: Path, here: Path) -> None:
    labeled(here / "train.csv", 40)
    estimate = api.dry_run_finetune(start, train="train.csv", freeze="encoder", minutes=1.0)
    assert estimate["steps"] == pytest.approx((60 * 1.0) / estimate["seconds_per_step"], rel=0.5)
    part, memory = estimate["tasks"]["classify"], estimate["memory_bytes"]
    assert part["trainable_parameters"] < part["parameters"] and memory["gradients"] < 0.2 * memory["weights"]
    text = dict(finetune_dry_run_lines(estimate))
    assert f"{part['trainable_parameters']:,} trainable" in text["model"]


def test_several_tasks(start: Path, here: Path) -> None:
    tasks = {
        "mood": {"name": "classify", "train": [str(labeled(here / "a.csv", 40))]},
        "names": {"name": "tag", "train": [str(tagged(here / "b.jsonl", 30))]},
    }
    estimate = api.dry_run_finetune(start, recipe={"tasks": tasks, "train": {"epochs": 1, "batch_size": 4}})
    assert (
        estimate["tasks"]["mood"]["labels"] == ["neg", "pos"] and estimate["tasks"]["names"]["records"]["train"] == 27
    )
    assert estimate["steps"] == -(-(36 + 27) // 4)
    assert [text for label, text in finetune_dry_run_lines(estimate) if label == "task"][1].startswith("names: tag")
    for more, word in (({"num_seeds": 2}, "--num-seeds"), ({"baseline": True}, "--baseline")):
        with pytest.raises(UserError, match=f"{word} does not work with several tasks"):
            api.dry_run_finetune(start, recipe={"tasks": tasks, "task": more})
