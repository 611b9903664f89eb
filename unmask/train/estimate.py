"""`--dry-run`: what a run would be, before anything is written: resolved recipe, parameters, memory, steps and time.

Time is measured, not guessed: two steps of the real model on random tokens. A corpus that was not prepared yet is
counted in bytes, and its tokens estimated from them; the result says so.
"""

from pathlib import Path
from typing import Any

import numpy as np

from unmask.batch import Example
from unmask.data.corpus import Corpus
from unmask.data.prepare import cached_store
from unmask.data.store import TokenStore
from unmask.data.tokenizer import Tokenizer, tokenizer_folder
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import change, preset
from unmask.model.model import Model
from unmask.objectives.objective import build
from unmask.recipe import VOCABULARY, Recipe, TokenizerRecipe
from unmask.seeds import generator
from unmask.train.distributed import World
from unmask.train.loader import Loader
from unmask.train.pretraining import check_length, memory, with_objective
from unmask.train.schedule import lengths, plan
from unmask.train.trainer import Trainer, seconds_per_step

BYTES_PER_TOKEN = {"char": 1.0, "byte": 1.0}  # others: 4.3, as English WordPiece of 8,192; until the text is prepared


class RandomRows:
    """Rows of random tokens with the shape of real ones, to time a step on."""

    def __init__(self, kind: str, size: int, tokenizer: Tokenizer):
        self.kind, self.size, self.pad = kind, size, tokenizer.pad
        self.ordinary = np.flatnonzero(~tokenizer.special)

    def count(self, length: int) -> int:
        return self.size

    def example(self, epoch: int, i: int, phase: Any) -> Example:
        ids = generator("dry-run", i).choice(self.ordinary, phase.length)
        pairs = self.kind == "pairs"
        segments = (np.arange(phase.length) >= phase.length // 2).astype(np.int64) if pairs else None
        return Example(ids, segments, labels={"nsp": np.array([i % 2])} if pairs else {})


def estimate(recipe: Recipe) -> dict[str, Any]:
    tokenizer, tokens, source = _text(recipe)
    if recipe.start:
        found = hf.load(recipe.start)
        config = change(found.config, **recipe.model)
        recipe = with_objective(recipe, config, found.model.heads)
    else:
        config = preset(recipe.preset, **{"vocab_size": _vocabulary(recipe, tokenizer), **recipe.model})
        recipe = with_objective(recipe, config)
    check_length(recipe, config, recipe.start or recipe.preset)
    stand_in = tokenizer or Tokenizer.train(["a b"], TokenizerRecipe(kind="byte"))
    if config.vocab_size < stand_in.size:
        config = change(config, vocab_size=stand_in.size)
    objective = build(recipe, stand_in)
    rows_of = {n: max(1, tokens // (n - 2)) for n, _ in lengths(recipe.train)}
    model = Model(config, objective.heads).init(recipe.seed)
    rough = recipe.train.model_copy(update={"minutes": None, "tokens": None, "epochs": None, "steps": 10})
    world = World(0, 1)
    first = plan(recipe.model_copy(update={"train": rough}), rows_of)
    trainer = Trainer(model, objective, rough, first, recipe.seed, world)
    loader = Loader(RandomRows(objective.rows, 10**6, stand_in), objective, recipe.seed)
    seconds_of = {s.length: seconds_per_step(trainer, loader, first.phase(s.start), 2) for s in first.stretches}
    p = plan(recipe, rows_of, seconds_of)
    parameters = sum(x.numel() for x in model.parameters())
    return {
        "recipe": recipe.model_dump(mode="json"),
        "architecture": config.architecture(list(model.heads)),
        "parameters": parameters,
        "memory_bytes": memory(config, parameters, recipe),
        "text_tokens": tokens,
        "text_tokens_from": source,
        "steps": p.steps,
        "tokens": p.tokens,
        "epochs": p.tokens / max(1, tokens),
        "seconds_per_step": seconds_of,
        "minutes": sum(s.steps * seconds_of[s.length] for s in p.stretches) / 60,
    }


def _vocabulary(recipe: Recipe, tokenizer: Tokenizer | None) -> int:
    if tokenizer:
        return tokenizer.size
    return {"byte": 261, "char": 512}.get(recipe.tokenizer.kind, recipe.tokenizer.vocab_size or VOCABULARY)


def _text(recipe: Recipe) -> tuple[Tokenizer | None, int, str]:
    """The tokenizer if there is one already, and the number of training tokens, counted or estimated."""
    sources = recipe.data.corpus
    if not sources:
        raise UserError("no corpus given", valid="paths, folders, globs, '-' or sample:NAME")
    if len(sources) == 1:
        try:
            store = TokenStore.open(sources[0])
            return store.tokenizer, store.meta["train"]["tokens"], "counted in the store"
        except UserError:
            pass
    corpus = Corpus(sources, recipe.data)
    named = recipe.tokenizer.path or recipe.start or tokenizer_folder(corpus, recipe.tokenizer)
    tokenizer = Tokenizer.load(named) if Path(named).exists() or isinstance(named, str) else None
    cached = cached_store(corpus, tokenizer, recipe.data) if tokenizer else None
    if cached:
        return tokenizer, cached.meta["train"]["tokens"], "counted in the cached store"
    ratio = BYTES_PER_TOKEN.get(recipe.tokenizer.kind, 4.3)
    return tokenizer, int(corpus.bytes() / ratio), f"estimated: {corpus.bytes():,} bytes / {ratio}"
