"""Notes printed before training: how many records are too long, and what changes with several processes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs.tiny import model_folder, train

from unmask.console import Console
from unmask.errors import UserError
from unmask.labels.records import Finding
from unmask.runs import augment
from unmask.runs.context import Context
from unmask.runs.part import Part, build_train_loader, make_recipe, prepare, training_notes
from unmask.tasks.classify.task import Classify
from unmask.train.distributed import World

LONG = "anna saw a good film number one . " * 20
FILES: dict[str, list[dict[str, Any]]] = {
    "rank": [{"query": f"film {n}", "passages": [LONG, LONG + "x", "bob"], "relevance": [1, 0, 0]} for n in range(6)],
    "embed": [{"text": LONG, "positive": f"{LONG} {n}", "negatives": [LONG + "y"]} for n in range(6)],
    "classify": [{"text": LONG if n < 2 else f"bob {n}", "label": "ab"[n % 2]} for n in range(6)],
}


class RecordingConsole(Console):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, text: str, style: str | None = None) -> None:
        self.lines.append(text)


def job_of(name: str, tmp_path: Path, *sets: str) -> Part:
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in FILES[name]))
    values = {
        "init_from": str(model_folder(tmp_path / "start")),
        "task": {"name": name, "train": [str(file)], "max_length": 24},
    }
    return prepare(make_recipe(values, sets))


@pytest.mark.parametrize(("name", "longer"), [("rank", 6), ("embed", 6), ("classify", 2)])
def test_long_records_are_counted_not_their_texts(name: str, longer: int, tmp_path: Path) -> None:
    job = job_of(name, tmp_path)
    build_train_loader(job)
    notes = training_notes(job, Context.single_process(), 9)  # 3 of them are augmented
    assert [line for line in notes if f"{longer} of 9 records are longer than a row of 24" in line]


def test_augmented_records_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of records is the one `train` uses."""
    job, console = job_of("classify", tmp_path, "train.steps=1"), RecordingConsole()
    more = [{"location": "new:1", "text": LONG, "label": "a"}]
    monkeypatch.setattr(augment, "rows", lambda *_: more)
    train(job, tmp_path / "run", console=console)
    assert [line for line in console.lines if "3 of 7 records are longer" in line]


def test_error_from_fit_state_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of fit_state stops a run like an error in the file; a warning is added to the findings."""
    fit = Classify.fit_state

    def fit_with_finding(error: bool) -> Any:
        return lambda *args: replace(fit(*args), findings=[Finding("train.jsonl:3", "an odd text", error=error)])

    monkeypatch.setattr(Classify, "fit_state", fit_with_finding(error=False))
    assert "an odd text" in [finding.message for finding in job_of("classify", tmp_path).sets.findings]
    monkeypatch.setattr(Classify, "fit_state", fit_with_finding(error=True))
    with pytest.raises(UserError, match=r"train\.jsonl:3: an odd text"):
        job_of("classify", tmp_path)


@pytest.mark.parametrize(
    ("sets", "world", "rows"),
    [([], World(1, 2), 4), (["train.micro_batch_size=2"], World(0, 1), 2), ([], World(0, 1), 0)],
)
def test_number_of_in_batch_negatives_is_reported(sets: list[str], world: World, rows: int, tmp_path: Path) -> None:
    job = job_of("embed", tmp_path, "train.batch_size=8", *sets)
    build_train_loader(job)
    notes = [line for line in training_notes(job, Context(world, Console(quiet=True)), 6) if "negatives" in line]
    assert len(notes) == bool(rows) and all(f"{rows} of the 8 records" in line for line in notes)


def test_other_tasks_do_not_mention_negatives(tmp_path: Path) -> None:
    notes = training_notes(job_of("classify", tmp_path), Context(World(0, 2), Console(quiet=True)), 6)
    assert not [line for line in notes if "negatives" in line]
