"""What stands in for text and model in a dry run of pre-training, and how much memory training takes.

Time is measured, not guessed: some steps of the model on random tokens, or parts of one where a step takes long (`probe`).
A corpus that was not prepared yet is counted in bytes, and its tokens estimated from them; the result says both.
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

BYTES_PER_TOKEN = {"char": 1.0, "byte": 1.0}  # others: 4.3, as English WordPiece of 8,192; until the text is prepared
SENTENCE_TOKENS = 16


class RandomRows:
    """Rows of random tokens with the shape of real ones, to time a step on."""

    def __init__(self, kind: str, size: int, tokenizer: Tokenizer):
        self.kind, self.size, self.pad = kind, size, tokenizer.pad
        self.tokenizer, self.ordinary = tokenizer, np.flatnonzero(~tokenizer.special)
        self.sep = tokenizer.sep
        self.first = self.ordinary[0] if tokenizer.cls is None else tokenizer.cls

    def count(self, length: int) -> int:
        return self.size

    def example(self, epoch: int, i: int, phase: Any) -> Example:
        ids = generator("dry-run", i).choice(self.ordinary, phase.length)
        ids[0], ids[-1] = self.first, self.sep
        flags = np.full(phase.length, WORD, np.uint8)
        flags[1:-1:SENTENCE_TOKENS] |= SENTENCE
        flags[[0, -1]] = 0
        if self.kind == "stream":
            return Example(ids, flags=flags)
        ids[phase.length // 2] = self.sep
        segments = (np.arange(phase.length) > phase.length // 2).astype(np.int64)
        return Example(ids, segments, flags, {"nsp" if self.kind == "pairs" else "sop": np.array([i % 2])})


@dataclass(frozen=True)
class TextEstimate:
    """What is known of a text that may not be prepared yet."""

    tokenizer: Tokenizer | None  # if there is one already
    tokens: int  # for training, counted or estimated
    source: str  # how they were
    extension: dict[str, Any] | None = None  # words that the tokenizer gets


@dataclass(frozen=True)
class Estimate:
    """What stands in for a run that is only estimated: no store, no weights, rows of random tokens."""

    recipe: Recipe
    text: TextEstimate
    config: ModelConfig
    objective: Objective
    loader: Loader

    def rows(self) -> dict[int, int]:
        """Rows in an epoch per row length."""
        turns = InterleaveSchedule([part.share for part in parse_replay(self.recipe.data.replay)])
        return {n: turns.rows(max(1, self.text.tokens // (n - 2))) for n, _ in length_schedule(self.recipe.train)}


def estimate(recipe: Recipe) -> Estimate:
    text = _text(recipe)
    stand_in = text.tokenizer
    if stand_in is None:
        stand_in = Tokenizer.train(["a b"], TokenizerRecipe(type="byte", template=recipe.tokenizer.template))
    if recipe.init_from:
        found = hf.load(recipe.init_from)
        config = change(found.config, **recipe.model)
        recipe = with_objective(recipe, config, found.model.heads)
    else:
        size = max(_vocabulary(recipe, text.tokenizer), stand_in.size)
        config = preset(recipe.preset, **{"vocab_size": size, **stand_in.config_ids(), **recipe.model})
        recipe = with_objective(recipe, config)
    check_length(recipe, config, recipe.init_from or recipe.preset)
    if config.vocab_size < stand_in.size:
        config = change(config, vocab_size=stand_in.size)
    objective = build(recipe, stand_in, config)
    loader = Loader(RandomRows(objective.rows, 10**6, stand_in), objective, recipe.seed)
    return Estimate(recipe, text, config, objective, loader)


def _vocabulary(recipe: Recipe, tokenizer: Tokenizer | None) -> int:
    if tokenizer:
        return tokenizer.size
    return {"byte": 261, "char": 512}.get(recipe.tokenizer.type, recipe.tokenizer.vocab_size or VOCABULARY)


def vocabulary_rows(objective: Objective, model: Model, batch: Batch) -> int:
    """Positions at which a loss reads logits over the vocabulary; terms named as another head read that one."""
    counts = objective.target_counts(batch)
    read = [n for term, n in counts.items() if term not in model.heads or HEADS[term].reads == "vocabulary"]
    return max(read, default=0)


def memory(model: Model, recipe: Recipe, vocabulary_rows: int) -> dict[str, int]:
    """Bytes expected, roughly: weights, gradients, optimizer state, and activations of one micro-batch."""
    train, parameters = recipe.train, sum(p.numel() for p in model.parameters())
    longest = max(n for n, _ in length_schedule(train))
    tokens = (train.micro_batch_size or train.batch_size) * longest
    numbers = 0
    for config in [model.config, *([model.config.generator_config()] if "generator" in model.heads else [])]:
        layers = config.layers + config.decoder_layers  # a shared layer is computed, and kept, as often as it is used
        layer = 10 * config.hidden + config.mlp_width * (3 if config.gated else 2)
        attention = config.heads * longest if config.attention_dropout else 0
        kept = layers * config.hidden + layer if train.gradient_checkpointing else layers * layer
        crossing = config.decoder_layers * 6 * config.hidden
        numbers += tokens * (kept + crossing + layers * attention)
    return {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "activations": 4 * (numbers + 3 * vocabulary_rows * model.config.vocab_size),
    }


def _text(recipe: Recipe) -> TextEstimate:
    sources = recipe.data.corpus
    if not sources:
        raise UserError("no corpus given", expected="paths, folders, globs, '-' or sample:NAME")
    if len(sources) == 1 and (Path(sources[0]) / "meta.json").exists():
        store = TokenStore.open(sources[0])
        return TextEstimate(store.tokenizer, store.meta["train"]["tokens"], "counted in the store")
    corpus = Corpus(sources, recipe.data)
    named = recipe.tokenizer.path or recipe.init_from or tokenizer_folder(corpus, recipe.tokenizer)
    if isinstance(named, Path):
        tokenizer = cached_tokenizer(named) if named.exists() else None
    else:
        tokenizer = Tokenizer.load(named)
    report = None
    if tokenizer and recipe.init_from and recipe.tokenizer.num_added_tokens:
        tokenizer, report = cached_extension(tokenizer, corpus, recipe.tokenizer.num_added_tokens, keep=False)
    cached = cached_store(corpus, tokenizer, recipe.data) if tokenizer else None
    if cached:
        return TextEstimate(tokenizer, cached.meta["train"]["tokens"], "counted in the cached store", report)
    ratio = BYTES_PER_TOKEN.get(recipe.tokenizer.type, 4.3)
    return TextEstimate(
        tokenizer, int(corpus.bytes() / ratio), f"estimated: {corpus.bytes():,} bytes / {ratio}", report
    )
