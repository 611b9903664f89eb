"""How long a training step takes, measured: whole steps where four of them are cheap, else parts of one.

A step of a large model takes minutes on a CPU. Its forward and backward pass costs as much for every row, and as much for
every layer but the last (which computes only what the loss reads). So a few rows are timed through one layer and through
two: the difference is the price of a layer, and the rest is embeddings, last layer and heads. The optimizers are timed
once, on one layer, and scaled by the number of parameters each of them has: layers have equal shapes.
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

MAX_WHOLE_STEP_FLOPS = 6e11  # floating-point operations that whole steps may take: some ten seconds of two cores
MAX_PROBE_FLOPS = 2.5e11  # the same for the passes of a probe
REPEATS = 3  # passes of each depth, the first one to warm up


@dataclass(frozen=True)
class StepTime:
    seconds: dict[int, float]  # of a step, per row length
    basis: str  # what they were measured on, for people
    rows: int  # rows per measured pass
    layers: int  # layers of the largest model that was timed
    operations: float  # floating-point operations that were done, roughly


def meta_model(config: ModelConfig, objective: Objective) -> Model:
    """The model without its weights: names and shapes only, whatever its size."""
    with torch.device("meta"):
        return Model(config, objective.heads)


def measure_step_time(
    recipe: Recipe, config: ModelConfig, objective: Objective, loader: Loader, plan: Plan
) -> StepTime:
    whole = meta_model(config, objective)
    lengths = {s.length: plan.phase(s.start) for s in plan.length_phases}
    cost = sum(4 * (pass_flops(whole, plan.batch * n) + update_flops(whole, recipe)) for n in lengths)
    if cost <= MAX_WHOLE_STEP_FLOPS or pick_device(recipe.train.device).type != "cpu":
        trainer = _trainer(recipe, config, objective, loader, plan)
        seconds = {n: seconds_per_step(trainer, loader, phase, 1.0) for n, phase in lengths.items()}
        return StepTime(seconds, "whole steps were timed", plan.batch, config.layers, cost)
    one, two = (_shallow(config, n) for n in (1, 2))
    work = sum(REPEATS * pass_flops(meta_model(c, objective), n) for n in lengths for c in (one, two))
    rows = int(min(plan.batch, max(1, MAX_PROBE_FLOPS // work)))
    trainers = [_trainer(recipe, c, objective, loader, plan) for c in (one, two)]
    passed = {n: [_pass(t, loader, rows, phase) for t in trainers] for n, phase in lengths.items()}
    update = _update(trainers[0], whole)
    deeper = config.layers - 1
    seconds = {n: plan.batch / rows * (a + deeper * max(0.0, b - a)) + update for n, (a, b) in passed.items()}
    basis = f"estimated from passes of {rows} of {plan.batch} rows through 1 and 2 of {config.layers} layers, and an update of one layer"
    done = rows * work + update_flops(meta_model(one, objective), recipe)
    return StepTime(seconds, basis, rows, two.layers, done)


def pass_flops(model: Model, tokens: int) -> float:
    """Operations of one forward and backward pass, roughly: six per token and weight of the layers."""
    named = model.named_parameters()
    weights = sum(
        plan.numel() for name, plan in named if name.startswith(STACKS) and plan.ndim > 1 and "embeddings" not in name
    )
    return 6.0 * tokens * weights * (model.config.layers if model.config.shared_layers else 1)


def update_flops(model: Model, recipe: Recipe) -> float:
    """Operations of one update: Muon's iterations; AdamW's are few."""
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


def _pass(trainer: Trainer, loader: Loader, rows: int, phase: StepConfig) -> float:
    """Seconds of a forward and backward pass of `rows` rows: the fastest but the first."""
    batches = micro_batches(loader, (0, rows), phase, rows, trainer.world)
    return min([_seconds(lambda: trainer.gradients(0, batches)) for _ in range(REPEATS)][1:])


def _update(trainer: Trainer, whole: Model) -> float:
    """Seconds of an update of the whole model. The trainer's has gradients already."""
    several = len(trainer.optimizers.all) > 1  # the second one has the matrices of the layers
    matrices, sizes = matrix_parts(whole) if several else {}, [0, 0]
    for name, plan in whole.named_parameters():
        sizes[name in matrices] += plan.numel()
    total = 0.0
    for optimizer, size in zip(trainer.optimizers.all, sizes):
        own = sum(plan.numel() for group in optimizer.param_groups for plan in group["params"])
        total += _seconds(optimizer.step) * size / max(1, own)
    own = sum(plan.numel() for plan in trainer.parameters)
    return total + _seconds(lambda: clip_grad_norm_(trainer.parameters, 0.0)) * sum(sizes) / own


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
