"""Trainer guarantees: gradient accumulation does not change results, a batch can be memorized, and calibration has
no side effects."""

import copy

import numpy as np
import pytest
import torch
from near import gap

from unmask.batch import StepConfig
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.objective import build
from unmask.recipe import Recipe
from unmask.runs.budget import make_plan
from unmask.runs.context import Context
from unmask.runs.pretrain import Pretrain, PretrainJob
from unmask.runs.setup import set_up
from unmask.text.rows import RowDataset
from unmask.text.store import TokenStore
from unmask.train import loader as loading
from unmask.train.distributed import World
from unmask.train.loader import Loader
from unmask.train.schedule import plan
from unmask.train.trainer import NonFiniteLossError, Trainer

SMALL = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64}


def trainer_of(
    store: TokenStore, values: dict, objective: str = "mlm+nsp", name: str = "bert-tiny"
) -> tuple[Trainer, Loader]:
    recipe = Recipe.build({"objective": objective, "train": {"max_length": 64, "steps": 10, **values}})
    built = build(recipe, store.tokenizer)
    shape = {"vocab_size": store.tokenizer.size, "dropout": 0.0, "attention_dropout": 0.0, **SMALL}
    model = Model(preset(name, **shape), built.heads).init(0)
    rows = RowDataset(store.train, store.tokenizer, 0, built.rows)
    p = plan(recipe, {64: rows.count(64)})
    return Trainer(model, built, recipe.train, p, 0, World(0, 1)), Loader(rows, built, 0)


def gradients(trainer: Trainer, loader: Loader, micro: int, mean_of_means: bool = False) -> dict[str, torch.Tensor]:
    """Gradients of one batch of 32 split into micro-batches, in float64."""
    trainer.model.double().train()
    step_config = StepConfig(0, 64, 0.15)
    batches = [loader.batch(a, b, step_config) for a, b in loading.micro_ranges(0, 32, micro)]
    counts, _, _ = trainer._global_counts(batches)
    trainer.optimizers.zero_grad()
    for batch in batches:
        for name, (total, n) in loss64(trainer, batch).items():
            (total / (n * len(batches)) if mean_of_means else total / counts[name]).backward(retain_graph=True)
    return {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}


def loss64(trainer: Trainer, batch) -> dict:
    """The objective's loss without its cast to float32, which is for half-precision logits."""
    model = trainer.model
    hidden = model.encoder(
        batch.input_ids,
        batch.attention_mask,
        batch.token_type_ids,
        positions=trainer.objective.loss_positions(model, batch),
    )
    outputs = trainer.objective.logits_and_targets(model, hidden, batch)
    return {
        name: (torch.nn.functional.cross_entropy(logits, targets, reduction="sum"), len(targets))
        for name, (logits, targets) in outputs.items()
    }


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    flat = [torch.cat([g.flatten() for g in x.values()]) for x in (a, b)]
    return float((flat[0] - flat[1]).norm() / flat[0].norm())


def test_gradients_of_one_batch_of_32_equal_four_of_8(store: TokenStore) -> None:
    trainer, loader = trainer_of(store, {"batch_size": 32})
    whole = gradients(trainer, loader, 32)
    assert distance(whole, gradients(trainer, loader, 8)) <= 1e-10
    # Rows have different numbers of targets, so a mean of means gives a different gradient and the comparison can fail.
    assert distance(whole, gradients(trainer, loader, 8, mean_of_means=True)) > 1e-4


def test_trainer_step_accumulates_gradients(store: TokenStore) -> None:
    """The same through `Trainer.step`: after five updates, losses and weights are equal up to fp32 rounding."""
    weights, losses = [], []
    for micro in (0, 8):
        trainer, loader = trainer_of(
            store, {"batch_size": 32, "micro_batch_size": micro, "optimizer": "adamw", "steps": 5}
        )
        losses.append([s.values["loss"] for s in trainer.run(loader)])
        weights.append(trainer.model.state_dict())
    assert len(losses[0]) == 5
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for name, value in weights[0].items():
        assert gap(value, weights[1][name]) <= 1e-4, name


@pytest.mark.parametrize(("name", "optimizer"), [("bert-tiny", "adamw"), ("modernbert-mini", "muon")])
def test_trainer_memorizes_eight_rows(store: TokenStore, name: str, optimizer: str) -> None:
    trainer, loader = trainer_of(
        store, {"batch_size": 8, "steps": 200, "optimizer": optimizer, "schedule": "constant"}, "mlm", name
    )
    batch = loader.batch(0, 8, StepConfig(0, 64, 0.15))
    losses = [trainer.step(step, [(0, batch)]).values["loss"] for step in range(200)]
    assert losses[-1] < 0.1 * losses[0]


def test_nan_loss_stops_before_the_update(store: TokenStore) -> None:
    trainer, loader = trainer_of(store, {"batch_size": 8})
    with torch.no_grad():
        trainer.model.encoder.embeddings.tokens.weight[7] = float("nan")
    before = copy.deepcopy(dict(trainer.model.state_dict().items()))
    with pytest.raises(NonFiniteLossError, match="step 1"):
        list(trainer.run(loader))
    after = trainer.model.state_dict()
    assert all(torch.equal(before[k].nan_to_num(9), after[k].nan_to_num(9)) for k in before)


def test_minutes_are_converted_to_steps_without_side_effects(store: TokenStore) -> None:
    values = {
        "preset": "bert-tiny",
        "model": SMALL,
        "train": {"minutes": 0.05, "max_length": "32:0.5,64:0.5", "batch_size": 8},
    }
    setup = set_up(Recipe.build(values), store)
    before = {k: v.clone() for k, v in setup.model.state_dict().items()}
    job, context = PretrainJob(setup.recipe, "", setup=setup), Context.single_process()
    p, frozen = make_plan(Pretrain().work(job, context), setup.recipe, context)
    assert all(torch.equal(v, before[k]) for k, v in setup.model.state_dict().items())
    assert p.steps > 2
    assert [s.length for s in p.length_phases] == [32, 64]
    assert frozen.train.minutes is None
    assert frozen.train.steps == p.steps
    assert plan(frozen, {32: 100, 64: 50}) == p


def test_examples_do_not_depend_on_micro_batches(store: TokenStore) -> None:
    _, loader = trainer_of(store, {})
    step_config = StepConfig(0, 64, 0.15)
    whole = loader.batch(0, 12, step_config)
    parts = [loader.batch(a, b, step_config) for a, b in loading.micro_ranges(0, 12, 5)]
    for row in range(12):
        part = parts[row // 5]
        n = int((whole.input_ids[row] != store.tokenizer.pad).sum())
        assert np.array_equal(whole.input_ids[row, :n], part.input_ids[row % 5, :n])


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini"])
@pytest.mark.parametrize("objective", ["mlm", "nsp", "mlm+nsp"])
def test_computing_only_loss_positions_does_not_change_the_loss(store: TokenStore, name: str, objective: str) -> None:
    trainer, loader = trainer_of(store, {}, objective, name)
    model, batch = trainer.model.double(), loader.batch(0, 6, StepConfig(0, 64, 0.15))
    at = trainer.objective.loss_positions(model, batch)
    assert at is not None
    assert len(at) < batch.input_ids.numel() / 2
    full = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    part = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids, positions=at)
    assert gap(full.flatten(0, 1)[at], part) <= 1e-12
    outputs = trainer.objective.logits_and_targets(model, part, batch)
    positions = batch.labels.get("mlm.positions")
    if "mlm" in outputs:
        expected = model.logits("mlm", full.flatten(0, 1)[positions])
        assert gap(outputs["mlm"][0], expected) <= 1e-12
    if "nsp" in outputs:
        assert gap(outputs["nsp"][0], model.logits("nsp", full, batch.attention_mask)) <= 1e-12
