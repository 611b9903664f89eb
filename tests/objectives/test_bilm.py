"""Bidirectional language modeling: targets per direction, no leakage of the target into its state, and convergence."""

from pathlib import Path

import numpy as np
import pytest
import torch

from unmask.batch import Example, StepConfig, collate
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.bilm import BiLM
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
SIZE = {"hidden": 64, "intermediate": 64, "dropout": 0.0}


def objective(store: TokenStore, **settings: float) -> BiLM:
    return BiLM(Recipe.build({"objective": "bilm", "bilm": settings}), store.tokenizer)


def test_targets(store: TokenStore) -> None:
    ids = np.array([2, 10, 11, 12, 3])
    labels = objective(store).corrupt(Example(ids), generator(0), PHASE).labels
    assert labels["bilm.forwards.positions"].tolist() == [0, 1, 2, 3]
    assert labels["bilm.forwards.targets"].tolist() == [10, 11, 12, 3]
    assert labels["bilm.backwards.positions"].tolist() == [1, 2, 3, 4]
    assert labels["bilm.backwards.targets"].tolist() == [2, 10, 11, 12]


def test_target_fraction_is_exact_and_uniform(store: TokenStore) -> None:
    """Every row has exactly the requested number of targets. Positions are uniform, and the directions are
    independent."""
    seen = {"forwards": np.zeros(41), "backwards": np.zeros(41)}
    for n in range(2000):
        labels = objective(store, target_fraction=0.25).corrupt(Example(np.arange(41)), generator(0, n), PHASE).labels
        for name, step in (("forwards", 1), ("backwards", -1)):
            positions = labels[f"bilm.{name}.positions"]
            assert len(set(positions.tolist())) == 10
            assert (labels[f"bilm.{name}.targets"] == positions + step).all()
            seen[name][positions] += 1
    for name, never in (("forwards", 40), ("backwards", 0)):
        assert seen[name][never] == 0
        rates = np.delete(seen[name], never) / 2000
        assert abs(rates.mean() - 0.25) < 1e-9
        assert np.abs(rates - 0.25).max() < 0.05


def test_padding_has_no_targets(store: TokenStore) -> None:
    o = objective(store)
    rows = [o.corrupt(Example(np.arange(2, 2 + n)), generator(0, n), PHASE) for n in (9, 4)]
    together = collate(rows, pad=0)
    assert o.target_counts(together) == {"bilm": 2 * (8 + 3)}
    model = Model(preset("elmo-mini", vocab_size=store.tokenizer.size, **SIZE), o.heads).init(0).eval()
    with torch.no_grad():
        sums = [float(o.loss(model, collate([row], pad=0))["bilm"][0]) for row in rows]
        both = float(o.loss(model, together)["bilm"][0])
    assert both == pytest.approx(sum(sums), rel=1e-5)


def test_states_do_not_leak_their_targets(store: TokenStore) -> None:
    """A prediction is bit-identical when the token that it predicts, or any token beyond it, changes."""
    o = objective(store)
    model = Model(preset("elmo-mini", vocab_size=store.tokenizer.size, **SIZE), o.heads).init(0).eval()
    with torch.no_grad():
        for position in range(1, 9):
            for side in ("forwards", "backwards"):
                ids = np.arange(20, 30)
                row = o.corrupt(Example(ids), generator(0), PHASE)
                beyond = slice(position, None) if side == "forwards" else slice(None, position + 1)
                changed = ids.copy()
                changed[beyond] += 100
                logits = []
                for inputs in (ids, changed):
                    batch = collate([Example(inputs, labels=row.labels)], pad=0)
                    logits.append(o.logits_and_targets(model, o._hidden(model, batch), batch)["bilm"][0])
                # forwards, a position is predicted at position - 1; backwards at position + 1
                at = position - 1 if side == "forwards" else 9 + position
                assert torch.equal(logits[0][at], logits[1][at])
                assert not torch.equal(logits[0], logits[1])


def test_layer_mix_is_not_trained_or_used(store: TokenStore) -> None:
    o = objective(store)
    model = Model(preset("elmo-mini", vocab_size=store.tokenizer.size, **SIZE), o.heads).init(0).eval()
    batch = collate([o.corrupt(Example(np.arange(20, 30)), generator(0), PHASE)], pad=0)
    before = o.loss(model, batch)["bilm"][0]
    before.backward()
    assert model.encoder.mix.weights.grad is None
    with torch.no_grad():
        model.encoder.mix.scale.fill_(3.0)
        assert torch.equal(o.loss(model, batch)["bilm"][0], before)


def test_other_models_and_combinations_raise(store: TokenStore) -> None:
    recipe = Recipe.build({"objective": "bilm"})
    with pytest.raises(UserError, match="does not fit a bert model") as error:
        build(recipe, store.tokenizer, preset("bert-tiny"))
    assert "elmo-mini" in str(error.value.expected)
    with pytest.raises(UserError, match="does not fit a elmo model"):
        build(Recipe.build({"objective": "mlm"}), store.tokenizer, preset("elmo-mini"))
    with pytest.raises(UserError, match="cannot be combined"):
        build(Recipe.build({"objective": "mlm+bilm"}), store.tokenizer)


def trainer_of(store: TokenStore, model: Model, steps: int) -> tuple[Trainer, Loader]:
    settings = {"steps": steps, "batch_size": 8, "max_length": 16, "schedule": "constant", "lr": 2e-2, "warmup": 0}
    recipe = Recipe.build({"objective": "bilm", "train": settings})
    o = build(recipe, store.tokenizer, model.config)
    loader = Loader(RowDataset(store.train, store.tokenizer, 1, o.rows), o, 1)
    p = plan(recipe, {16: loader.rows.count(16)})
    return Trainer(model, o, recipe.train, p, 1, World(0, 1)), loader


def test_model_overfits_and_resumes_bit_exactly(store: TokenStore, tmp_path: Path) -> None:
    config = preset("elmo-mini", vocab_size=store.tokenizer.size, **SIZE)
    model = Model(config, ["bilm"]).init(1)
    trainer, loader = trainer_of(store, model, 90)
    batch = loader.batch(0, 8, trainer.plan.step_config(0))
    losses = []
    for step in range(90):
        if step == 80:
            hf.save(model, tmp_path, store.tokenizer)
            state = {name: value.clone() for name, value in trainer.optimizers.state().items()}
        losses.append(trainer.step(step, [(0, batch)]).values["loss"])
    assert losses[-1] < 0.1 * losses[0]
    again, _ = trainer_of(store, hf.load(tmp_path, heads=["bilm"]).model, 90)
    again.optimizers.load_state(state)
    assert [again.step(step, [(0, batch)]).values["loss"] for step in range(80, 90)] == losses[80:]


def test_loss_decreases_with_character_input(store: TokenStore) -> None:
    from unmask.text.token_bytes import token_bytes

    model = Model(preset("elmo-mini", vocab_size=store.tokenizer.size, characters=True, **SIZE), ["bilm"]).init(1)
    model.set_token_bytes(token_bytes(store.tokenizer))
    trainer, loader = trainer_of(store, model, 15)
    batch = loader.batch(0, 8, trainer.plan.step_config(0))
    losses = [trainer.step(step, [(0, batch)]).values["loss"] for step in range(15)]
    assert losses[-1] < 0.8 * losses[0]
