"""What the files of a run hold, for those that show a run: which may be an old one, a damaged one, or someone else's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import read_object
from unmask.json_checks import COUNT, OBJECT, STRING, Rule, check, check_fields, list_of, or_null
from unmask.recipe import Recipe

STRETCH: Rule = (
    lambda v: OBJECT[0](v) and COUNT[0](v.get("start")) and COUNT[0](v.get("steps")),
    "an object with start and steps, whole numbers",
)
RULES: dict[str, dict[str, Rule]] = {
    "plan.json": {"stretches": list_of(STRETCH)},
    "results.json": {
        "task": or_null(STRING),
        "metric": or_null(STRING),
        **dict.fromkeys(("best", "dev", "test", "intervals"), or_null(OBJECT)),
    },
    "data.json": {"records": OBJECT, "store": STRING},
    "task_state.json": {},
    "learnt.json": {},  # of version 0.1
    "environment.json": {"versions": OBJECT},
}


@contextmanager
def shown(path: str | Path) -> Iterator[None]:
    """Whatever fails inside because a file of the run holds something else than a run writes is a UserError that names it."""
    try:
        yield
    except UserError:
        raise
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, OverflowError) as error:
        check_files(Path(path))
        raise UserError(
            f"{path}: one of its files holds something else than a run writes there ({type(error).__name__}: {error})",
            expected="a run folder as unmask wrote it",
        ) from None


def check_files(folder: Path) -> None:
    """UserError for the first file and field that are not what a run writes."""
    for name, rules in RULES.items():
        if (folder / name).exists():
            check_fields(folder / name, read_object(folder / name, finite=False), rules)
    recipe: dict[str, Any] = Recipe.read(folder / "recipe.yaml") if (folder / "recipe.yaml").exists() else {}
    for name in ("init_from", "preset", "objective"):
        check(folder / "recipe.yaml", name, recipe.get(name), or_null(STRING))
    try:
        Recipe.build(recipe)
    except UserError as error:
        raise UserError(f"{folder / 'recipe.yaml'}: {error.message[:400]}", expected=error.expected) from None
