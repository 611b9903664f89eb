"""Plain functions, one per verb of the command line, with the same names for the same things.

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
    """The corpora that pip packages provide: name, size, licence, whether it is here, and how to get it."""
    from unmask.text.samples import list_samples

    return list_samples()


@takes_settings("pretrain")
def train_tokenizer(
    corpus: Corpora, out: str | Path, *, recipe: AnyRecipe = None, console: Console | None = None, **settings: Any
) -> dict[str, Any]:
    """Train a tokenizer on a corpus and save it in `out`; a report on text held out from its training."""
    made = make_recipe(corpus, recipe, **settings)
    return corpus_setup.train_tokenizer(made, Path(out), console or Console(quiet=True))


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
    """Corpus → memory-mapped token store: in `out`, or in the cache under a key of its settings."""
    return corpus_setup.prepare(make_recipe(corpus, recipe, **settings), console or Console(quiet=True), out, lengths)


@takes_settings("pretrain")
def show_batch(store: str | Path, *, recipe: AnyRecipe = None, rows: int = 4, **settings: Any) -> "MaskedBatch":
    """The first training rows of a store as the objective corrupts them: what is masked, random, kept."""
    from unmask.inference.examples import show_batch as show

    return show(store, make_recipe(None, recipe, **settings), rows)


@takes_settings("pretrain")
def dry_run(
    corpus: Corpora = None, *, recipe: AnyRecipe = None, overrides: Sequence[str] = (), **settings: Any
) -> dict[str, Any]:
    """What a run would be: resolved recipe, parameters, memory, steps and time, without reading the whole text."""
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
    """Text → a pre-trained model in a new run folder. Keywords are the flags of `unmask pretrain`.

    >>> run = pretrain("sample:python-docs", preset="bert-tiny", steps=100)     # doctest: +SKIP
    """
    return _execute(RUNS["pretrain"](), make_recipe(corpus, recipe, overrides, **settings), out, console)


def resume(path: str | Path, *, console: Console | None = None) -> "Run":
    """Continue a run of any kind from where it stopped, bit for bit as if it had never stopped."""
    from unmask.runs.lifecycle import resume as go_on
    from unmask.train.run import Run

    run = Run.open(path)
    with _joined(run.recipe(), console) as context:
        return go_on(run, context)


def _execute(kind: Any, recipe: Recipe, out: str | Path | None, console: Console | None) -> Any:
    from unmask.runs.lifecycle import execute

    with _joined(recipe, console) as context:
        return execute(kind, recipe, context, out)


def _dry_run(kind: str, recipe: Recipe, console: Console | None) -> dict[str, Any]:
    from unmask.runs import lifecycle
    from unmask.runs.context import Context

    return lifecycle.dry_run(RUNS[kind](), recipe, Context.alone(console))


def _joined(recipe: Recipe, console: Console | None) -> Any:
    from unmask.runs.context import Context  # which imports torch

    return Context.join(recipe.train, console or Console(quiet=True), _write_report)


def _write_report(run: "Run") -> None:
    from unmask import report

    if run.kind() != "quickstart":  # whose runs have reports of their own
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
    """A model and a labelled file → a model that answers, in a new run folder. Keywords are the flags of `unmask finetune`.

    >>> clf = finetune("runs/docs/model", train="train.csv", test="test.csv")     # doctest: +SKIP
    """
    made = task_recipe(model, recipe, overrides, **settings)
    return _execute(RUNS["seeds" if made.task.num_seeds > 1 else "finetune"](), made, out, console)


@takes_settings("finetune")
def dry_run_finetune(
    model: str | Path = "",
    *,
    recipe: AnyRecipe = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """What `finetune` would do: columns, labels, lengths, findings, steps, memory and time; nothing is trained or written."""
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
    """What is wrong in labelled files, or looks so: {"files", "errors", "warnings", "findings": [{location, message, hint, …}]}."""
    from unmask.labels.split_names import assign_splits
    from unmask.runs import part, validate

    values = {"task": {"kind": task, "columns": _names(columns), "labels": list(labels or [])}}
    roles = assign_splits(_paths(files), {"train": _paths(train), "dev": _paths(dev), "test": _paths(test)})
    return validate.check_up(part.make_recipe(values, list(sets)), roles, model_in(str(model)))


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
    """Fine-tune with many settings, keep the best: a new run folder. No trial starts after `minutes`."""
    return _execute(
        RUNS["tune"](trials, minutes, params), task_recipe(model, recipe, overrides, **settings), out, console
    )


def resume_tune(path: str | Path, *, trials: int | None = None, console: Console | None = None) -> "Run":
    """Go on with a search; `trials` makes it a longer one."""
    from unmask.runs.tune import extend
    from unmask.train.run import Run

    extend(Run.open(path), trials)
    return resume(path, console=console)


def evaluate(
    model: str | Path,
    file: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, str | int] | None = None,
    bad_rows: str = "error",
    minimal_pairs: str | Path | None = None,
    max_length: int | None = None,
    max_rows: int | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """The scores of a fine-tuned model on a labelled file; of a pre-trained one its loss, perplexity and accuracy on any text.

    For a fine-tuned model: `bad="skip"` leaves out bad rows, counted and listed as "skipped" and "skipped_rows".
    For a pre-trained model: `pairs` is a file of minimal pairs, `length` of a row in tokens, `rows` are read at most."""
    from unmask.inference import labeled_files

    loaded, said = load(model), console or Console(quiet=True)
    if loaded.task is None and not columns:
        if bad != "refuse":
            got = "--bad is for a model that was fine-tuned for a task; this one reads any text"
            raise UserError(got, hint="leave it out")
        from unmask.inference.evaluate_text import evaluate_text  # which imports torch

        return evaluate_text(loaded, _paths(file), str(pairs) if pairs else None, length, rows, said)
    loaded.require_task()
    if pairs or length or rows:
        raise UserError("--pairs, --length and --rows are for a pre-trained model; this one is fine-tuned for a task")
    return labeled_files.evaluate(loaded, _paths(file), _names(columns), said, bad)


def predict(
    model: Any,
    texts: Any,
    *,
    columns: Mapping[str, str | int] | None = None,
    overflow: str | None = None,
    predicate: str | None = None,
    console: Console | None = None,
) -> list[dict[str, Any]]:
    """Answers of a fine-tuned model (a folder, or what `load` gives) to texts, records, or the records of a file.

    `long`: a text longer than a row is read in "windows", by its "first" part, or "refuse"d; else as the model was trained.
    `predicate`: the word whose semantic roles are asked for."""
    from unmask.inference.predict import predict_inputs

    loaded = load(model) if isinstance(model, str | Path) else model
    return predict_inputs(loaded, texts, _names(columns), console or Console(quiet=True), long, predicate)


def _names(columns: Mapping[str, str | int] | None) -> dict[str, str]:
    """Role → column; a number, counted from 1, is a name too."""
    return {role: str(name) for role, name in (columns or {}).items()}


def _paths(file: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(file)] if isinstance(file, str | Path) else [str(f) for f in file]


def retrieve(query: str | Sequence[str], passages: Any, **settings: Any) -> Any:
    """Passages that answer a query, best first: BM25, `embedder=`, `reranker=`, `top_k=`. See `inference/search.py`.

    >>> retrieve("sorted numbers", ["a class", "a list of numbers"], top_k=1)[0]["text"]
    'a list of numbers'
    """
    from unmask.inference import search as lab

    return lab.retrieve(query, passages, **settings)


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
    console: Console | None = None,
) -> Any:
    """Search a file of passages; or, with a file of queries, the scores of such a search by `qrels`; `save_run` writes the results as a TREC run."""
    from unmask.inference import search as lab

    if bool(query) == bool(queries) or bool(queries) != bool(qrels or save_run):
        needs = "search needs a query, or --queries FILE with --qrels FILE or --save-run FILE"
        raise UserError(needs, hint='unmask search FILE "query"')
    said = console or Console(quiet=True)
    files = lab.SearchFiles.read(str(passages), queries, judgements, _names(columns))
    index = lab.Index(files.passages, bm25, embedder, reranker, said)
    return lab.evaluate_search(index, files, run, said) if queries else index.search(query, top)


def load(model: str | Path, device: str = "auto", backend: str = "auto") -> "Predictor":
    """A model folder, a run folder or a hub name → an object with the methods that the model's heads allow.

    `backend`: "onnx" answers from an exported folder, without torch."""
    from unmask.inference.predictor import load as load_predictor

    return load_predictor(model, device, backend=backend)


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
    """A model as a folder that answers without torch: `load(folder, backend="onnx")`. Written only if it answers alike.

    >>> export("runs/docs/model", int8=True, data="test.csv")["folder"]     # doctest: +SKIP
    'runs/docs/model-onnx-int8'
    """
    from unmask.exporting import command

    options = command.ExportOptions(to, int8, out, push, dry_run)
    return command.export(model, options, _paths(data), _names(columns), console or Console(quiet=True))


def info(run: str | Path) -> dict[str, Any]:
    """What a run is, did and reached; or what a model folder holds."""
    from unmask.inference.describe import describe, is_model
    from unmask.report import summary
    from unmask.train.run import Run
    from unmask.train.run_files import shown

    if is_model(run):
        return describe(run)
    with shown(run):
        return summary(Run.open(run))


def quickstart(
    out: str | Path | None = None, *, minutes: float = 5.0, seed: int = 0, console: Console | None = None
) -> dict[str, Any]:
    """Movie reviews → tokenizer → pre-trained model → classifier, against TF-IDF; about a quarter of an hour."""
    from unmask.runs.quickstart import make_recipe as quickstart_recipe

    return _execute(RUNS["quickstart"](), quickstart_recipe(minutes, seed), out, console).results()
