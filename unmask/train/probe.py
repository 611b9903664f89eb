"""Measure the time of a training step: with whole steps if four of them are cheap, otherwise with parts of one.

A step of a large model takes minutes on a CPU. Its forward and backward pass costs the same for every row and for every layer
except the last, which computes only the positions that the loss needs. So a few rows are timed through one layer and through
two layers: the difference is the cost of a layer, and the rest is the cost of embeddings, last layer and heads. The optimizers
are timed once on a one-layer model and scaled by their number of parameters, since all layers have equal shapes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from unmask.batch import StepConfig
from unmask.model.config import ModelConfig, change
from unmask.model.device import pick_device
from unmask.model.model import Model
from unmask.objectives.objective import Objective
from unmask.recipe import Recipe
from unmask.text.token_bytes import token_bytes
from unmask.text.tokenizer import Tokenizer
from unmask.train.distributed import World
from unmask.train.loader import Loader, micro_batches
from unmask.train.optim import NS_STEPS, STACKS, clip_grad_norm_, matrix_parts
from unmask.train.schedule import Plan
from unmask.train.trainer import Trainer, seconds_per_step

MAX_WHOLE_STEP_FLOPS = 6e11  # limit for timing whole steps: about ten seconds on two cores
MAX_PROBE_FLOPS = 2.5e11  # limit for timing parts of a step
REPEATS = 3  # passes per depth, including one for warm-up


@dataclass(frozen=True)
class StepTime:
    seconds: dict[int, float]  # row length → seconds per step
    basis: str  # description of the measurement
    rows: int  # rows per timed pass
    layers: int  # layers of the largest timed model
    operations: float  # approximate floating-point operations of the measurement


def meta_model(config: ModelConfig, objective: Objective) -> Model:
    """Return a model of any size without weights: names and shapes only."""
    with torch.device("meta"):
        return Model(config, objective.heads)


def measure_step_time(
    recipe: Recipe, config: ModelConfig, objective: Objective, loader: Loader, plan: Plan
) -> StepTime:
    full_model = meta_model(config, objective)
    lengths = {s.length: plan.step_config(s.start) for s in plan.length_phases}
    cost = sum(4 * (pass_flops(full_model, plan.batch * n) + update_flops(full_model, recipe)) for n in lengths)
    if cost <= MAX_WHOLE_STEP_FLOPS or pick_device(recipe.train.device).type != "cpu":
        trainer = _trainer(recipe, config, objective, loader, plan)
        seconds = {n: seconds_per_step(trainer, loader, step_config, 1.0) for n, step_config in lengths.items()}
        return StepTime(seconds, "whole steps were timed", plan.batch, config.layers, cost)
    one, two = (_shallow(config, n) for n in (1, 2))
    work = sum(REPEATS * pass_flops(meta_model(c, objective), n) for n in lengths for c in (one, two))
    rows = int(min(plan.batch, max(1, MAX_PROBE_FLOPS // work)))
    trainers = [_trainer(recipe, c, objective, loader, plan) for c in (one, two)]
    passes = {n: [_pass_seconds(t, loader, rows, step_config) for t in trainers] for n, step_config in lengths.items()}
    update = _update_seconds(trainers[0], full_model)
    more_layers = config.layers - 1
    seconds = {n: plan.batch / rows * (a + more_layers * max(0.0, b - a)) + update for n, (a, b) in passes.items()}
    basis = f"estimated from passes of {rows} of {plan.batch} rows through 1 and 2 of {config.layers} layers, and an update of one layer"
    operations = rows * work + update_flops(meta_model(one, objective), recipe)
    return StepTime(seconds, basis, rows, two.layers, operations)


def pass_flops(model: Model, tokens: int) -> float:
    """Estimate the operations of a forward and backward pass: six per token and weight of the layers."""
    weights = sum(
        p.numel()
        for name, p in model.named_parameters()
        if name.startswith(STACKS) and p.ndim > 1 and "embeddings" not in name
    )
    return 6.0 * tokens * weights * (model.config.layers if model.config.shared_layers else 1)


def update_flops(model: Model, recipe: Recipe) -> float:
    """Estimate the operations of an update: Muon's iterations. AdamW's are negligible."""
    if recipe.train.optimizer != "muon":
        return 0.0
    named, total = dict(model.named_parameters()), 0.0
    for name, parts in matrix_parts(model).items():
        weight = named[name]
        short, long = sorted((weight.shape[0] // parts, weight.shape[1]))
        total += parts * NS_STEPS * (4.0 * short * short * long + 2.0 * short**3)
    return total


def _shallow(config: ModelConfig, layers: int) -> ModelConfig:
    return change(config, layers=layers, decoder_layers=min(layers, config.decoder_layers))


def _trainer(recipe: Recipe, config: ModelConfig, objective: Objective, loader: Loader, plan: Plan) -> Trainer:
    model = Model(config, objective.heads).init(recipe.seed)
    if config.characters:
        tokenizer: Tokenizer = loader.rows.tokenizer  # type: ignore[attr-defined]
        model.set_token_bytes(token_bytes(tokenizer))
    return Trainer(model, objective, recipe.train, plan, recipe.seed, World(0, 1))


def _pass_seconds(trainer: Trainer, loader: Loader, rows: int, step_config: StepConfig) -> float:
    """Return the seconds of the fastest forward and backward pass of `rows` rows after the warm-up."""
    batches = micro_batches(loader, (0, rows), step_config, rows, trainer.world)
    return min([_seconds(lambda: trainer.gradients(0, batches)) for _ in range(REPEATS)][1:])


def _update_seconds(trainer: Trainer, full_model: Model) -> float:
    """Estimate the seconds of an update of the full model from a trainer of a shallow one that has gradients already."""
    has_muon = len(trainer.optimizers.all) > 1  # the second optimizer updates the matrices of the layers
    matrices, sizes = matrix_parts(full_model) if has_muon else {}, [0, 0]
    for name, p in full_model.named_parameters():
        sizes[name in matrices] += p.numel()
    total = 0.0
    for optimizer, size in zip(trainer.optimizers.all, sizes):
        shallow_size = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
        total += _seconds(optimizer.step) * size / max(1, shallow_size)
    shallow_size = sum(p.numel() for p in trainer.parameters)
    return total + _seconds(lambda: clip_grad_norm_(trainer.parameters, 0.0)) * sum(sizes) / shallow_size


def _seconds(function: Callable[[], object]) -> float:
    start_time = time.perf_counter()
    function()
    return time.perf_counter() - start_time
