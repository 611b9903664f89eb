"""Fine-tuning a model that was fine-tuned before: its head is kept if it has the same meaning, matched by label
names, and is randomly initialized otherwise.

Task state that is fitted before the first step is fitted on the training records only.

"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs.tiny import model_folder, sentence, train

from unmask.model import hf
from unmask.runs import part as jobs
from unmask.runs.part import Part
from unmask.tasks.classify import targets

TEXTS = [sentence(n)[0] for n in range(30)]
FILMS = [{"start": text.index("film"), "end": text.index("film") + 4} for text in TEXTS]


def write(path: Path, **columns: list[Any]) -> Path:
    rows = [dict(zip(("text", *columns), values)) for values in zip(TEXTS, *columns.values())]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prepare(start: Path, file: Path, *sets: str, **task: Any) -> Part:
    return jobs.prepare(jobs.make_recipe({"init_from": str(start), "task": {"train": [str(file)], **task}}, sets))


def saved(job: Part, folder: Path) -> Path:
    job.save(folder)
    return folder


def last(job: Part) -> tuple[torch.Tensor, torch.Tensor]:
    out: Any = job.model.heads[job.task.heads[0]].out
    return out.weight.detach().clone(), out.bias.detach().clone()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("start") / "model")


NUMBER = "task.classify.problem_type=regression"


def labels(*names: str) -> list[str]:
    return [names[n % len(names)] for n in range(len(TEXTS))]


def test_reordered_labels_keep_their_head_rows(start: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", label=labels("x", "y", "z"))
    first = prepare(start, file)
    torch.nn.init.normal_(first.model.heads["classify"].out.bias)  # type: ignore[union-attr,arg-type]
    folder = saved(first, tmp_path / "first")
    again = prepare(folder, file, labels=["z", "x", "y"])
    for old, new in zip(last(first), last(again), strict=True):
        assert torch.equal(old[[2, 0, 1]], new)
    assert not any("initialized randomly" in note for note in again.notes)
    answers = [job.task.predict(job.model, job.sets.dev) for job in (first, again)]
    assert [a["label"] for a in answers[0]] == [a["label"] for a in answers[1]]


def test_different_labels_reinitialize_the_head_with_a_note(start: Path, tmp_path: Path) -> None:
    folder = saved(prepare(start, write(tmp_path / "a.jsonl", label=labels("x", "y")), "seed=1"), tmp_path / "first")
    b = write(tmp_path / "b.jsonl", label=labels("p", "q"))
    other = prepare(folder, b)
    assert torch.equal(last(other)[0], last(prepare(start, b))[0]), "must equal a start without a head"
    assert any("(x, y): a new one is initialized randomly" in note for note in other.notes)
    (folder / "unmask.json").unlink()  # a model from elsewhere: its labels are in config.json
    assert any("(x, y): a new one is initialized randomly" in note for note in prepare(folder, b).notes)
    assert not any("initialized randomly" in note for note in prepare(folder, tmp_path / "a.jsonl").notes)


def test_tag_head_is_matched_by_label_names(start: Path, tmp_path: Path) -> None:
    def tagged(label: str) -> Path:
        return write(tmp_path / f"{label}.jsonl", spans=[[{**span, "label": label}] for span in FILMS])

    first = prepare(start, tagged("WORK"), "seed=1")
    folder = saved(first, tmp_path / "first")
    again = prepare(folder, tagged("WORK"), labels=["I-WORK", "O", "B-WORK"])
    order = [first.task.task_state["labels"].index(name) for name in again.task.task_state["labels"]]
    assert order != [0, 1, 2] and torch.equal(last(again)[0], last(first)[0][order])
    other = prepare(folder, tagged("FILM"))
    assert not torch.equal(last(other)[0], last(first)[0]) and any(
        "initialized randomly" in note for note in other.notes
    )


def test_regression_keeps_the_scale_of_the_initial_model(start: Path, tmp_path: Path) -> None:
    """Before the first step, a regression model predicts as it did before, whatever the mean of the new records is."""
    file = write(tmp_path / "a.jsonl", label=[1000 + 250.5 * (n % 2) for n in range(30)])
    first = prepare(start, file, NUMBER, "train.steps=6", "train.lr=5e-3")
    run = train(first, tmp_path / "run")
    other = write(tmp_path / "b.jsonl", label=[900 + 100.5 * (n % 3) for n in range(30)])
    records = first.sets.dev
    expected = [a["value"] for a in first.task.predict(first.model, records)]
    again = prepare(run.model, other, NUMBER)
    assert again.task.task_state["sd"] > 10
    assert [a["value"] for a in again.task.predict(again.model, records)] == pytest.approx(expected, rel=1e-5)
    unfolded = prepare(
        start, file, NUMBER
    )  # a checkpoint passed by a user stores its mean and standard deviation with the head
    folder = saved(unfolded, tmp_path / "checkpoint")
    expected = [a["value"] for a in unfolded.task.predict(unfolded.model, records)]
    again = prepare(folder, other, NUMBER)
    assert [a["value"] for a in again.task.predict(again.model, records)] == pytest.approx(expected, rel=1e-5)


def test_single_output_head_is_reused_for_regression_only_if_it_was_regression(start: Path, tmp_path: Path) -> None:
    multi_label = prepare(start, write(tmp_path / "a.jsonl", label=[["x"] * (n % 2) for n in range(30)]))
    number = prepare(
        saved(multi_label, tmp_path / "several"), write(tmp_path / "b.jsonl", label=[n / 7 for n in range(30)])
    )
    assert isinstance(number.task.target_type, targets.Regression)  # type: ignore[attr-defined]
    assert any("initialized randomly" in note for note in number.notes)


def test_mean_and_class_weights_are_fitted_on_training_records(start: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", label=[float(n**2) for n in range(30)])
    job = prepare(start, file, NUMBER, dev_fraction=0.3)
    values = np.array([r["label"] for r in job.sets.train])
    assert len(job.sets.dev) > 5
    assert (job.task.task_state["mean"], job.task.task_state["sd"]) == pytest.approx((values.mean(), values.std()))
    again = jobs.prepare(job.recipe, task_state={**job.task.task_state, "mean": 0.0, "sd": 1.0})
    assert again.sets.fingerprint() == job.sets.fingerprint(), "the split must depend only on the file"
    file = write(tmp_path / "b.jsonl", label=["rare" if n < 6 else "usual" for n in range(29)] + ["once"])
    job = prepare(start, file, "task.classify.class_weight=balanced", dev_fraction=0.3)
    counts = [sum(r["label"] == name for r in job.sets.train) for name in job.task.task_state["labels"]]
    assert job.task.task_state["labels"] == ["once", "rare", "usual"] and job.task.task_state["counts"] == counts
    assert job.task.task_state["weights"] == targets.compute_class_weights(counts, "on") and sum(counts) < 30


def test_checkpoint_is_loaded_unchanged(start: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", label=[1000 + 250.5 * (n % 2) for n in range(30)])
    job = prepare(start, file, NUMBER)
    torch.nn.init.normal_(job.model.heads["classify"].out.bias)  # type: ignore[union-attr,arg-type]
    folder = saved(job, tmp_path / "checkpoint")
    again = jobs.prepare(job.recipe, folder, job.task.task_state)
    assert all(torch.equal(a, b) for a, b in zip(last(job), last(again), strict=True))
    assert hf.load(folder).config.labels == ("value",)
