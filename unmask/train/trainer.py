"""Step, accumulate, clip, update. Knows nothing of tasks, files or terminals: it yields what happened.

Each term of the loss is a sum; it is divided once, by its count over all micro-batches and processes, which is known
before the first backward pass. So one batch of 32 and four of 8 give the same gradient, and so do two processes.
Dropout is seeded by (seed, step, micro-batch).
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unmask.batch import Batch
from unmask.metrics import metric
from unmask.model.decoder import Decoder
from unmask.model.device import pick_device, use_bf16
from unmask.model.encoder import Encoder
from unmask.model.model import Model
from unmask.objectives.objective import Objective
from unmask.recipe import TrainRecipe
from unmask.seeds import stable_seed
from unmask.train import loader as loading
from unmask.train.distributed import World
from unmask.train.optim import Optimizers, clip_grad_norm_
from unmask.train.schedule import Plan, learning_rate
from unmask.train.sparse_embedding import TABLE, restrict_embedding

CALIBRATION_SECONDS = 6.0  # seconds of steps that turn a budget in minutes into a number of steps


class NonFiniteLossError(ArithmeticError):
    """The loss or the gradient is not a number; raised before anything was updated or saved."""


@dataclass(frozen=True)
class Step:
    step: int  # 0-based
    values: dict[str, float]  # loss, one per term, lr, grad_norm, mask_rate, length
    tokens: int
    seconds: float


class Trainer:
    def __init__(
        self,
        model: Model,
        objective: Objective,
        settings: TrainRecipe,
        plan: Plan,
        seed: int,
        world: World,
        tokens: np.ndarray | None = None,
    ):
        """`tokens`: all that its rows can hold, where that is known."""
        self.device = pick_device(settings.device)
        self.model = model.to(self.device)
        for part in self.model.modules():
            if isinstance(part, Encoder | Decoder):  # ELECTRA's generator has one of its own
                part.checkpointing = settings.gradient_checkpointing
        self.objective, self.settings, self.plan, self.seed, self.world = objective, settings, plan, seed, world
        self.used_rows = restrict_embedding(model, tokens)
        instead = {TABLE: self.used_rows.rows} if self.used_rows else {}
        trained = {name: instead.get(name, p) for name, p in model.named_parameters() if p.requires_grad}
        self.optimizers = Optimizers(model, settings, trained)
        self.parameters = list(trained.values())
        self.bf16 = use_bf16(settings.precision, self.device)
        self.micro = loading.micro_batch_rows(settings.batch_size, settings.micro_batch_size, world.size)

    def run(self, loader: loading.Loader, start: int = 0) -> Iterator[Step]:
        """Train from step `start` to the end of the plan, a `Step` after each update."""
        for step, batches in loading.steps(loader, self.plan, self.world, self.micro, start, self.settings.prefetch):
            yield self.step(step, batches)

    def step(self, step: int, batches: list[tuple[int, Batch]]) -> Step:
        begun = time.perf_counter()
        means, tokens = self.gradients(step, batches)
        if self.used_rows:
            self.used_rows.gather_grad()
        self.world.all_reduce_gradients(self.parameters)
        norm = clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        mean = sum(self.objective.weights.get(name, 1.0) * value for name, value in means.items())
        if not (math.isfinite(mean) and math.isfinite(norm)):
            raise NonFiniteLossError(f"loss {mean:g}, gradient norm {norm:g} at step {step + 1}")
        factor = learning_rate(step, self.plan.steps, self.settings)
        self.optimizers.step(factor)
        if self.used_rows:
            self.used_rows.write_back()
        phase = self.plan.phase(step)
        values = {
            "loss": mean,
            **means,
            "grad_norm": norm,
            "lr_factor": factor,
            "mask_rate": phase.mask_rate,
            "length": phase.length,
        }
        return Step(step, values, tokens, time.perf_counter() - begun)

    def gradients(self, step: int, batches: list[tuple[int, Batch]]) -> tuple[dict[str, float], int]:
        """This process's gradients of a global batch; the means of the terms and the tokens, over all processes."""
        self.model.train()
        counts, tokens, rounds = self._global_counts([b for _, b in batches])
        self.optimizers.zero_grad()
        sums, weights = dict.fromkeys(counts, 0.0), self.objective.weights
        for number, batch in batches:
            torch.manual_seed(stable_seed(self.seed, "dropout", step, number) >> 1)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                terms = self.objective.loss(self.model, batch.to(self.device))
            shares = [weights.get(name, 1.0) * total / max(1, counts[name]) for name, (total, _) in terms.items()]
            assert set(terms) == set(counts), f"terms {sorted(terms)}, counted {sorted(counts)}"
            loss = torch.stack(shares).sum()
            loss.backward()
            for name, (total, _) in terms.items():
                sums[name] += float(total.detach())
        for _ in range(rounds - len(batches)):  # others have one more micro-batch
            self.objective.join_collectives(self.device)
        totals = self.world.all_reduce_sum(sums.values(), self.device)
        return {name: total / max(1, counts[name]) for name, total in zip(sums, totals)}, tokens

    def _global_counts(self, batches: list[Batch]) -> tuple[dict[str, int], int, int]:
        """Items per term, tokens, and the micro-batches of the process that has most of them."""
        names = self.objective.terms
        local = [self.objective.target_counts(b) for b in batches]
        mine = [sum(c[name] for c in local) for name in names]
        tokens = sum(b.tokens for b in batches)
        *totals, tokens, parts = (int(n) for n in self.world.all_reduce_sum([*mine, tokens, len(batches)], self.device))
        return dict(zip(names, totals)), tokens, -(-parts // self.world.size)

    def evaluate(self, batches: list[Batch], objective: Objective | None = None) -> dict[str, float]:
        """Means of the objective's terms over held-out batches, divided among the processes."""
        return evaluate(self.model, objective or self.objective, batches, self.device, self.bf16, self.world)


@torch.no_grad()
def evaluate(
    model: Model, objective: Objective, batches: list[Batch], device: torch.device, bf16: bool, world: World
) -> dict[str, float]:
    """Means of the objective's terms, their accuracies, the loss they add up to, and the perplexity of its tokens."""
    model.eval()
    sums: dict[str, list[float]] = {}
    for n in world.micro_batches(len(batches)):
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            terms = objective.evaluate(model, batches[n].to(device))
        for name, (total, count) in terms.items():
            pair = sums.setdefault(name, [0.0, 0])
            pair[0] += float(total)
            pair[1] += count
    names = [f"{t}{suffix}" for t in objective.terms for suffix in ("", "_accuracy")]
    flat = world.all_reduce_sum([x for name in names for x in sums.get(name, [0.0, 0])], device)
    counted = zip(names, flat[::2], flat[1::2])
    means = {name: s / max(1, n) for name, s, n in counted if n or not name.endswith("_accuracy")}
    means["loss"] = sum(objective.weights.get(t, 1.0) * means[t] for t in objective.terms)
    words = next((term for term in objective.terms if metric(term).has_perplexity), None)
    if words:
        means["perplexity"] = math.exp(min(means[words], 50))
    return means


def seconds_per_step(
    trainer: Trainer, loader: loading.Loader, phase: Any, seconds: float = CALIBRATION_SECONDS, uniform: bool = True
) -> float:
    """Seconds of an undisturbed training step in `phase`. The caller restores the weights.

    As in training, the next batch is made by a thread while a step runs. Two steps warm up, then some more, as many as fit into
    `seconds`. Where all steps are alike, the faster third decides: what another program took meanwhile it need not take later.
    Where batches differ in length, the mean does.
    """
    fewest, most = (4, 30) if uniform else (6, 42)

    def make(n: int) -> list[tuple[int, Batch]]:
        rows = trainer.plan.batch
        return loading.micro_batches(loader, (n * rows, (n + 1) * rows), phase, trainer.micro, trainer.world)

    times: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(make, 0)
        more = True
        while more:
            begun = time.perf_counter()
            batches = ahead.result()
            ahead = pool.submit(make, len(times) + 1)
            trainer.step(0, batches)
            times.append(time.perf_counter() - begun)
            more = trainer.world.broadcast(len(times) < fewest or (sum(times) < seconds and len(times) < most))
    timed = sorted(times[2:])
    return timed[len(timed) // 3] if uniform else sum(timed) / len(timed)
