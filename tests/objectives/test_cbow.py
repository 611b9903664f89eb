"""Continuous bag of words: targets and contexts, window sizes, the loss against a manual computation, and word
similarity."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unmask.batch import Example, StepConfig, collate
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.cbow import CBOW
from unmask.objectives.objective import build
from unmask.recipe import Recipe
from unmask.seeds import generator
from unmask.text.rows import RowDataset
from unmask.text.store import TokenStore
from unmask.train.distributed import World
from unmask.train.loader import Loader
from unmask.train.schedule import plan
from unmask.train.trainer import Trainer

PHASE = StepConfig(0, 16)


def objective(store: TokenStore, **settings: float) -> CBOW:
    return CBOW(Recipe.build({"objective": "cbow", "cbow": settings}), store.tokenizer)


def groups(labels: dict[str, np.ndarray]) -> list[list[int]]:
    ends = np.cumsum(labels["cbow.sizes"])[:-1]
    return [part.tolist() for part in np.split(labels["cbow.contexts.positions"], ends)]


def test_contexts(store: TokenStore) -> None:
    """With window 1 the context is the adjacent words, never the word itself. Special tokens are neither targets nor
    context."""
    t = store.tokenizer
    ids = np.array([t.cls, 10, 11, t.sep, 12, 13, 14, t.sep])
    labels = objective(store, window=1).corrupt(Example(ids), generator(0), PHASE).labels
    assert labels["cbow.targets"].tolist() == [10, 11, 12, 13, 14]
    assert groups(labels) == [[2], [1], [5], [4, 6], [5]]
    alone = objective(store).corrupt(Example(np.array([t.cls, 10, t.sep])), generator(0), PHASE).labels
    assert not len(alone["cbow.targets"])
    assert not len(alone["cbow.contexts.positions"])


def test_window_sizes_are_uniform(store: TokenStore) -> None:
    """Window sizes 1 to 5 are equally likely: a word at distance d is context with probability (6 - d) / 5."""
    ids = np.arange(20, 61)
    near = np.zeros(7)
    rounds, center = 2000, 20
    for n in range(rounds):
        labels = objective(store).corrupt(Example(ids), generator(0, n), PHASE).labels
        assert labels["cbow.targets"].tolist() == ids.tolist()
        around = groups(labels)[center]
        assert center not in around
        for position in around:
            near[abs(position - center)] += 0.5
    assert np.abs(near[1:6] / rounds - np.array([5, 4, 3, 2, 1]) / 5).max() < 0.04
    assert near[6] == 0


def test_target_fraction(store: TokenStore) -> None:
    o = objective(store, target_fraction=0.3)
    counts = [
        len(o.corrupt(Example(np.arange(20, 60)), generator(1, n), PHASE).labels["cbow.targets"]) for n in range(500)
    ]
    assert np.mean(counts) / 40 == pytest.approx(0.3, abs=0.02)


def test_loss_matches_manual_computation(store: TokenStore) -> None:
    o = objective(store)
    examples = [o.corrupt(Example(np.arange(20, 20 + n)), generator(2, n), PHASE) for n in (12, 7)]
    model = Model(preset("cbow-mini", vocab_size=store.tokenizer.size, hidden=32), o.heads).init(0)
    expected = torch.zeros(())
    for example in examples:
        for around, target in zip(groups(example.labels), example.labels["cbow.targets"]):
            mean = model.embedding[torch.tensor(example.input_ids[around])].mean(0)
            logits = model.heads["cbow"].decoder.weight @ mean
            expected = expected + F.cross_entropy(logits, torch.tensor(target))
    batch = collate(examples, pad=0)
    total, count = o.loss(model, batch)["cbow"]
    assert count == o.target_counts(batch)["cbow"] == 19
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)


def test_words_with_shared_contexts_have_similar_vectors() -> None:
    """Drinks and animals never co-occur; drinks share one set of contexts, animals another."""
    from unmask.recipe import TokenizerRecipe
    from unmask.text.tokenizer import Tokenizer

    kinds = {
        "drink": (["tea", "coffee", "juice", "milk"], ["he drinks hot {} every morning", "a cup of {} please"]),
        "animal": (["dogs", "cats", "birds", "foxes"], ["wild {} run through forests", "two grey {} sleep outside"]),
    }
    texts = [frame.format(word) for words, frames in kinds.values() for word in words for frame in frames]
    tokenizer = Tokenizer.train(texts * 3, TokenizerRecipe(vocab_size=132))
    recipe = Recipe.build({"objective": "cbow", "train": {"steps": 60, "lr": 2e-2, "batch_size": 16, "warmup": 0}})
    o = build(recipe, tokenizer)
    model = Model(preset("cbow-mini", vocab_size=tokenizer.size, hidden=16), o.heads).init(0)
    trainer = Trainer(model, o, recipe.train, plan(recipe, {128: 16}), 0, World(0, 1))
    rows = [np.array(tokenizer.encode(text)) for text in texts]
    losses = []
    for step in range(60):
        examples = [o.corrupt(Example(row), generator(step, n), PHASE) for n, row in enumerate(rows)]
        losses.append(trainer.step(step, [(0, collate(examples, tokenizer.pad))]).values["loss"])
    assert losses[-1] < 0.6 * losses[0]
    words = [word for group, _ in kinds.values() for word in group]
    ids = [tokenizer.encode(word) for word in words]
    assert all(len(i) == 1 for i in ids)
    vectors = F.normalize(model.embedding.detach()[torch.tensor(ids)[:, 0]], dim=-1)
    like = vectors @ vectors.T
    same = [float(like[i, j]) for i in range(8) for j in range(i) if i // 4 == j // 4]
    between = [float(like[i, j]) for i in range(8) for j in range(i) if i // 4 != j // 4]
    assert np.mean(same) > np.mean(between) + 0.4
    assert min(same) > np.mean(between)


def test_model_overfits_and_resumes_bit_exactly(store: TokenStore, tmp_path: Path) -> None:
    """8 rows of 32 tokens reach less than 10% of the initial loss: 128 dimensions can separate these few contexts."""
    settings = {"steps": 100, "batch_size": 8, "max_length": 32, "schedule": "constant", "lr": 2e-2, "warmup": 0}
    recipe = Recipe.build({"objective": "cbow", "train": settings})
    config = preset("cbow-mini", vocab_size=store.tokenizer.size)
    o = build(recipe, store.tokenizer, config)
    loader = Loader(RowDataset(store.train, store.tokenizer, 1, o.rows), o, 1)
    p = plan(recipe, {32: loader.rows.count(32)})
    batch = loader.batch(0, 8, p.step_config(0))
    model = Model(config, o.heads).init(1)
    trainer = Trainer(model, o, recipe.train, p, 1, World(0, 1))
    losses = []
    for step in range(100):
        if step == 90:
            hf.save(model, tmp_path, store.tokenizer)
            state = {name: value.clone() for name, value in trainer.optimizers.state().items()}
        losses.append(trainer.step(step, [(0, batch)]).values["loss"])
    assert losses[-1] < 0.1 * losses[0]
    again = Trainer(hf.load(tmp_path, heads=o.heads).model, o, recipe.train, p, 1, World(0, 1))
    again.optimizers.load_state(state)
    assert [again.step(step, [(0, batch)]).values["loss"] for step in range(90, 100)] == losses[90:]


def test_other_models_raise(store: TokenStore) -> None:
    with pytest.raises(UserError, match="does not fit a modernbert model"):
        build(Recipe.build({"objective": "cbow"}), store.tokenizer, preset("modernbert-mini"))
    with pytest.raises(UserError, match="does not fit a cbow model"):
        build(Recipe.build({"objective": "mlm"}), store.tokenizer, preset("cbow-mini"))
