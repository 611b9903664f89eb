"""TensorBoard events equal log.jsonl, also after a resume; a missing package raises before anything else."""

from pathlib import Path
from typing import Any

import pytest
from runs.tiny import labeled, model_folder

from unmask import UserError, api
from unmask.train import tensorboard
from unmask.train.fit import open_log
from unmask.train.run import Run


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def logged(run: Run, event: str, key: str) -> list[tuple[int, Any]]:
    return [(e["step"], pytest.approx(e[key], rel=1e-6)) for e in run.events() if e["event"] == event and key in e]


def test_pretraining_events_match_the_log(store: Any, tmp_path: Path) -> None:
    run = api.pretrain(
        store.path, preset="bert-tiny", steps=4, batch_size=4, max_length=32, out=tmp_path / "run",
        overrides=["model.layers=1", "train.track=tensorboard", "train.num_evals=2"],
    )  # fmt: skip
    events = scalars(run.path / "tensorboard")
    assert len(events["train/loss"]) == 4
    assert events["train/loss"] == logged(run, "train", "loss")
    assert events["train/grad_norm"] == logged(run, "train", "grad_norm")
    assert events["eval/loss"] == logged(run, "eval", "loss") and events["eval/loss"][0][0] == 0


def test_finetuning_events_include_scores(tmp_path: Path) -> None:
    files = {"train": labeled(tmp_path / "train.csv", 24), "dev": labeled(tmp_path / "dev.csv", 8, 500)}
    run = api.finetune(
        model_folder(tmp_path / "start"),
        **files,
        steps=2,
        batch_size=4,
        out=tmp_path / "run",
        overrides=["train.track=tensorboard"],
    )
    events = scalars(run.path / "tensorboard")
    assert events["eval/accuracy"] == logged(run, "eval", "accuracy") and events["eval/f1"]


def test_resumed_run_purges_repeated_steps(tmp_path: Path) -> None:
    run, settings = Run(tmp_path), type("Settings", (), {"track": "tensorboard"})
    for done, loss, last in ((0, 1.0, 5), (3, 2.0, 6)):  # stopped after step 5; the last checkpoint is at step 3
        log = open_log(run, settings, done)
        for step in range(done + 1, last + 1):
            log.write("train", step=step, loss=loss)
        log.close()
    assert scalars(tmp_path / "tensorboard")["train/loss"] == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2)]


def test_no_events_are_written_by_default(store: Any, tmp_path: Path) -> None:
    run = api.pretrain(store.path, preset="bert-tiny", steps=1, batch_size=4, max_length=32, out=tmp_path / "run", overrides=["model.layers=1"])  # fmt: skip
    assert not (run.path / "tensorboard").exists()


def test_missing_package_raises_before_the_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="not installed") as caught:
        api.pretrain(tmp_path / "nothing", overrides=["train.track=tensorboard"], out=tmp_path / "run")
    assert caught.value.hint == "pip install 'unmask[track]'"
