"""Trainer: forward and backward passes, gradient accumulation, clipping and updates. It does not access files or the terminal.

Each term of the loss is a sum that is divided once, by its count over all micro-batches and processes, which is known before
the first backward pass. So one batch of 32, four micro-batches of 8 and two processes all give the same gradient. Dropout is
seeded by (seed, step, micro-batch).
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from unmask.batch import Batch, StepConfig
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
from unmask.train.sparse_embedding import TOKEN_EMBEDDING, restrict_embedding

CALIBRATION_SECONDS = 6.0  # duration of the timed steps that convert a budget in minutes to steps


class NonFiniteLossError(ArithmeticError):
    """The loss or the gradient is not finite. Raised before anything is updated or saved."""


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
        """`tokens`: ids of all tokens that occur in the training rows, if known."""
        self.device = pick_device(settings.device)
        self.model = model.to(self.device)
        for module in self.model.modules():
            if isinstance(module, Encoder | Decoder):  # several in ELECTRA, whose generator has its own encoder
                module.checkpointing = settings.gradient_checkpointing
        self.objective, self.settings, self.plan, self.seed, self.world = objective, settings, plan, seed, world
        self.used_rows = restrict_embedding(model, tokens)
        # With sparse embeddings, the optimizer updates the rows of the tokens that occur instead of the whole matrix.
        replaced = {TOKEN_EMBEDDING: self.used_rows.rows} if self.used_rows else {}
        trained = {name: replaced.get(name, p) for name, p in model.named_parameters() if p.requires_grad}
        self.optimizers = Optimizers(model, settings, trained)
        self.parameters = list(trained.values())
        self.bf16 = use_bf16(settings.precision, self.device)
        self.micro_batch_rows = loading.micro_batch_rows(settings.batch_size, settings.micro_batch_size, world.size)

    def run(self, loader: loading.Loader, start: int = 0) -> Iterator[Step]:
        """Train from step `start` to the end of the plan and yield a `Step` after each update."""
        for step, batches in loading.steps(
            loader, self.plan, self.world, self.micro_batch_rows, start, self.settings.prefetch
        ):
            yield self.step(step, batches)

    def step(self, step: int, batches: list[tuple[int, Batch]]) -> Step:
        start_time = time.perf_counter()
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
        step_config = self.plan.step_config(step)
        values = {
            "loss": mean,
            **means,
            "grad_norm": norm,
            "lr_factor": factor,
            "mask_rate": step_config.mask_rate,
            "length": step_config.length,
        }
        return Step(step, values, tokens, time.perf_counter() - start_time)

    def gradients(self, step: int, batches: list[tuple[int, Batch]]) -> tuple[dict[str, float], int]:
        """Compute this process's gradients of a global batch.

        Return the means of the loss terms and the number of tokens, both over all processes.
        """
        self.model.train()
        counts, tokens, max_micro_batches = self._global_counts([b for _, b in batches])
        self.optimizers.zero_grad()
        sums, weights = dict.fromkeys(counts, 0.0), self.objective.weights
        for index, batch in batches:
            torch.manual_seed(stable_seed(self.seed, "dropout", step, index) >> 1)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                terms = self.objective.loss(self.model, batch.to(self.device))
            losses = [weights.get(name, 1.0) * total / max(1, counts[name]) for name, (total, _) in terms.items()]
            assert set(terms) == set(counts), f"terms {sorted(terms)}, counted {sorted(counts)}"
            torch.stack(losses).sum().backward()
            for name, (total, _) in terms.items():
                sums[name] += float(total.detach())
        for _ in range(max_micro_batches - len(batches)):  # other processes may have one more micro-batch
            self.objective.join_collectives(self.device)
        totals = self.world.all_reduce_sum(sums.values(), self.device)
        return {name: total / max(1, counts[name]) for name, total in zip(sums, totals)}, tokens

    def _global_counts(self, batches: list[Batch]) -> tuple[dict[str, int], int, int]:
        """Return targets per loss term and tokens over all processes, and the largest number of micro-batches of a process."""
        names = self.objective.terms
        counts = [self.objective.target_counts(b) for b in batches]
        local = [*(sum(c[name] for c in counts) for name in names), sum(b.tokens for b in batches), len(batches)]
        *totals, tokens, micro_batches = (int(n) for n in self.world.all_reduce_sum(local, self.device))
        return dict(zip(names, totals)), tokens, -(-micro_batches // self.world.size)

    def evaluate(self, batches: list[Batch], objective: Objective | None = None) -> dict[str, float]:
        """Return the means of the objective's terms over validation batches; each process evaluates a part of them."""
        return evaluate(self.model, objective or self.objective, batches, self.device, self.bf16, self.world)


@torch.no_grad()
def evaluate(
    model: Model, objective: Objective, batches: list[Batch], device: torch.device, bf16: bool, world: World
) -> dict[str, float]:
    """Return the means of the objective's terms, their accuracies, the total loss and the perplexity."""
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
    token_term = next((term for term in objective.terms if metric(term).has_perplexity), None)
    if token_term:
        means["perplexity"] = math.exp(min(means[token_term], 50))
    return means


def seconds_per_step(
    trainer: Trainer,
    loader: loading.Loader,
    step_config: StepConfig,
    seconds: float = CALIBRATION_SECONDS,
    uniform: bool = True,
) -> float:
    """Measure the seconds of a training step. The caller restores the weights.

    As in training, a thread builds the next batch during a step. After two warm-up steps, steps are timed for about `seconds`.
    If all steps cost the same (`uniform`), return the lower tercile, because other programs on the machine slow down some steps.
    If batches differ in length, return the mean.
    """
    min_steps, max_steps = (4, 30) if uniform else (6, 42)

    def make_batches(n: int) -> list[tuple[int, Batch]]:
        rows = trainer.plan.batch
        return loading.micro_batches(
            loader, (n * rows, (n + 1) * rows), step_config, trainer.micro_batch_rows, trainer.world
        )

    times: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        next_batches = pool.submit(make_batches, 0)
        unfinished = True
        while unfinished:
            start_time = time.perf_counter()
            batches = next_batches.result()
            next_batches = pool.submit(make_batches, len(times) + 1)
            trainer.step(0, batches)
            times.append(time.perf_counter() - start_time)
            unfinished = len(times) < min_steps or (sum(times) < seconds and len(times) < max_steps)
            unfinished = trainer.world.broadcast(unfinished)  # all processes time the same number of steps
    timed = sorted(times[2:])
    return timed[len(timed) // 3] if uniform else sum(timed) / len(timed)
