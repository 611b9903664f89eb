"""Results of tiny runs are unchanged: every objective, every task, multi-task training, seeds, baselines, a search, exports.

The runs are in `recordings.py`, which also rewrites the files after an intended change.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import recordings
from golden.renamed import to_current_names

CASES = [name for name in recordings.CASES if name not in recordings.ONLY_HERE]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One directory for all cases, since several cases fine-tune the same pre-trained model."""
    path = tmp_path_factory.mktemp("recordings")
    with recordings.working_directory(path):
        yield path


@pytest.mark.parametrize("name", CASES)
def test_run_matches_its_recording(name: str) -> None:
    expected = to_current_names(json.loads(recordings.file_of(name).read_text("utf-8")))
    actual = to_current_names(json.loads(json.dumps(recordings.record(name))))
    differences = list(recordings.differences(actual, expected))
    assert not differences, "\n".join(differences[:10])


def test_every_recording_belongs_to_a_case() -> None:
    assert {file.name for file in recordings.FOLDER.iterdir()} == {recordings.file_of(name).name for name in CASES}


def test_differences_within_the_tolerance_are_ignored() -> None:
    expected = {"loss": [2.0, 0.0], "name": "a"}
    assert not list(recordings.differences({"loss": [2.0003, 1e-5], "name": "a"}, expected))
    assert list(recordings.differences({"loss": [2.0005, 1e-4], "name": "b"}, expected)) == [
        "loss.0: 2.0005 instead of 2.0", "loss.1: 0.0001 instead of 0.0", "name: 'b' instead of 'a'"
    ]  # fmt: skip
    assert list(recordings.differences({"loss": [2.0], "more": 1}, expected))
    assert list(recordings.differences({"loss": [2.0000001, 0.0], "name": "a"}, expected, 0, 0))
