"""Evaluation of a pre-trained model on any text: loss, perplexity and accuracy, and the accuracy on minimal pairs.

A masked language model is evaluated under the fixed masking of `train/eval_sets.py`, a causal one by next-token prediction.
The results of two models can be compared if the tokenizer, the text and the row length are the same.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.console import Console
from unmask.errors import UserError
from unmask.inference.predictor import Predictor
from unmask.recipe import DataRecipe
from unmask.text.corpus import Corpus
from unmask.text.prepare import prepare
from unmask.text.store import Split, TokenStore
from unmask.train.distributed import World
from unmask.train.eval_sets import fixed_eval_set
from unmask.train.log import FIXED_TEXT
from unmask.train.trainer import evaluate

DEFAULT_LENGTH = 128  # tokens per row, if the model has as many positions
DEFAULT_MAX_ROWS = 2048  # sampled evenly from the text


def evaluate_text(
    predictor: Predictor,
    sources: Sequence[str],
    pairs: str | None,
    length: int | None,
    max_rows: int | None,
    console: Console,
) -> dict[str, Any]:
    """Evaluate on `sources`: text files as for `pretrain`, or a prepared store, of which the held-out part is used."""
    objective, length = detect_objective(predictor), _resolve_length(predictor, length)
    store, split = _load_text(predictor, sources, console)
    max_rows = max_rows or DEFAULT_MAX_ROWS
    eval_set = fixed_eval_set(split, predictor.tokenizer, predictor.config, objective, length, max_rows)
    if not eval_set.batches:
        raise UserError(f"{', '.join(sources)}: no tokens to predict", expected="text that the model's tokenizer knows")
    engine: Any = predictor.engine
    predicted = sum(eval_set.objective.target_counts(batch)[objective] for batch in eval_set.batches)
    metrics = evaluate(engine.model, eval_set.objective, eval_set.batches, engine.device, False, World(0, 1))
    on_pairs = predictor.minimal_pairs(pairs) if pairs else None
    return {
        "objective": objective,
        "masking": FIXED_TEXT if objective == "mlm" else None,
        "text": list(sources),
        "text_tokens": len(split.tokens),
        "unk_share": split.counts["unk_share"],
        "rows": sum(batch.rows for batch in eval_set.batches),
        "length": length,
        "predicted": predicted,
        "loss": metrics[objective],
        "perplexity": metrics["perplexity"],
        "accuracy": metrics.get(f"{objective}_accuracy"),
        "unigram_entropy": store.meta["unigram_entropy"],
        "pairs": on_pairs
        and {"accuracy": on_pairs.accuracy, "count": on_pairs.count, "interval": list(on_pairs.interval)},
    }


def detect_objective(predictor: Predictor) -> str:
    """Return the objective to evaluate, "mlm" or "clm". Raise UserError if the model has neither."""
    config, heads = predictor.config, set(predictor.heads)
    if predictor.engine.kind != "torch":
        raise UserError("an exported model has no loss", hint="evaluate the model folder it was exported from")
    if config.encoder == "transformer" and not config.decoder_layers:
        if heads & {"lm", "mlm"} and (config.causal or config.logit_position == "next"):
            return "clm"
        if "mlm" in heads:
            return "mlm"
    raise UserError(
        f"a {config.family} model with the heads {', '.join(sorted(heads)) or 'none'} has no loss on plain text",
        expected="a model that predicts masked tokens (BERT, RoBERTa, ModernBERT, …, or the generator/ folder of ELECTRA) or the "
        "next token (GPT), or a fine-tuned model with a labeled file",
    )


def _resolve_length(predictor: Predictor, length: int | None) -> int:
    limit = predictor.config.max_positions
    if length is not None and not 8 <= length <= limit:
        raise UserError(f"invalid --max-length {length}", expected=f"8 to {limit}, the positions of this model")
    return length or min(DEFAULT_LENGTH, limit)


def _load_text(predictor: Predictor, sources: Sequence[str], console: Console) -> tuple[TokenStore, Split]:
    if len(sources) == 1 and (Path(sources[0]) / "meta.json").exists():
        store = TokenStore.open(sources[0])
        if store.tokenizer.fingerprint() != predictor.tokenizer.fingerprint():
            raise UserError(
                f"{sources[0]} was tokenized with another tokenizer than the model's",
                hint="pass the text files instead of the store",
            )
        return store, store.heldout if len(store.heldout.tokens) else store.train
    corpus = Corpus(list(sources), DataRecipe())
    console.say(corpus.describe())
    settings = DataRecipe(eval_fraction=0.0, deduplicate="off", minhash_sample=0)
    with console.bar("prepare") as update:
        store = prepare(corpus, predictor.tokenizer, settings, None, update)
    return store, store.train


def metric_lines(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (label, text) of each line in the terminal."""
    target = "masked" if results["objective"] == "mlm" else "next"
    accuracy, pairs = results["accuracy"], results["pairs"]
    rows = [
        ("loss", f"{results['loss']:.4f} nats per {target} token"),
        ("perplexity", f"{results['perplexity']:,.2f}"),
        ("accuracy", f"{accuracy:.2%}" if accuracy is not None else ""),
        ("unigram entropy", f"{results['unigram_entropy']:.4f} (loss of a model that knows only the token frequencies)"),
        ("evaluated on", f"{results['predicted']:,} {target} tokens in {results['rows']:,} rows of {results['length']}, "
         f"from a text of {results['text_tokens']:,} tokens"),
        ("masking", results["masking"] or ""),
        ("[UNK]", f"{results['unk_share']:.2%} of the tokens" if results["unk_share"] > 0.01 else ""),
        ("minimal pairs", f"{pairs['accuracy']:.2%} of {pairs['count']:,} correct "
         f"(95%: {pairs['interval'][0]:.1%} to {pairs['interval'][1]:.1%})" if pairs else ""),
    ]  # fmt: skip
    return [(label, text) for label, text in rows if text]
