"""Folders that an earlier version wrote: killed runs go on to their end, finished ones are shown, models and stores open.

`make_old.py` says how they were made. Never make them anew to have this pass: people have such folders.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import old_folders, recordings
from golden.renamed import current

EXPECTED = json.loads((old_folders.FOLDER / "expected.json").read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("old")
    old_folders.unpack(path)
    with recordings.place(path):
        yield path


def assert_as_before(found: Any, expected: Any) -> None:
    """Whatever the order of the keys."""
    found, expected = (json.loads(json.dumps(current(each), sort_keys=True)) for each in (found, expected))
    moved = list(recordings.differences(found, expected))
    assert not moved, "\n".join(moved[:10])


@pytest.mark.parametrize("kind", old_folders.UNFINISHED)
def test_a_killed_run_goes_on_to_the_same_end(kind: str) -> None:
    run = Path("unfinished", kind)
    assert (
        list(run.rglob("checkpoints/step-*")) and not (run / "results.json").exists() and not (run / "model").exists()
    )
    assert_as_before(old_folders.resumed(kind), EXPECTED["resumed"][kind])


@pytest.mark.parametrize("kind", old_folders.FINISHED)
def test_a_finished_run_is_shown(kind: str) -> None:
    assert_as_before(old_folders.described(f"finished/{kind}"), EXPECTED["finished"][kind])


@pytest.mark.parametrize("name", old_folders.TASKS)
def test_a_model_answers(name: str) -> None:
    assert_as_before(old_folders.answered(name), EXPECTED["tasks"][name])


@pytest.mark.parametrize("family", old_folders.FAMILIES)
def test_a_pretrained_model_opens(family: str) -> None:
    assert_as_before(old_folders.shown(family), EXPECTED["families"][family])


def test_a_store_opens() -> None:
    assert_as_before(old_folders.batch_of_store(), EXPECTED["store"])


def test_recipes_mean_the_same() -> None:
    assert_as_before(old_folders.recipes(), EXPECTED["recipes"])
