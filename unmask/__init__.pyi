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
    """What is wrong in labelled files, or looks so: {"files", "errors", "warnings", "findings": [{location, message, hint, …}]}."""

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
    """What a run would be: resolved recipe, parameters, memory, steps and time, without reading the whole text."""

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
    patience: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> dict[str, Any]:
    """What `finetune` would do: columns, labels, lengths, findings, steps, memory and time; nothing is trained or written."""

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
    """The scores of a fine-tuned model on a labelled file; of a pre-trained one its loss, perplexity and accuracy on any text."""

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
    """A model as a folder that answers without torch: `load(folder, backend="onnx")`. Written only if it answers alike."""

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
    patience: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> Run:
    """A model and a labelled file → a model that answers, in a new run folder. Keywords are the flags of `unmask finetune`."""

def info(
    run: str | Path,
) -> dict[str, Any]:
    """What a run is, did and reached; or what a model folder holds."""

def load(
    model: str | Path,
    device: str = "auto",
    backend: str = "auto",
) -> Predictor:
    """A model folder, a run folder or a hub name → an object with the methods that the model's heads allow."""

def predict(
    model: Any,
    texts: Any,
    *,
    columns: Mapping[str, str | int] | None = None,
    overflow: str | None = None,
    predicate: str | None = None,
    console: Console | None = None,
) -> list[dict[str, Any]]:
    """Answers of a fine-tuned model (a folder, or what `load` gives) to texts, records, or the records of a file."""

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
    """Corpus → memory-mapped token store: in `out`, or in the cache under a key of its settings."""

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
    """Text → a pre-trained model in a new run folder. Keywords are the flags of `unmask pretrain`."""

def quickstart(
    out: str | Path | None = None,
    *,
    minutes: float = 5.0,
    seed: int = 0,
    console: Console | None = None,
) -> dict[str, Any]:
    """Movie reviews → tokenizer → pre-trained model → classifier, against TF-IDF; about a quarter of an hour."""

def resume(
    path: str | Path,
    *,
    console: Console | None = None,
) -> Run:
    """Continue a run of any kind from where it stopped, bit for bit as if it had never stopped."""

def retrieve(
    query: str | Sequence[str],
    passages: Any,
    **settings: Any,
) -> Any:
    """Passages that answer a query, best first: BM25, `embedder=`, `reranker=`, `top_k=`. See `inference/search.py`."""

def samples() -> list[dict[str, Any]]:
    """The corpora that pip packages provide: name, size, licence, whether it is here, and how to get it."""

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
    """The first training rows of a store as the objective corrupts them: what is masked, random, kept."""

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
    """Train a tokenizer on a corpus and save it in `out`; a report on text held out from its training."""

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
    patience: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] | None = None,
    precision: Literal["auto", "fp32", "bf16"] | None = None,
) -> Run:
    """Fine-tune with many settings, keep the best: a new run folder. No trial starts after `minutes`."""
