"""Choose fp32 or bf16 for training on a CPU by trial (`train.precision: auto`).

bf16 is faster on some CPUs and slower on others, and on some virtual machines its first instruction kills the process. So a child
process gets a copy of the trainer and a few of its batches, and times forward and backward passes in both precisions, one after the
other. The child only writes its measurements to a file. The weights are those of the run and never change, so both precisions must
give the same loss. The update is not timed, because it is computed in fp32 in either case.
"""

import faulthandler
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

import torch
import torch.distributed as dist

from unmask.batch import Batch
from unmask.files import read_json, write_json
from unmask.model.device import pick_device, use_bf16
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.train.distributed import World
from unmask.train.loader import Loader
from unmask.train.probe import pass_flops, update_flops
from unmask.train.schedule import Plan
from unmask.train.trainer import Trainer

# Shorter runs are trained in fp32 without a trial, which takes about six seconds.
MIN_MINUTES = 2.0
MIN_STEPS = 100
MIN_RUN_FLOPS = 4e12  # per thread: about two minutes

MIN_SPEED = 1.1  # bf16 must be faster than fp32 by this factor
MAX_LOSS_GAP = 0.01  # relative difference of the losses, plus this many nats

NUM_BATCHES = 2  # different batches; the first pass of each is for warm-up
MAX_PASS_FLOPS = 1e10  # per thread: larger batches are reduced to fewer rows
MAX_PASSES = 20  # timed passes per precision
TRIAL_SECONDS = 4.0  # duration of the passes
TIMEOUT = 30.0  # seconds for the child, including the import of torch


@dataclass(frozen=True)
class Measurement:
    """Passes over the same batches in fp32 and in bf16, in the order of execution."""

    seconds: Mapping[str, Sequence[float]]  # precision → seconds per pass, without those for warm-up
    losses: Mapping[str, Sequence[float]]  # precision → loss per pass


@dataclass(frozen=True)
class Choice:
    precision: str
    text: str  # one line for the user


class TrialError(Exception):
    """The child process did not return a measurement."""


def needs_trial(recipe: Recipe, model: Model, loader: Loader, plan: Plan) -> bool:
    """Return whether the precision is chosen by trial: `auto` on a CPU, in a run long enough for the trial to pay off.

    A budget in minutes is compared as it is, without its plan. The duration of other runs is estimated from their operations, so that
    the answer does not depend on how busy the machine is.
    """
    train = recipe.train
    if train.precision != "auto" or pick_device(train.device).type != "cpu":
        return False
    if train.minutes is not None:
        return train.minutes >= MIN_MINUTES
    if plan.steps < MIN_STEPS:
        return False
    return plan.steps * sum(step_flops(recipe, model, loader, plan)) >= MIN_RUN_FLOPS * torch.get_num_threads()


def step_flops(recipe: Recipe, model: Model, loader: Loader, plan: Plan) -> tuple[float, float]:
    """Estimate the operations of the passes and of the update of a step."""
    rows = min(8, plan.batch)
    batches = _first_batches(loader, plan, rows)
    tokens = fmean(map(_padded_tokens, batches)) / rows
    return pass_flops(model, round(tokens * plan.batch)), update_flops(model, recipe)


def describe_plan(recipe: Recipe, model: Model, loader: Loader, plan: Plan) -> str:
    """Return the precision of a run that has not started: fp32, bf16 or trial."""
    if needs_trial(recipe, model, loader, plan):
        return "trial"
    return "bf16" if use_bf16(recipe.train.precision, pick_device(recipe.train.device)) else "fp32"


def choose_by_trial(trainer: Trainer, loader: Loader, recipe: Recipe) -> Choice:
    """Measure both precisions in a child process. The model does not change."""
    batches = trial_batches(trainer, loader)
    try:
        found = measure_in_child(trainer, batches)
    except TrialError as error:
        return Choice("fp32", f"precision: fp32, because the trial of bf16 {error}")
    passes, update = step_flops(recipe, trainer.model, loader, trainer.plan)
    return decide(found, update / (passes + update) if update else 0.0)


def decide(found: Measurement, update_share: float = 0.0) -> Choice:
    """Choose bf16 if its losses agree with those of fp32 and a step is clearly faster.

    `update_share` is the share of the update in a step in fp32. Its duration is the same in bf16.

    >>> losses = {"fp32": [2.0], "bf16": [2.001]}
    >>> decide(Measurement({"fp32": [0.3, 0.3], "bf16": [0.2, 0.2]}, losses)).text
    'precision: bf16, 1.50x the speed of fp32 here'
    >>> decide(Measurement({"fp32": [0.3, 0.3], "bf16": [0.2, 0.2]}, losses), update_share=0.8).text
    'precision: fp32, because bf16 has 1.07x its speed here'
    """
    fp32, bf16 = fmean(found.losses["fp32"]), fmean(found.losses["bf16"])
    if not abs(fp32 - bf16) <= MAX_LOSS_GAP * (1 + abs(fp32)):  # also if a loss is not finite
        return Choice("fp32", f"precision: fp32, because the losses differ: {fp32:.4g} in fp32, {bf16:.4g} in bf16")
    faster = median(a / b for a, b in zip(found.seconds["fp32"], found.seconds["bf16"], strict=True))
    speed = 1 / (update_share + (1 - update_share) / faster)
    if speed < MIN_SPEED:
        return Choice("fp32", f"precision: fp32, because bf16 has {speed:.2f}x its speed here")
    return Choice("bf16", f"precision: bf16, {speed:.2f}x the speed of fp32 here")


def trial_batches(trainer: Trainer, loader: Loader) -> list[Batch]:
    """Return the first batches of the run, with fewer rows if a pass would take long."""
    rows = trainer.micro_batch_rows
    batches = _first_batches(loader, trainer.plan, rows)
    flops = pass_flops(trainer.model, max(map(_padded_tokens, batches)))
    max_flops = MAX_PASS_FLOPS * torch.get_num_threads()
    if flops > max_flops:
        batches = _first_batches(loader, trainer.plan, max(1, int(rows * max_flops / flops)))
    return batches


def measure_in_child(trainer: Trainer, batches: Sequence[Batch]) -> Measurement:
    """Run `measure` in a child process. Raise TrialError if it crashes, hangs or cannot start."""
    with tempfile.TemporaryDirectory(prefix="unmask-precision-") as name:
        folder = Path(name)
        values = {"trainer": trainer, "batches": list(batches), "threads": torch.get_num_threads()}
        # The child imports from the same folders as this process.
        env = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "PYTHONSAFEPATH": "1"}
        try:
            torch.save(values, folder / "trial.pt")
            # If this process is interrupted, `run` kills the child.
            child = subprocess.run(
                [sys.executable, "-m", __name__, name, str(TIMEOUT)], env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TrialError(f"did not finish within {TIMEOUT:g} s") from None
        except (OSError, RuntimeError, pickle.PicklingError, AttributeError, TypeError) as error:
            raise TrialError(f"could not start: {error}") from None
        if child.returncode < 0:
            raise TrialError(f"crashed: {signal.strsignal(-child.returncode)}")
        if child.returncode:
            lines = child.stderr.decode(errors="replace").split("\n")
            raise TrialError(f"failed: {next((x for x in reversed(lines) if x.strip()), child.returncode)}")
        return Measurement(**read_json(folder / "measurement.json", finite=False))


def measure(trainer: Trainer, batches: Sequence[Batch]) -> Measurement:
    """Time passes in fp32 and bf16, one after the other."""
    seconds: dict[str, list[float]] = {"fp32": [], "bf16": []}
    losses: dict[str, list[float]] = {"fp32": [], "bf16": []}
    first_time, passes = time.perf_counter(), 0
    while passes <= NUM_BATCHES or (
        time.perf_counter() - first_time < TRIAL_SECONDS and passes < NUM_BATCHES + MAX_PASSES
    ):
        for precision in seconds:
            trainer.bf16 = precision == "bf16"
            start_time = time.perf_counter()
            means, _ = trainer.gradients(0, [(0, batches[passes % NUM_BATCHES])])
            seconds[precision].append(time.perf_counter() - start_time)
            losses[precision].append(sum(trainer.objective.weights.get(k, 1.0) * v for k, v in means.items()))
            trainer.model.zero_grad()  # also the sparse gradients of embeddings, which only an update would clear
        passes += 1
    return Measurement({name: values[NUM_BATCHES:] for name, values in seconds.items()}, losses)


def main(folder: Path, timeout: float) -> None:
    """Measure the trainer in the folder and write the measurement next to it. Runs in the child process."""
    faulthandler.dump_traceback_later(timeout, exit=True)  # ends this process if it hangs and its parent was killed
    values = torch.load(folder / "trial.pt", weights_only=False)  # written by the parent
    torch.set_num_threads(values["threads"])
    trainer = values["trainer"]
    if trainer.world.size > 1:  # objectives may gather over a process group: this process alone
        dist.init_process_group("gloo", init_method=f"file://{folder / 'group'}", rank=0, world_size=1)
        trainer.world = World(0, 1)
    write_json(folder / "measurement.json", asdict(measure(trainer, values["batches"])))


def _first_batches(loader: Loader, plan: Plan, rows: int) -> list[Batch]:
    """Return the first `rows` rows of the first batches of the longest length phase."""
    step_config = plan.step_config(max(plan.length_phases, key=lambda phase: phase.steps).start)
    return [loader.batch(n * plan.batch, n * plan.batch + rows, step_config) for n in range(NUM_BATCHES)]


def _padded_tokens(batch: Batch) -> int:
    return batch.input_ids.numel()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
