"""`unmask doctor`: labelled files looked at as a run would, without training anything."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.data import textcheck
from unmask.data.findings import as_rows
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UserError
from unmask.lab.labelled import read_sets, sizes
from unmask.model import hf
from unmask.recipe import Recipe

ROLES = ("train", "dev", "test")
BY_NAME = {  # a word in a file's name → its role
    "train": "train", "training": "train", "dev": "dev", "valid": "dev", "validation": "dev", "val": "dev",
    "test": "test", "heldout": "test",
}  # fmt: skip


def roles_of(files: Sequence[str], given: dict[str, list[str]]) -> dict[str, list[str]]:
    """Files without a role get it by their names; the first one is for training when none is.

    >>> roles_of(["a/train.csv", "a/my-test.csv"], {})
    {'train': ['a/train.csv'], 'dev': [], 'test': ['a/my-test.csv']}
    """
    out = {role: list(given.get(role) or []) for role in ROLES}
    for file in files:
        words = Path(file).name.lower().replace("-", ".").replace("_", ".").split(".")
        out[next((BY_NAME[word] for word in words if word in BY_NAME), "train")].append(file)
    if not out["train"]:
        first = next((role for role in ROLES if out[role]), None)
        if first is None:
            raise UserError("no file to look at", fix="unmask doctor train.csv test.csv --task classify")
        out["train"].append(out[first].pop(0))
    return out


def check_up(recipe: Recipe, files: dict[str, list[str]], model: str = "") -> dict[str, Any]:
    """Everything found in the files of each role, as plain values."""
    settings = recipe.task.model_copy(update=files)
    kind, sets = read_sets(settings)
    found = list(sets.findings)
    if model:
        config = hf.config_of(model)
        kind.check(recipe, config)
        known = kind.remember(config)
        task = kind(recipe, Tokenizer.load(model), known | {"length": recipe.task.length or known["length"]})
        found += textcheck.too_long(sets.train, kind, task.tokenizer, task.length, f"they are {task.fate()}")
        task.fit_lengths(sets.train)
        found += task.too_large([*sets.train, *sets.dev, *sets.test])
    return {
        "task": kind.name,
        "files": files,
        "records": sizes(sets),
        "errors": sum(finding.error for finding in found),
        "warnings": sum(not finding.error for finding in found),
        "findings": as_rows(found),
    }
