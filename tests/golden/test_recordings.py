"""What tiny runs give has not moved: every objective, every task, several tasks, seeds, baselines, a search, exports.

The runs are in `recordings.py`, which also writes the files anew when a change is wanted.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import recordings
from golden.renamed import current

CASES = [name for name in recordings.CASES if name not in recordings.ONLY_HERE]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all cases: a model is pre-trained once, and fine-tuned by many."""
    path = tmp_path_factory.mktemp("recordings")
    with recordings.place(path):
        yield path


@pytest.mark.parametrize("name", CASES)
def test_a_run_gives_what_was_recorded(name: str) -> None:
    expected = current(json.loads(recordings.file_of(name).read_text("utf-8")))
    found = current(json.loads(json.dumps(recordings.record(name))))
    moved = list(recordings.differences(found, expected))
    assert not moved, "\n".join(moved[:10])


def test_nothing_is_recorded_that_no_run_gives() -> None:
    assert {file.name for file in recordings.FOLDER.iterdir()} == {recordings.file_of(name).name for name in CASES}


def test_a_difference_is_one_beyond_the_tolerance() -> None:
    expected = {"loss": [2.0, 0.0], "name": "a"}
    assert not list(recordings.differences({"loss": [2.0003, 1e-5], "name": "a"}, expected))
    assert list(recordings.differences({"loss": [2.0005, 1e-4], "name": "b"}, expected)) == [
        "loss.0: 2.0005 instead of 2.0", "loss.1: 0.0001 instead of 0.0", "name: 'b' instead of 'a'"
    ]  # fmt: skip
    assert list(recordings.differences({"loss": [2.0], "more": 1}, expected))
    assert list(recordings.differences({"loss": [2.0000001, 0.0], "name": "a"}, expected, 0, 0))
