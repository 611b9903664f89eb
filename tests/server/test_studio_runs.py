"""Runs are read incrementally while they are being written, and nothing outside of their directory is opened."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from unmask import UserError, api
from unmask.server.studio.runs import CHUNK_BYTES, Runs
from unmask.train.run import Run


def make(root: Path, name: str, events: list[dict[str, Any]], **recipe: Any) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(json.dumps({"preset": "bert-tiny", "objective": "mlm", "seed": 0} | recipe))
    (folder / "plan.json").write_text(json.dumps({"length_phases": [{"start": 0, "steps": 10}]}))
    write(folder, events)
    return folder


def write(folder: Path, events: list[dict[str, Any]], end: str = "") -> None:
    with open(folder / "log.jsonl", "a") as file:
        file.write("".join(json.dumps(event) + "\n" for event in events) + end)


def step(n: int, loss: float = 1.0) -> dict[str, Any]:
    return {"event": "train", "step": n, "loss": loss}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_every_run_is_listed_with_its_progress(root: Path) -> None:
    make(root, "pretrain/a-1", [step(1, 4.0), step(2, 3.5), {"event": "eval", "step": 2, "loss": 3.0}])
    ended = make(root, "finetune/b-1", [step(9)], task={"name": "classify", "train": ["x.csv"]}, start="runs/a/model")
    (ended / "results.json").write_text('{"task": "classify"}')
    make(root, "pretrain/broken-1", [{"event": "error", "step": 3, "text": "the loss is nan"}])
    entries = {entry["name"]: entry for entry in Runs(root).entries()}
    assert set(entries) == {"pretrain/a-1", "finetune/b-1", "pretrain/broken-1"}
    first, second, third = entries["pretrain/a-1"], entries["finetune/b-1"], entries["pretrain/broken-1"]
    assert (first["state"], first["steps"], first["what"]) == ("interrupted", {"done": 2, "total": 10}, "mlm")
    assert first["train"]["loss"] == 3.5 and first["eval"] == {"step": 2, "loss": 3.0}
    assert (second["state"], second["verb"], second["what"]) == ("finished", "finetune", "classify")
    assert second["start"] == "runs/a"
    assert third["state"] == "failed" and third["warnings"] == ["the loss is nan"]


def test_locked_run_is_running_and_its_entry_follows_the_log(root: Path) -> None:
    folder = make(root, "pretrain/a-1", [step(1)])
    runs = Runs(root)
    with Run(folder).lock():
        assert runs.entries()[0]["state"] == "running"
        write(folder, [step(5, 0.5)])
        assert runs.entries()[0]["steps"]["done"] == 5 and runs.entries()[0]["train"]["loss"] == 0.5
    assert runs.entries()[0]["state"] == "interrupted"


def test_log_is_read_from_the_last_offset(root: Path) -> None:
    folder, runs = make(root, "a", [step(1), step(2)]), Runs(root)
    first = runs.log("a")
    assert [e["step"] for e in first["events"]] == [1, 2] and first["fresh"] and not first["more"]
    write(folder, [step(3)], '{"event": "train", "st')  # an incomplete line
    second = runs.log("a", first["offset"], first["file"])
    assert [e["step"] for e in second["events"]] == [3] and not second["fresh"]
    assert second["offset"] < (folder / "log.jsonl").stat().st_size
    write(folder, [], 'ep": 4}\n')
    third = runs.log("a", second["offset"], second["file"])
    assert [e["step"] for e in third["events"]] == [4]
    assert runs.log("a", third["offset"], third["file"])["events"] == []


def test_long_log_is_read_in_chunks(root: Path) -> None:
    line = {"event": "train", "step": 1, "loss": 1.0, "text": "x" * 1000}
    make(root, "a", [line] * 3000)
    runs, sizes, offset, file, more = Runs(root), [], 0, "", True
    while more:
        chunk = runs.log("a", offset, file)
        sizes.append(chunk["offset"] - offset)
        offset, file, more = chunk["offset"], chunk["file"], chunk["more"]
    assert max(sizes) <= CHUNK_BYTES and sum(sizes) == (root / "a" / "log.jsonl").stat().st_size
    assert len(sizes) == 4


def test_log_of_a_resumed_run_is_read_from_the_start(root: Path) -> None:
    folder, runs = make(root, "a", [step(n) for n in range(1, 9)]), Runs(root)
    before = runs.log("a")
    Run(folder).truncate_log(3)
    write(folder, [step(n, 9.0) for n in range(4, 20)])  # longer than before, so the size alone is not enough
    after = runs.log("a", before["offset"], before["file"])
    assert after["fresh"] and [e["step"] for e in after["events"]] == list(range(1, 20))


@pytest.mark.parametrize(
    "name",
    ["../secret", "a/../../secret", "/etc", "link", "a/../link", "nothing", "", ".", "a\0b", "x" * 900, "~", "a/model"],
    ids=lambda name: name.replace("\0", "NUL")[:20] or "empty",
)
def test_run_names_cannot_escape_the_folder(root: Path, name: str) -> None:
    make(root, "a", [step(1)])
    make(root.parent, "secret", [step(1)])
    (root / "link").symlink_to(root.parent / "secret")
    runs = Runs(root)
    assert [entry["name"] for entry in runs.entries()] == ["a"]
    for read in (runs.details, runs.log, runs.batch, runs.report):
        with pytest.raises(UserError, match="no run"):
            read(name)


def test_symlink_out_of_the_folder_raises(root: Path) -> None:
    folder = make(root, "a", [step(1)])
    secret = root.parent / "secret.txt"
    secret.write_text('{"event": "train", "step": 7}\n')
    for name in ("log.jsonl", "report.html", "results.json", "recipe.yaml"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(secret)
    runs = Runs(root)
    for read in (runs.log, runs.report, runs.details):
        with pytest.raises(UserError, match="leads out"):
            read("a")
    assert "leads out" in runs.entries()[0]["problem"]


def test_symlink_loops_are_skipped_and_broken_runs_listed_as_failed(root: Path) -> None:
    make(root, "a", [step(1)])
    (root / "loop").symlink_to(root / "loop")
    (root / "up").symlink_to(root)
    (root / "bad").mkdir()
    (root / "bad" / "recipe.yaml").write_text("[1, 2")
    states = {entry["name"]: entry["state"] for entry in Runs(root).entries()}
    assert states["a"] == "interrupted" and states["bad"] == "failed"


def test_compare_lists_different_settings(root: Path) -> None:
    make(root, "a", [], train={"lr": 0.1, "batch_size": 8})
    make(root, "b", [], train={"lr": 0.2, "batch_size": 8}, seed=3)
    differences = {row["key"]: (row["a"], row["b"]) for row in Runs(root).compare("a", "b")}
    assert differences == {"train.lr": (0.1, 0.2), "seed": (0, 3)}


def test_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        Runs(tmp_path / "nothing")


def test_newest_models_are_listed_by_name(root: Path) -> None:
    for number, name in enumerate(["pretrain/a-1", "pretrain/a b", "tune/a-1", "unfinished"]):
        folder = make(root, name, [{"event": "end", "step": 10}] if name != "unfinished" else [step(1)])
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")
        for file in folder.rglob("*"):
            os.utime(file, (number + 1, number + 1))
    root = root.resolve()
    assert Runs(root).models(2) == [f"a-1={root / 'tune/a-1'}", f"a-b={root / 'pretrain/a b'}"]
    assert Runs(root).models(0) == []


def test_a_run_is_listed_with_its_score_on_test_or_dev(root: Path) -> None:
    for name, results in {
        "both": {"metric": "accuracy", "dev": {"accuracy": 0.5}, "test": {"records": 8, "accuracy": 0.75}},
        "dev": {"metric": "f1", "dev": {"f1": 0.5}},
        "odd": {"metric": ["f1"], "dev": {"f1": 0.5}, "test": 3},
        "none": {"metric": "f1", "test": {"f1": None}},
    }.items():
        (make(root, name, [step(9)], task={"name": "classify"}) / "results.json").write_text(json.dumps(results))
    scores = {entry["name"]: entry["score"] for entry in Runs(root).entries()}
    assert scores["both"] == {"split": "test", "metric": "accuracy", "value": 0.75}
    assert scores["dev"] == {"split": "dev", "metric": "f1", "value": 0.5}
    assert scores["odd"] is None and scores["none"] is None


def test_best_model_of_the_newest_run_is_first(root: Path) -> None:
    """A quickstart is one run with several parts; the last one written is not always the best."""
    scores = {"finetune/old": 0.99, "quickstart-1/pretrain": None, "quickstart-1/good": 0.9, "quickstart-1/bad": 0.6}
    for number, (name, score) in enumerate(scores.items()):
        folder = make(root, name, [{"event": "end", "step": 10}])
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")
        if score is not None:
            results = {"metric": "accuracy", "test": {"accuracy": score}}
            (folder / "results.json").write_text(json.dumps(results))
        for file in folder.rglob("*"):
            os.utime(file, (number + 1, number + 1))
    (root / "quickstart-1" / "results.json").write_text("{}")
    names = [text.split("=")[0] for text in Runs(root).models(4)]
    assert names == ["good", "bad", "pretrain", "old"]


def test_details_and_batch_of_a_real_run(store: Any, root: Path) -> None:
    run = api.pretrain(
        store.path,
        preset="bert-tiny",
        steps=2,
        batch_size=4,
        max_length=32,
        out=root / "a",
        overrides=["model.layers=1"],
    )
    runs = Runs(root)
    batch = runs.batch("a")
    assert len(batch["rows"]) == 4 and any(part["state"] == "masked" for row in batch["rows"] for part in row["parts"])
    details = runs.details("a")
    assert details["state"] == "finished" and details["batch"] and details["recipe"]["preset"] == "bert-tiny"
    assert b"<html" in runs.report("a")
    (run.path / "data.json").write_text('{"store": "/nowhere"}')
    with pytest.raises(UserError, match="no longer in the cache"):
        runs.batch("a")
