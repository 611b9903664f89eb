"""Checks of the files in a run folder, which may be old, damaged or written by someone else."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import read_object
from unmask.json_checks import COUNT, OBJECT, STRING, Rule, check, check_fields, list_of, or_null
from unmask.recipe import Recipe

TASK_STATE_FILES = ("task_state.json", "learnt.json")  # today's name and that of version 0.1
LENGTH_PHASE: Rule = (
    lambda v: OBJECT[0](v) and COUNT[0](v.get("start")) and COUNT[0](v.get("steps")),
    "an object with start and steps, whole numbers",
)
RULES: dict[str, dict[str, Rule]] = {
    "plan.json": {"length_phases": list_of(LENGTH_PHASE)},
    "results.json": {
        "task": or_null(STRING),
        "metric": or_null(STRING),
        **dict.fromkeys(("best", "dev", "test", "intervals"), or_null(OBJECT)),
    },
    "data.json": {"records": OBJECT, "store": STRING},
    **{name: {} for name in TASK_STATE_FILES},
    "environment.json": {"versions": OBJECT},
}

# Keys that version 0.1 wrote → today's, at the top level and in the items of lists.
RENAMED_KEYS: dict[str, dict[str, str]] = {
    "plan.json": {"stretches": "length_phases"},
    "results.json": {"over_seeds": "seed_summary", "median": "selected_seed", "baselines.on": "baselines.split"},
    "data.json": {"key": "fingerprint", "mix.key": "mix.fingerprint"},
}


def current_keys(name: str, value: Any) -> Any:
    """Return the content of a run's JSON file with the keys of version 0.1 renamed.

    >>> current_keys("results.json", {"median": 1, "baselines": [{"on": "dev"}]})
    {'selected_seed': 1, 'baselines': [{'split': 'dev'}]}
    """
    if name not in RENAMED_KEYS or not isinstance(value, dict):
        return value
    names = RENAMED_KEYS[name]
    value = {names.get(key, key): item for key, item in value.items()}
    for path, new in names.items():
        outer, _, key = path.rpartition(".")
        if isinstance(items := value.get(outer), list):
            new = new.rpartition(".")[2]
            value[outer] = [
                {new if k == key else k: v for k, v in i.items()} if isinstance(i, dict) else i for i in items
            ]
    return value


@contextmanager
def explain_damage(path: str | Path) -> Iterator[None]:
    """Raise a UserError that names the damaged file if code inside fails on the content of a run's files."""
    try:
        yield
    except UserError:
        raise
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, OverflowError) as error:
        check_files(Path(path))
        raise UserError(
            f"{path}: one of its files has unexpected content ({type(error).__name__}: {error})",
            expected="a run folder written by unmask",
        ) from None


def check_files(folder: Path) -> None:
    """Raise a UserError for the first file and field with unexpected content."""
    for name, rules in RULES.items():
        if (folder / name).exists():
            check_fields(folder / name, current_keys(name, read_object(folder / name, finite=False)), rules)
    recipe: dict[str, Any] = Recipe.read(folder / "recipe.yaml") if (folder / "recipe.yaml").exists() else {}
    for name in ("init_from", "preset", "objective"):
        check(folder / "recipe.yaml", name, recipe.get(name), or_null(STRING))
    try:
        Recipe.build(recipe)
    except UserError as error:
        raise UserError(f"{folder / 'recipe.yaml'}: {error.message[:400]}", expected=error.expected) from None
