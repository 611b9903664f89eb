"""A run directory that is deleted or moved during training stops the run with an error message and is not partly recreated."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from unmask import UserError, api
from unmask.text.store import TokenStore
from unmask.train import fit
from unmask.train.run import Run


@pytest.mark.parametrize("how", ["deleted", "moved"])
@pytest.mark.parametrize("event", ["train", "eval", "checkpoint"])
def test_deleted_or_moved_run_directory_stops_training(
    how: str, event: str, store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"

    class DeletingLog(fit.Log):
        def write(self, kind: str, **values: Any) -> None:
            super().write(kind, **values)
            if kind == event and out.exists():
                shutil.rmtree(out) if how == "deleted" else out.rename(tmp_path / "elsewhere")

    monkeypatch.setattr(fit, "Log", DeletingLog)
    sets = ["train.eval_steps=2", "train.save_steps=3", "train.logging_steps=1", "train.max_eval_examples=4"]
    with pytest.raises(UserError, match="was deleted or moved while a run was writing into it"):
        api.pretrain(
            str(store.path),
            preset="bert-tiny",
            objective="mlm",
            steps=6,
            max_length=32,
            batch_size=2,
            out=out,
            overrides=sets,
        )
    assert not out.exists()


def test_writing_results_into_a_deleted_run_raises(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", "finetune", "x")

    def finish() -> None:
        with run.lock():
            shutil.rmtree(run.path)
            run.write_json("results.json", {})

    with pytest.raises(UserError, match="was deleted or moved"):
        finish()
