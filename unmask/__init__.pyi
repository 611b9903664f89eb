# made by scripts/write_settings.py (`make settings`): do not edit
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from unmask.console import Console
from unmask.errors import UserError as UserError
from unmask.inference.answers import MaskedBatch
from unmask.inference.predictor import Predictor
from unmask.runs.keywords import AnyRecipe, Corpora
from unmask.text.store import TokenStore
from unmask.train.run import Run

__version__: str

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

def dry_run(
    corpus: Corpora = None,
    *,
    recipe: AnyRecipe = None,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    preset: str | None = None,
    init_from: str | None = None,
    objective: str | None = None,
    document_boundary: Literal["auto", "file", "paragraph", "line", "record"] | None = None,
    text_column: str | None = None,
    encoding: str | None = None,
    language: Literal["auto", "en", "zh"] | None = None,
    eval_fraction: float | None = None,
    workers: int | None = None,
    replay: str | Path | Sequence[str | Path] | None = None,
    tokenizer: str | None = None,
    tokenizer_type: Literal["auto", "wordpiece", "bpe", "unigram", "char", "byte"] | None = None,
    vocab_size: int | None = None,
    lowercase: bool | Literal["auto"] | None = None,
    strip_accents: Literal["auto", "yes", "no"] | None = None,
    special_tokens: str | Path | Sequence[str | Path] | None = None,
    extend_vocab: int | None = None,
    mask_rate: str | float | None = None,
    mask_unit: Literal["token", "word", "span", "ngram", "phrase"] | None = None,
    minutes: float | None = None,
    tokens: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    max_length: str | int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> dict[str, Any]:
    """Estimate a pre-training run: resolved recipe, parameters, memory, steps and time, without reading the whole corpus."""

def dry_run_finetune(
    model: str | Path = "",
    *,
    recipe: AnyRecipe = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    seed: int | None = None,
    task: str | None = None,
    train: str | Path | Sequence[str | Path] | None = None,
    dev: str | Path | Sequence[str | Path] | None = None,
    unlabeled: str | Path | Sequence[str | Path] | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    num_seeds: int | None = None,
    baseline: bool | None = None,
    columns: Mapping[str, str | int] | None = None,
    labels: str | Path | Sequence[str | Path] | None = None,
    max_length: int | None = None,
    overflow: Literal["window", "truncate", "error"] | None = None,
    pooling: Literal["auto", "mean", "cls"] | None = None,
    freeze: Literal["none", "encoder"] | None = None,
    aux_mlm: float | None = None,
    augment_mlm: float | None = None,
    teacher: str | None = None,
    blend: str | None = None,
    patience: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> dict[str, Any]:
    """Estimate a fine-tuning run: columns, labels, lengths, findings, steps, memory and time. Nothing is trained or written."""

def dry_run_learn(
    files: Corpora = None,
    *,
    text: Corpora = None,
    check: Corpora = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    seed: int | None = None,
    init_from: str | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    columns: Mapping[str, str | int] | None = None,
    labels: str | Path | Sequence[str | Path] | None = None,
    words: str | Path | Sequence[str | Path] | None = None,
    minutes: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> dict[str, Any]:
    """Describe what `learn` would do: its steps with their minutes, and what the files contain. Nothing is trained or written."""

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
    """Compute the metrics of a fine-tuned model on a labeled file, or the loss, perplexity and accuracy of a pre-trained one on text."""

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
    """Export a model to ONNX, or as a static copy that is trained on the texts of `data`. Both are loaded without torch (docs/export.md)."""

def finetune(
    model: str | Path = "",
    *,
    recipe: AnyRecipe = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    seed: int | None = None,
    task: str | None = None,
    train: str | Path | Sequence[str | Path] | None = None,
    dev: str | Path | Sequence[str | Path] | None = None,
    unlabeled: str | Path | Sequence[str | Path] | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    num_seeds: int | None = None,
    baseline: bool | None = None,
    columns: Mapping[str, str | int] | None = None,
    labels: str | Path | Sequence[str | Path] | None = None,
    max_length: int | None = None,
    overflow: Literal["window", "truncate", "error"] | None = None,
    pooling: Literal["auto", "mean", "cls"] | None = None,
    freeze: Literal["none", "encoder"] | None = None,
    aux_mlm: float | None = None,
    augment_mlm: float | None = None,
    teacher: str | None = None,
    blend: str | None = None,
    patience: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> Run:
    """Fine-tune a model on a labeled file, in a new run folder. Keywords are the flags of `unmask finetune`."""

def info(
    run: str | Path,
) -> dict[str, Any]:
    """Describe a run (status, metrics) or a model folder (architecture, heads)."""

def learn(
    files: Corpora = None,
    *,
    text: Corpora = None,
    check: Corpora = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    seed: int | None = None,
    init_from: str | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    columns: Mapping[str, str | int] | None = None,
    labels: str | Path | Sequence[str | Path] | None = None,
    words: str | Path | Sequence[str | Path] | None = None,
    minutes: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> Run:
    """Learn a classifier from labeled files, words, or both, and from unlabeled text, in a new run folder."""

def load(
    model: Any,
    device: str = "auto",
    backend: str = "auto",
    batch_size: int | None = None,
) -> Predictor:
    """Load a model folder, a run folder or a hub name; the predictor has the methods that the model's heads support."""

def predict(
    model: Any,
    texts: Any,
    *,
    columns: Mapping[str, str | int] | None = None,
    overflow: str | None = None,
    predicate: str | None = None,
    console: Console | None = None,
) -> list[dict[str, Any]]:
    """Predict with a fine-tuned model (a folder, or what `load` returns) for texts, records, or the records of a file."""

def prepare(
    corpus: Corpora = None,
    out: str | Path | None = None,
    *,
    recipe: AnyRecipe = None,
    lengths: Sequence[int] = (),
    console: Console | None = None,
    seed: int | None = None,
    preset: str | None = None,
    init_from: str | None = None,
    objective: str | None = None,
    document_boundary: Literal["auto", "file", "paragraph", "line", "record"] | None = None,
    text_column: str | None = None,
    encoding: str | None = None,
    language: Literal["auto", "en", "zh"] | None = None,
    eval_fraction: float | None = None,
    workers: int | None = None,
    replay: str | Path | Sequence[str | Path] | None = None,
    tokenizer: str | None = None,
    tokenizer_type: Literal["auto", "wordpiece", "bpe", "unigram", "char", "byte"] | None = None,
    vocab_size: int | None = None,
    lowercase: bool | Literal["auto"] | None = None,
    strip_accents: Literal["auto", "yes", "no"] | None = None,
    special_tokens: str | Path | Sequence[str | Path] | None = None,
    extend_vocab: int | None = None,
    mask_rate: str | float | None = None,
    mask_unit: Literal["token", "word", "span", "ngram", "phrase"] | None = None,
    minutes: float | None = None,
    tokens: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    max_length: str | int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> TokenStore:
    """Tokenize a corpus into a memory-mapped store: in `out`, or in the cache under a key of its settings."""

def pretrain(
    corpus: Corpora = None,
    *,
    recipe: AnyRecipe = None,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
    seed: int | None = None,
    preset: str | None = None,
    init_from: str | None = None,
    objective: str | None = None,
    document_boundary: Literal["auto", "file", "paragraph", "line", "record"] | None = None,
    text_column: str | None = None,
    encoding: str | None = None,
    language: Literal["auto", "en", "zh"] | None = None,
    eval_fraction: float | None = None,
    workers: int | None = None,
    replay: str | Path | Sequence[str | Path] | None = None,
    tokenizer: str | None = None,
    tokenizer_type: Literal["auto", "wordpiece", "bpe", "unigram", "char", "byte"] | None = None,
    vocab_size: int | None = None,
    lowercase: bool | Literal["auto"] | None = None,
    strip_accents: Literal["auto", "yes", "no"] | None = None,
    special_tokens: str | Path | Sequence[str | Path] | None = None,
    extend_vocab: int | None = None,
    mask_rate: str | float | None = None,
    mask_unit: Literal["token", "word", "span", "ngram", "phrase"] | None = None,
    minutes: float | None = None,
    tokens: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    max_length: str | int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> Run:
    """Pre-train a model on raw text, in a new run folder. Keywords are the flags of `unmask pretrain`."""

def quickstart(
    out: str | Path | None = None,
    *,
    minutes: float = 2.5,
    seed: int = 0,
    language: Literal["en", "zh"] = "en",
    console: Console | None = None,
) -> dict[str, Any]:
    """Pre-train on reviews (English, or Chinese), learn classifiers from words, 100 and 2,000 labels, and compare with TF-IDF."""

def resume(
    path: str | Path,
    *,
    console: Console | None = None,
) -> Run:
    """Resume a run of any kind from its last checkpoint; the result is bit-for-bit that of an uninterrupted run."""

def retrieve(
    query: str | Sequence[str],
    passages: Any,
    **options: Any,
) -> Any:
    """Search passages in memory, best first: BM25, `embedder=`, `reranker=`, `top_k=`. See `inference/search.py`."""

def samples() -> list[dict[str, Any]]:
    """List the sample corpora that pip packages provide: name, size, license, whether it is installed, and how to install it."""

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

def show_batch(
    store: str | Path,
    *,
    recipe: AnyRecipe = None,
    rows: int = 4,
    seed: int | None = None,
    preset: str | None = None,
    init_from: str | None = None,
    objective: str | None = None,
    document_boundary: Literal["auto", "file", "paragraph", "line", "record"] | None = None,
    text_column: str | None = None,
    encoding: str | None = None,
    language: Literal["auto", "en", "zh"] | None = None,
    eval_fraction: float | None = None,
    workers: int | None = None,
    replay: str | Path | Sequence[str | Path] | None = None,
    tokenizer: str | None = None,
    tokenizer_type: Literal["auto", "wordpiece", "bpe", "unigram", "char", "byte"] | None = None,
    vocab_size: int | None = None,
    lowercase: bool | Literal["auto"] | None = None,
    strip_accents: Literal["auto", "yes", "no"] | None = None,
    special_tokens: str | Path | Sequence[str | Path] | None = None,
    extend_vocab: int | None = None,
    mask_rate: str | float | None = None,
    mask_unit: Literal["token", "word", "span", "ngram", "phrase"] | None = None,
    minutes: float | None = None,
    tokens: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    max_length: str | int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> MaskedBatch:
    """Show the first training rows of a store as the objective corrupts them: masked, random and kept tokens."""

def train_tokenizer(
    corpus: Corpora,
    out: str | Path,
    *,
    recipe: AnyRecipe = None,
    console: Console | None = None,
    seed: int | None = None,
    preset: str | None = None,
    init_from: str | None = None,
    objective: str | None = None,
    document_boundary: Literal["auto", "file", "paragraph", "line", "record"] | None = None,
    text_column: str | None = None,
    encoding: str | None = None,
    language: Literal["auto", "en", "zh"] | None = None,
    eval_fraction: float | None = None,
    workers: int | None = None,
    replay: str | Path | Sequence[str | Path] | None = None,
    tokenizer: str | None = None,
    tokenizer_type: Literal["auto", "wordpiece", "bpe", "unigram", "char", "byte"] | None = None,
    vocab_size: int | None = None,
    lowercase: bool | Literal["auto"] | None = None,
    strip_accents: Literal["auto", "yes", "no"] | None = None,
    special_tokens: str | Path | Sequence[str | Path] | None = None,
    extend_vocab: int | None = None,
    mask_rate: str | float | None = None,
    mask_unit: Literal["token", "word", "span", "ngram", "phrase"] | None = None,
    minutes: float | None = None,
    tokens: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    max_length: str | int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> dict[str, Any]:
    """Train a tokenizer on a corpus, save it in `out` and return a report on held-out text."""

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
    seed: int | None = None,
    task: str | None = None,
    train: str | Path | Sequence[str | Path] | None = None,
    dev: str | Path | Sequence[str | Path] | None = None,
    unlabeled: str | Path | Sequence[str | Path] | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    num_seeds: int | None = None,
    baseline: bool | None = None,
    columns: Mapping[str, str | int] | None = None,
    labels: str | Path | Sequence[str | Path] | None = None,
    max_length: int | None = None,
    overflow: Literal["window", "truncate", "error"] | None = None,
    pooling: Literal["auto", "mean", "cls"] | None = None,
    freeze: Literal["none", "encoder"] | None = None,
    aux_mlm: float | None = None,
    augment_mlm: float | None = None,
    teacher: str | None = None,
    blend: str | None = None,
    patience: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> Run:
    """Search hyperparameters around the given settings and keep the best model, in a new run folder. No trial starts after `minutes`."""
