"""What is said before training: how many records are too long, and of how many; what several processes change."""

import json
from pathlib import Path
from typing import Any

import pytest
from lab.tiny import model_folder

from unmask.console import Console
from unmask.runs import finetune
from unmask.runs.job import Job, make_recipe, prepare
from unmask.train.distributed import World

LONG = "anna saw a good film number one . " * 20
FILES: dict[str, list[dict[str, Any]]] = {
    "rank": [{"query": f"film {n}", "passages": [LONG, LONG + "x", "bob"], "relevance": [1, 0, 0]} for n in range(6)],
    "embed": [{"text": LONG, "positive": f"{LONG} {n}", "negatives": [LONG + "y"]} for n in range(6)],
    "classify": [{"text": LONG if n < 2 else f"bob {n}", "label": "ab"[n % 2]} for n in range(6)],
}


class Said(Console):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, text: str, style: str | None = None) -> None:
        self.lines.append(text)


def job_of(name: str, tmp_path: Path, *sets: str) -> Job:
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in FILES[name]))
    values = {
        "start": str(model_folder(tmp_path / "start")),
        "task": {"kind": name, "train": [str(file)], "length": 24},
    }
    return prepare(make_recipe(values, sets))


@pytest.mark.parametrize(("name", "longer"), [("rank", 6), ("embed", 6), ("classify", 2)])
def test_records_are_counted_not_their_texts(name: str, longer: int, tmp_path: Path) -> None:
    job, console = job_of(name, tmp_path), Said()
    finetune.rows_of(job)
    finetune.say_remarks(job, console, World(0, 1), 9)  # 3 of them rewritten
    assert [line for line in console.lines if f"{longer} of 9 records are longer than a row of 24" in line]


def test_what_is_made_beside_the_file_s_records_is_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `train` counts them."""
    job, console = job_of("classify", tmp_path, "train.steps=1"), Said()
    more = [{"at": "new:1", "text": LONG, "label": "a"}]
    monkeypatch.setattr(finetune.augment, "rows", lambda *_: more)
    finetune.train(job, finetune.Run.create(tmp_path / "run", "finetune", "classify"), World(0, 1), console)
    assert [line for line in console.lines if "3 of 7 records are longer" in line]


@pytest.mark.parametrize(
    ("sets", "world", "rows"), [([], World(1, 2), 4), (["train.micro_batch=2"], World(0, 1), 2), ([], World(0, 1), 0)]
)
def test_negatives_are_those_of_a_forward_pass_and_that_is_said(
    sets: list[str], world: World, rows: int, tmp_path: Path
) -> None:
    job, console = job_of("embed", tmp_path, "train.batch=8", *sets), Said()
    finetune.rows_of(job)
    finetune.say_remarks(job, console, world, 6)
    said = [line for line in console.lines if "negatives" in line]
    assert len(said) == bool(rows) and all(f"{rows} of the 8 records" in line for line in said)


def test_others_do_not_speak_of_processes(tmp_path: Path) -> None:
    job, console = job_of("classify", tmp_path), Said()
    finetune.say_remarks(job, console, World(0, 2), 6)
    assert not [line for line in console.lines if "negatives" in line]
