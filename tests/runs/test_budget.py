"""A fine-tuning budget in minutes is converted to steps once and frozen; a budget in tokens raises."""

from pathlib import Path
from typing import Any

import pytest
from runs.tiny import labeled, model_folder

from unmask import UserError, api
from unmask.runs import budget
from unmask.runs.part import make_recipe
from unmask.train.run import Run


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    real = budget.seconds_per_step
    monkeypatch.setattr(
        budget, "seconds_per_step", lambda t, rows, step_config, *_: real(t, rows, step_config, 0.1, False) and 0.05
    )


def run_in(tmp_path: Path, name: str, *sets: str, **settings: Any) -> Run:
    start, file = tmp_path / "start", tmp_path / "train.csv"
    if not file.exists():
        model_folder(start)
        labeled(file, 40)
    sets = ("train.batch_size=4", "train.num_evals=1", "seed=2", *sets)
    return api.finetune(start, train=file, out=tmp_path / name, overrides=sets, **settings)


def steps(run: Run) -> int:
    return len([e for e in run.events() if e["event"] == "train"])


def test_minutes_budget_gives_the_same_weights_as_its_number_of_steps(tmp_path: Path) -> None:
    timed = run_in(tmp_path, "timed", "train.minutes=0.01")  # 0.6 s at 0.05 s per step, minus the evaluation
    done, train_recipe = steps(timed), timed.recipe().train
    assert 6 <= done <= 12 and (train_recipe.steps, train_recipe.minutes, train_recipe.epochs) == (done, None, None)
    again = run_in(tmp_path, "again", f"train.steps={done}")
    assert (again.model / "model.safetensors").read_bytes() == (timed.model / "model.safetensors").read_bytes()
    assert 6 <= steps(run_in(tmp_path, "keyword", minutes=0.01)) <= 12


def test_minutes_budget_with_several_tasks(tmp_path: Path) -> None:
    start, file = model_folder(tmp_path / "start"), labeled(tmp_path / "train.csv", 40)
    values = {"init_from": str(start), "tasks": {name: {"train": [str(file)]} for name in ("one", "two")}}
    sets = ["train.minutes=0.01", "train.batch_size=4", "train.num_evals=1", "train.lr=0.001"]
    recipe = make_recipe(values, sets)
    run = api.finetune(recipe=recipe, out=tmp_path / "run")
    assert 6 <= steps(run) <= 12 and run.recipe().train.steps == steps(run) and run.recipe().train.minutes is None


@pytest.mark.parametrize(
    "setting", ["document_attention=same_document", "embedding_init=random", "compile=on", "max_length=64"]
)
def test_pretraining_only_settings_raise(tmp_path: Path, setting: str) -> None:
    with pytest.raises(UserError, match=f"train.{setting}: fine-tuning does not use this setting"):
        run_in(tmp_path, "run", f"train.{setting}")
    with pytest.raises(UserError, match=f"train.{setting}: fine-tuning does not use this setting"):
        run_in(tmp_path, "run", f"train.{setting}", num_seeds=2)
    assert not (tmp_path / "run").exists()


def test_token_budget_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tokens") as error:
        run_in(tmp_path, "run", "train.tokens=1000")
    assert "epochs" in str(error.value) and "steps" in str(error.value)
