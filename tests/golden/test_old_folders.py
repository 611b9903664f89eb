"""Directories written by an earlier version: killed runs resume, finished runs can be shown, models and stores load.

`make_old.py` documents how they were created. Never recreate them to make this pass: users have such directories.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import old_folders, recordings
from golden.renamed import to_current_names

EXPECTED = json.loads((old_folders.FOLDER / "expected.json").read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("old")
    old_folders.unpack(path)
    with recordings.working_directory(path):
        yield path


def assert_unchanged(actual: Any, expected: Any) -> None:
    """Compare, ignoring the order of keys."""
    actual, expected = (json.loads(json.dumps(to_current_names(value), sort_keys=True)) for value in (actual, expected))
    differences = list(recordings.differences(actual, expected))
    assert not differences, "\n".join(differences[:10])


@pytest.mark.parametrize("kind", old_folders.UNFINISHED)
def test_killed_run_resumes_with_the_same_results(kind: str) -> None:
    run = Path("unfinished", kind)
    assert (
        list(run.rglob("checkpoints/step-*")) and not (run / "results.json").exists() and not (run / "model").exists()
    )
    assert_unchanged(old_folders.resume_run(kind), EXPECTED["resumed"][kind])


@pytest.mark.parametrize("kind", old_folders.FINISHED)
def test_info_of_a_finished_run_is_unchanged(kind: str) -> None:
    assert_unchanged(old_folders.run_info(f"finished/{kind}"), EXPECTED["finished"][kind])


@pytest.mark.parametrize("name", old_folders.TASKS)
def test_task_model_predictions_are_unchanged(name: str) -> None:
    assert_unchanged(old_folders.task_model_values(name), EXPECTED["tasks"][name])


@pytest.mark.parametrize("family", old_folders.FAMILIES)
def test_pretrained_model_output_is_unchanged(family: str) -> None:
    assert_unchanged(old_folders.pretrained_model_values(family), EXPECTED["families"][family])


def test_store_batch_is_unchanged() -> None:
    assert_unchanged(old_folders.store_batch(), EXPECTED["store"])


def test_recipe_plans_are_unchanged() -> None:
    assert_unchanged(old_folders.recipe_plans(), EXPECTED["recipes"])
