"""Python API, continued: commands that take text and labels to a classifier in one call."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unmask.api import evaluate, execute, export
from unmask.console import Console
from unmask.errors import UserError
from unmask.files import remove_folder
from unmask.registry import RUNS
from unmask.runs.keywords import Corpora, learn_recipe, takes_settings

if TYPE_CHECKING:
    from unmask.train.run import Run


@takes_settings("learn")
def learn(
    files: Corpora = None,
    *,
    text: Corpora = None,
    check: Corpora = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    **settings: Any,
) -> "Run":
    """Learn a classifier from labeled files, words, or both, and from unlabeled text, in a new run folder.

    `text`: files or folders of unlabeled text. `words`: "label: word word", one for each label. `check`: labeled records to check the words.

    >>> run = learn("reviews.csv", text="more/", test="test.csv", minutes=8)     # doctest: +SKIP
    """
    recipe = learn_recipe(files, text, check, overrides, **settings)
    return execute(RUNS["learn"](), recipe, out, console)


@takes_settings("learn")
def dry_run_learn(
    files: Corpora = None,
    *,
    text: Corpora = None,
    check: Corpora = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Describe what `learn` would do: its steps with their minutes, and what the files contain. Nothing is trained or written."""
    from unmask.runs.context import Context
    from unmask.runs.lifecycle import dry_run

    recipe = learn_recipe(files, text, check, overrides, **settings)
    return dry_run(RUNS["learn"](), recipe, Context.single_process(console))


def add_copies(run: "Run", console: Console | None = None) -> list[dict[str, Any]]:
    """Export smaller copies of the model of a `learn` run (static, int8), and add their size, speed and score to its results and report.

    The model itself comes first. `loss` is what a copy loses of its score on the test records.
    """
    from unmask import report

    console, results = console or Console(quiet=True), run.results()
    if "copies" in results:
        return results["copies"]
    test = run.path / "test.jsonl"
    has_test = test.exists() and test.stat().st_size > 0
    original: dict[str, Any] = {"name": "model", "path": str(run.model), "megabytes": _megabytes(run.model)}
    score = results["steps"][-1]["score"] if has_test else 0.0
    original |= {"score": score} if has_test else {}
    kinds: dict[str, dict[str, Any]] = {"static": {"format": "static", "data": run.path / "unlabeled.jsonl"}}
    kinds["int8"] = {"int8": True}
    copies: list[dict[str, Any]] = [original]
    for name, options in kinds.items():
        if (run.path / name).exists():  # of an interrupted export
            remove_folder(run.path / name)
        try:
            exported = export(run.model, out=run.path / name, console=console, **options)
        except UserError as error:
            console.warn(f"no {name} copy: {error.message}")
            continue
        row: dict[str, Any] = {"name": name, "path": str(run.path / name), "megabytes": _megabytes(run.path / name)}
        if speed := exported.get("texts_per_second"):
            row["texts_per_second"] = speed["copy"]
            original["texts_per_second"] = speed["model"]
        if has_test:
            row["score"] = evaluate(run.path / name, test)[results["metric"]]
            row["loss"] = score - row["score"]
        copies.append(row)
    run.write_json("results.json", results | {"copies": copies})
    report.write(run)
    return copies


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def quickstart(
    out: str | Path | None = None,
    *,
    minutes: float = 2.5,
    seed: int = 0,
    language: Literal["en", "zh"] = "en",
    console: Console | None = None,
) -> dict[str, Any]:
    """Pre-train on reviews (English, or Chinese), learn classifiers from words, 100 and 2,000 labels, and compare with TF-IDF."""
    from unmask.runs.quickstart import make_recipe as quickstart_recipe

    return execute(RUNS["quickstart"](), quickstart_recipe(minutes, seed, language), out, console).results()
