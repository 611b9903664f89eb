"""A pre-trained model on any text: loss, perplexity and accuracy, and how often it prefers the better sentence of a pair.

A masked model is measured under the fixed masking of every run's evaluation (`train/eval_sets.py`), a causal one by the tokens
that follow. Both read the text in rows of one length, so the figures of two models can be compared where their tokenizers,
the text and the row length are the same.
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
from unmask.train.trainer import evaluate as measure

MAX_LENGTH = 128  # tokens of a row, where the model reads as many
MAX_ROWS = 2048  # read at most, from all over the text


def evaluate_text(
    predictor: Predictor,
    sources: Sequence[str],
    pairs: str | None,
    length: int | None,
    rows: int | None,
    console: Console,
) -> dict[str, Any]:
    """`sources`: text as `pretrain` reads it, or a prepared store, whose held-out part is measured."""
    kind = objective_of(predictor)
    length = _length(predictor, length)
    store, split = _text(predictor, sources, console)
    track = fixed_eval_set(split, predictor.tokenizer, predictor.config, kind, length, rows or MAX_ROWS)
    if not track.batches:
        raise UserError(f"{', '.join(sources)}: no token to predict", expected="text that the model's tokenizer knows")
    engine: Any = predictor.engine
    predicted = sum(track.objective.target_counts(batch)[kind] for batch in track.batches)
    found = measure(engine.model, track.objective, track.batches, engine.device, False, World(0, 1))
    judged = predictor.minimal_pairs(pairs) if pairs else None
    return {
        "objective": kind,
        "masking": FIXED_TEXT if kind == "mlm" else None,
        "text": list(sources),
        "text_tokens": len(split.tokens),
        "unk_share": split.counts["unk_share"],
        "rows": sum(batch.rows for batch in track.batches),
        "length": length,
        "predicted": predicted,
        "loss": found[kind],
        "perplexity": found["perplexity"],
        "accuracy": found.get(f"{kind}_accuracy"),
        "unigram_entropy": store.meta["unigram_entropy"],
        "pairs": judged and {"accuracy": judged.accuracy, "count": judged.count, "interval": list(judged.interval)},
    }


def objective_of(predictor: Predictor) -> str:
    """What the model is measured by: "mlm" or "clm"."""
    config, heads = predictor.config, set(predictor.heads)
    if predictor.engine.kind != "torch":
        raise UserError("an exported model answers, and has no loss", hint="the model folder that was exported")
    if config.encoder == "transformer" and not config.decoder_layers:
        if heads & {"lm", "mlm"} and (config.causal or config.logit_position == "next"):
            return "clm"
        if "mlm" in heads:
            return "mlm"
    raise UserError(
        f"a {config.family} model with the heads {', '.join(sorted(heads)) or 'none'} has no loss on plain text",
        expected="a model that predicts masked tokens (BERT, RoBERTa, ModernBERT, …; of ELECTRA its generator/ folder) or the "
        "next token (GPT), or a fine-tuned model with a labelled file",
    )


def _length(predictor: Predictor, length: int | None) -> int:
    longest = predictor.config.max_positions
    if length is not None and not 8 <= length <= longest:
        raise UserError(f"--max-length {length}", expected=f"8 to {longest}, the positions of this model")
    return length or min(MAX_LENGTH, longest)


def _text(predictor: Predictor, sources: Sequence[str], console: Console) -> tuple[TokenStore, Split]:
    own = predictor.tokenizer
    if len(sources) == 1 and (Path(sources[0]) / "meta.json").exists():
        store = TokenStore.open(sources[0])
        if store.tokenizer.fingerprint() != own.fingerprint():
            raise UserError(
                f"{sources[0]} was cut with another tokenizer than the model's: its ids mean other words",
                hint="give the text itself in place of the store",
            )
        return store, store.heldout if len(store.heldout.tokens) else store.train
    corpus = Corpus(list(sources), DataRecipe())
    console.say(corpus.describe())
    settings = DataRecipe(eval_fraction=0.0, deduplicate="off", minhash_sample=0)
    with console.bar("prepare") as update:
        store = prepare(corpus, own, settings, None, update)
    return store, store.train


def lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) for a terminal."""
    what = "masked" if found["objective"] == "mlm" else "next"
    pairs = found["pairs"]
    accuracy = found["accuracy"]
    rows = [
        ("loss", f"{found['loss']:.4f} nats per {what} token"),
        ("perplexity", f"{found['perplexity']:,.2f}"),
        ("accuracy", f"{accuracy:.2%}" if accuracy is not None else ""),
        ("unigram entropy", f"{found['unigram_entropy']:.4f} (the loss of knowing token frequencies alone)"),
        ("measured on", f"{found['predicted']:,} {what} tokens in {found['rows']:,} rows of {found['length']}, "
         f"of a text of {found['text_tokens']:,} tokens"),
        ("masking", found["masking"] or ""),
        ("[UNK]", f"{found['unk_share']:.2%} of the tokens" if found["unk_share"] > 0.01 else ""),
        ("minimal pairs", f"{pairs['accuracy']:.2%} of {pairs['count']:,} right "
         f"(95 %: {pairs['interval'][0]:.1%} to {pairs['interval'][1]:.1%})" if pairs else ""),
    ]  # fmt: skip
    return [(label, text) for label, text in rows if text]
