"""`unmask pretrain --dry-run`: rows of random tokens to time training steps on, and estimates of tokens and memory.

The time is measured with some steps of the model, or with parts of a step if a step takes long (`train/probe.py`). The number of
tokens of a corpus that is not tokenized yet is estimated from its size in bytes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.batch import Batch, Example
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import ModelConfig, change, preset
from unmask.model.head_spec import HEADS
from unmask.model.model import Model
from unmask.objectives.objective import Objective, build
from unmask.recipe import Recipe
from unmask.runs.setup import check_length, with_objective
from unmask.sections import VOCABULARY, TokenizerRecipe
from unmask.seeds import generator
from unmask.text.corpus import Corpus
from unmask.text.extend import cached_extension
from unmask.text.flags import SENTENCE, WORD
from unmask.text.mix import InterleaveSchedule, parse_replay
from unmask.text.prepare import cached_store
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer, cached_tokenizer, tokenizer_folder
from unmask.train.loader import Loader
from unmask.train.schedule import length_schedule

BYTES_PER_TOKEN = {"char": 1.0, "byte": 1.0}  # tokenizer type → bytes per token
DEFAULT_BYTES_PER_TOKEN = 4.3  # measured with an English WordPiece tokenizer of 8,192 tokens
SENTENCE_TOKENS = 16


class RandomRows:
    """Rows of random tokens with the shape of real ones, for timing."""

    def __init__(self, kind: str, size: int, tokenizer: Tokenizer):
        self.kind, self.size, self.pad = kind, size, tokenizer.pad
        self.tokenizer, self.ordinary = tokenizer, np.flatnonzero(~tokenizer.special)
        self.sep = tokenizer.sep
        self.first = self.ordinary[0] if tokenizer.cls is None else tokenizer.cls

    def count(self, length: int) -> int:
        return self.size

    def example(self, epoch: int, i: int, step_config: Any) -> Example:
        ids = generator("dry-run", i).choice(self.ordinary, step_config.length)
        ids[0], ids[-1] = self.first, self.sep
        flags = np.full(step_config.length, WORD, np.uint8)
        flags[1:-1:SENTENCE_TOKENS] |= SENTENCE
        flags[[0, -1]] = 0
        if self.kind == "stream":
            return Example(ids, flags=flags)
        ids[step_config.length // 2] = self.sep
        segments = (np.arange(step_config.length) > step_config.length // 2).astype(np.int64)
        return Example(ids, segments, flags, {"nsp" if self.kind == "pairs" else "sop": np.array([i % 2])})


@dataclass(frozen=True)
class TextEstimate:
    """The size of a corpus that may not be tokenized yet."""

    tokenizer: Tokenizer | None  # None if it is not trained yet
    tokens: int  # training tokens
    source: str  # how `tokens` was determined
    extension: dict[str, Any] | None = None  # report on tokens added to the tokenizer


@dataclass(frozen=True)
class Estimate:
    """Stand-in for a run that is only estimated: no store, no weights, rows of random tokens."""

    recipe: Recipe
    text: TextEstimate
    config: ModelConfig
    objective: Objective
    loader: Loader

    def rows(self) -> dict[int, int]:
        """Return the rows per epoch by row length."""
        schedule = InterleaveSchedule([part.share for part in parse_replay(self.recipe.data.replay)])
        return {n: schedule.rows(max(1, self.text.tokens // (n - 2))) for n, _ in length_schedule(self.recipe.train)}


def estimate(recipe: Recipe) -> Estimate:
    text = _estimate_text(recipe)
    tokenizer = text.tokenizer
    if tokenizer is None:
        tokenizer = Tokenizer.train(["a b"], TokenizerRecipe(type="byte", template=recipe.tokenizer.template))
    if recipe.init_from:
        loaded = hf.load(recipe.init_from)
        config = change(loaded.config, **recipe.model)
        recipe = with_objective(recipe, config, loaded.model.heads)
    else:
        size = max(_vocab_size(recipe, text.tokenizer), tokenizer.size)
        config = preset(recipe.preset, **{"vocab_size": size, **tokenizer.config_ids(), **recipe.model})
        recipe = with_objective(recipe, config)
    check_length(recipe, config, recipe.init_from or recipe.preset)
    if config.vocab_size < tokenizer.size:
        config = change(config, vocab_size=tokenizer.size)
    objective = build(recipe, tokenizer, config)
    loader = Loader(RandomRows(objective.rows, 10**6, tokenizer), objective, recipe.seed)
    return Estimate(recipe, text, config, objective, loader)


def _vocab_size(recipe: Recipe, tokenizer: Tokenizer | None) -> int:
    if tokenizer:
        return tokenizer.size
    return {"byte": 261, "char": 512}.get(recipe.tokenizer.type, recipe.tokenizer.vocab_size or VOCABULARY)


def vocabulary_rows(objective: Objective, model: Model, batch: Batch) -> int:
    """Return the number of positions with logits over the vocabulary. Terms named like another head do not have them."""
    counts = objective.target_counts(batch)
    positions = [n for term, n in counts.items() if term not in model.heads or HEADS[term].reads == "vocabulary"]
    return max(positions, default=0)


def memory(model: Model, recipe: Recipe, vocabulary_rows: int) -> dict[str, int]:
    """Estimate the bytes of weights, gradients, optimizer state, and activations of one micro-batch."""
    train, parameters = recipe.train, sum(p.numel() for p in model.parameters())
    max_length = max(n for n, _ in length_schedule(train))
    tokens = (train.micro_batch_size or train.batch_size) * max_length
    activations = 0
    for config in [model.config, *([model.config.generator_config()] if "generator" in model.heads else [])]:
        layers = config.layers + config.decoder_layers  # a shared layer keeps activations for each of its uses
        layer = 10 * config.hidden + config.mlp_width * (3 if config.gated else 2)
        attention = config.heads * max_length if config.attention_dropout else 0
        stored = layers * config.hidden + layer if train.gradient_checkpointing else layers * layer
        cross_attention = config.decoder_layers * 6 * config.hidden
        activations += tokens * (stored + cross_attention + layers * attention)
    return {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "activations": 4 * (activations + 3 * vocabulary_rows * model.config.vocab_size),
    }


def _estimate_text(recipe: Recipe) -> TextEstimate:
    sources = recipe.data.corpus
    if not sources:
        raise UserError("no corpus given", expected="paths, folders, globs, '-' or sample:NAME")
    if len(sources) == 1 and (Path(sources[0]) / "meta.json").exists():
        store = TokenStore.open(sources[0])
        return TextEstimate(store.tokenizer, store.meta["train"]["tokens"], "counted in the store")
    corpus = Corpus(sources, recipe.data)
    folder = recipe.tokenizer.path or recipe.init_from or tokenizer_folder(corpus, recipe.tokenizer)
    if isinstance(folder, Path):
        tokenizer = cached_tokenizer(folder) if folder.exists() else None
    else:
        tokenizer = Tokenizer.load(folder)
    report = None
    if tokenizer and recipe.init_from and recipe.tokenizer.num_added_tokens:
        tokenizer, report = cached_extension(tokenizer, corpus, recipe.tokenizer.num_added_tokens, keep=False)
    cached = cached_store(corpus, tokenizer, recipe.data) if tokenizer else None
    if cached:
        return TextEstimate(tokenizer, cached.meta["train"]["tokens"], "counted in the cached store", report)
    ratio = BYTES_PER_TOKEN.get(recipe.tokenizer.type, DEFAULT_BYTES_PER_TOKEN)
    return TextEstimate(
        tokenizer, int(corpus.bytes() / ratio), f"estimated: {corpus.bytes():,} bytes / {ratio}", report
    )
