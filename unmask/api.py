"""Python API: one function per command, with the same names.

run = unmask.pretrain("corpus/", preset="bert-mini", minutes=5)
unmask.load(run.model).fill("the president of the united [MASK]")
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.console import Console
from unmask.errors import UserError
from unmask.recipe import Recipe
from unmask.registry import RUNS
from unmask.runs import corpus_setup
from unmask.runs.keywords import AnyRecipe, Corpora, make_recipe, model_in, takes_settings, task_recipe
from unmask.text.store import TokenStore

if TYPE_CHECKING:
    from unmask.inference.answers import MaskedBatch
    from unmask.inference.predictor import Predictor
    from unmask.train.run import Run


def samples() -> list[dict[str, Any]]:
    """List the sample corpora that pip packages provide: name, size, license, whether it is installed, and how to install it."""
    from unmask.text.samples import list_samples

    return list_samples()


@takes_settings("pretrain")
def train_tokenizer(
    corpus: Corpora, out: str | Path, *, recipe: AnyRecipe = None, console: Console | None = None, **settings: Any
) -> dict[str, Any]:
    """Train a tokenizer on a corpus, save it in `out` and return a report on held-out text."""
    resolved = make_recipe(corpus, recipe, **settings)
    return corpus_setup.train_tokenizer(resolved, Path(out), console or Console(quiet=True))


@takes_settings("pretrain")
def prepare(
    corpus: Corpora = None,
    out: str | Path | None = None,
    *,
    recipe: AnyRecipe = None,
    lengths: Sequence[int] = (),
    console: Console | None = None,
    **settings: Any,
) -> TokenStore:
    """Tokenize a corpus into a memory-mapped store: in `out`, or in the cache under a key of its settings."""
    return corpus_setup.prepare(make_recipe(corpus, recipe, **settings), console or Console(quiet=True), out, lengths)


@takes_settings("pretrain")
def show_batch(store: str | Path, *, recipe: AnyRecipe = None, rows: int = 4, **settings: Any) -> "MaskedBatch":
    """Show the first training rows of a store as the objective corrupts them: masked, random and kept tokens."""
    from unmask.inference.examples import show_batch as show

    return show(store, make_recipe(None, recipe, **settings), rows)


@takes_settings("pretrain")
def dry_run(
    corpus: Corpora = None, *, recipe: AnyRecipe = None, overrides: Sequence[str] = (), **settings: Any
) -> dict[str, Any]:
    """Estimate a pre-training run: resolved recipe, parameters, memory, steps and time, without reading the whole corpus."""
    return _dry_run("pretrain", make_recipe(corpus, recipe, overrides, **settings), None)


@takes_settings("pretrain")
def pretrain(
    corpus: Corpora = None,
    *,
    recipe: AnyRecipe = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    **settings: Any,
) -> "Run":
    """Pre-train a model on raw text, in a new run folder. Keywords are the flags of `unmask pretrain`.

    >>> run = pretrain("sample:python-docs", preset="bert-tiny", steps=100)     # doctest: +SKIP
    """
    return execute(RUNS["pretrain"](), make_recipe(corpus, recipe, overrides, **settings), out, console)


def resume(path: str | Path, *, console: Console | None = None) -> "Run":
    """Resume a run of any kind from its last checkpoint; the result is bit-for-bit that of an uninterrupted run."""
    from unmask.runs.lifecycle import resume as resume_run
    from unmask.train.run import Run

    run = Run.open(path)
    with _init_distributed(run.recipe(), console) as context:
        return resume_run(run, context)


def execute(kind: Any, recipe: Recipe, out: str | Path | None, console: Console | None) -> Any:
    """Execute a run of any kind."""
    from unmask.runs import lifecycle

    with _init_distributed(recipe, console) as context:
        return lifecycle.execute(kind, recipe, context, out)


def _dry_run(kind: str, recipe: Recipe, console: Console | None) -> dict[str, Any]:
    from unmask.runs.context import Context
    from unmask.runs.lifecycle import dry_run as estimate

    return estimate(RUNS[kind](), recipe, Context.single_process(console))


def _init_distributed(recipe: Recipe, console: Console | None) -> Any:
    from unmask.runs.context import Context  # imports torch

    return Context.init(recipe.train, console or Console(quiet=True), _write_report)


def _write_report(run: "Run") -> None:
    from unmask import report

    if run.kind() != "quickstart":  # each run inside a quickstart has its own report
        report.write(run)


@takes_settings("finetune")
def finetune(
    model: str | Path = "",
    *,
    recipe: AnyRecipe = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    **settings: Any,
) -> "Run":
    """Fine-tune a model on a labeled file, in a new run folder. Keywords are the flags of `unmask finetune`.

    >>> clf = finetune("runs/docs/model", train="train.csv", test="test.csv")     # doctest: +SKIP
    """
    resolved = task_recipe(model, recipe, overrides, **settings)
    return execute(RUNS["seeds" if resolved.task.num_seeds > 1 else "finetune"](), resolved, out, console)


@takes_settings("finetune")
def dry_run_finetune(
    model: str | Path = "",
    *,
    recipe: AnyRecipe = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Estimate a fine-tuning run: columns, labels, lengths, findings, steps, memory and time. Nothing is trained or written."""
    return _dry_run("finetune", task_recipe(model, recipe, overrides, **settings), console)


def doctor(
    files: str | Path | Sequence[str | Path] = (),
    *,
    task: str = "auto",
    train: Sequence[str | Path] = (),
    dev: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
    model: str | Path = "",
    columns: Mapping[str, str | int] | None = None,
    labels: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Check labeled files for errors and suspicious records: {"files", "errors", "warnings", "findings": [{location, message, hint, …}]}."""
    from unmask.labels.split_names import assign_splits
    from unmask.runs import part, validate

    values = {"task": {"name": task, "columns": _names(columns), "labels": list(labels or [])}}
    roles = assign_splits(_paths(files), {"train": _paths(train), "dev": _paths(dev), "test": _paths(test)})
    return validate.validate_files(part.make_recipe(values, list(overrides)), roles, model_in(str(model)))


@takes_settings("finetune")
def tune(
    model: str | Path = "",
    *,
    trials: int = 20,
    minutes: float | None = None,
    params: Sequence[str] | None = None,
    recipe: AnyRecipe = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    **settings: Any,
) -> "Run":
    """Search hyperparameters around the given settings and keep the best model, in a new run folder. No trial starts after `minutes`."""
    resolved = task_recipe(model, recipe, overrides, **settings)
    return execute(RUNS["tune"](trials, minutes, params), resolved, out, console)


def resume_tune(path: str | Path, *, trials: int | None = None, console: Console | None = None) -> "Run":
    """Resume a search; `trials` extends it."""
    from unmask.runs.tune import extend
    from unmask.train.run import Run

    extend(Run.open(path), trials)
    return resume(path, console=console)


def evaluate(
    model: Any,
    file: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, str | int] | None = None,
    bad_rows: str = "error",
    minimal_pairs: str | Path | None = None,
    max_length: int | None = None,
    max_rows: int | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Compute the metrics of a fine-tuned model on a labeled file, or the loss, perplexity and accuracy of a pre-trained one on text.

    Fine-tuned models: `bad_rows="skip"` leaves out invalid rows and lists them as "skipped_rows".
    Pre-trained models: `minimal_pairs` is a file, `max_length` the row length, `max_rows` the number of rows."""
    from unmask.inference import labeled_files

    loaded, console = load(model), console or Console(quiet=True)
    if loaded.task is None and not columns:
        if bad_rows != "error":
            raise UserError("--bad-rows needs a fine-tuned model; this one is pre-trained", hint="remove --bad-rows")
        from unmask.inference.evaluate_text import evaluate_text  # imports torch

        pairs = str(minimal_pairs) if minimal_pairs else None
        return evaluate_text(loaded, _paths(file), pairs, max_length, max_rows, console)
    loaded.require_task()
    if minimal_pairs or max_length or max_rows:
        raise UserError("--minimal-pairs, --max-length and --max-rows need a pre-trained model; this one is fine-tuned")
    return labeled_files.evaluate(loaded, _paths(file), _names(columns), console, bad_rows)


def predict(
    model: Any,
    texts: Any,
    *,
    columns: Mapping[str, str | int] | None = None,
    overflow: str | None = None,
    predicate: str | None = None,
    console: Console | None = None,
) -> list[dict[str, Any]]:
    """Predict with a fine-tuned model (a folder, or what `load` returns) for texts, records, or the records of a file.

    `overflow`: "window", "truncate" or "error" for texts longer than the maximum length; default as in training.
    `predicate`: the word whose semantic roles to predict."""
    from unmask.inference.predict import predict_inputs

    return predict_inputs(load(model), texts, _names(columns), console or Console(quiet=True), overflow, predicate)


def _names(columns: Mapping[str, str | int] | None) -> dict[str, str]:
    return {role: str(name) for role, name in (columns or {}).items()}


def _paths(file: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(file)] if isinstance(file, str | Path) else [str(f) for f in file]


def retrieve(query: str | Sequence[str], passages: Any, **options: Any) -> Any:
    """Search passages in memory, best first: BM25, `embedder=`, `reranker=`, `top_k=`. See `inference/search.py`.

    >>> retrieve("sorted numbers", ["a class", "a list of numbers"], top_k=1)[0]["text"]
    'a list of numbers'
    """
    from unmask.inference import search as searching

    return searching.retrieve(query, passages, **options)


def search(
    passages: str | Path,
    query: str = "",
    *,
    embedder: Any = None,
    reranker: Any = None,
    bm25: bool = True,
    top_k: int = 10,
    queries: str | Path | None = None,
    qrels: str | Path | None = None,
    save_run: str | Path | None = None,
    columns: Mapping[str, str | int] | None = None,
    device: str = "auto",
    batch_size: int | None = None,
    console: Console | None = None,
) -> Any:
    """Search a file of passages; with a file of queries, evaluate the search against `qrels`, or write a TREC run to `save_run`."""
    from unmask.inference import search as searching

    searching.check_arguments(query, queries, qrels or save_run)
    console = console or Console(quiet=True)
    files = searching.SearchFiles.read(str(passages), queries, qrels, _names(columns))
    index = searching.Index(files.passages, bm25, embedder, reranker, console, device, batch_size)
    return searching.evaluate_search(index, files, save_run, console) if queries else index.search(query, top_k)


def load(model: Any, device: str = "auto", backend: str = "auto", batch_size: int | None = None) -> "Predictor":
    """Load a model folder, a run folder or a hub name; the predictor has the methods that the model's heads support.

    `backend`: "onnx" and "static" run an exported folder, without torch. `batch_size`: texts per forward pass."""
    from unmask.inference import predictor

    is_loaded = isinstance(model, predictor.Predictor)
    return model if is_loaded else predictor.load(model, device, backend=backend, batch_size=batch_size)


def export(
    model: str | Path,
    *,
    format: str = "onnx",
    int8: bool = False,
    out: str | Path | None = None,
    data: str | Path | Sequence[str | Path] = (),
    columns: Mapping[str, str | int] | None = None,
    push: str = "",
    dry_run: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Export a model to ONNX, or as a static copy that is trained on the texts of `data`. Both are loaded without torch (docs/export.md).

    >>> export("runs/docs/model", int8=True, data="test.csv")["folder"]     # doctest: +SKIP
    'runs/docs/model-onnx-int8'
    """
    from unmask.exporting import command

    options = command.ExportOptions(format, int8, out, push, dry_run)
    return command.export(model, options, _paths(data), _names(columns), console or Console(quiet=True))


def info(run: str | Path) -> dict[str, Any]:
    """Describe a run (status, metrics) or a model folder (architecture, heads)."""
    from unmask.inference.describe import describe, is_model
    from unmask.report import summary
    from unmask.train.run import Run
    from unmask.train.run_files import explain_damage

    if is_model(run):
        return describe(run)
    with explain_damage(run):
        return summary(Run.open(run))
