"""The life of a run: train, log, evaluate, warn, checkpoint, stop when asked. Pre-training and fine-tuning both live it."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.train import checkpoint
from unmask.train.health import Health
from unmask.train.heldout import Heldout
from unmask.train.loader import Loader
from unmask.train.log import Console, Log
from unmask.train.run import Run
from unmask.train.trainer import NonFinite, Step, Trainer


class Interrupted(UserError):
    """Stopped by a signal, after a checkpoint was saved."""


def fit(
    run: Run,
    trainer: Trainer,
    loader: Loader,
    heldout: Sequence[Heldout],
    save_model: Callable[[Path], None],
    console: Console,
    health: Health | None = None,
    resume: checkpoint.Checkpoint | None = None,
    title: str = "pretrain",
) -> dict[str, Any]:
    """Train to the end of the plan; the state at the end: step, elapsed, tokens, last and best evaluation.

    `heldout`: the run's own held-out rows first, whose loss decides what is best, then those of mixed texts.
    """
    tracks = [track for track in heldout if track.batches]
    state: dict[str, Any] = {"step": 0, "elapsed": 0.0, "tokens": 0, "evaluation": None, "best": None}
    if resume:
        state = dict(resume.state)
        trainer.optimizers.load_state(resume.optimizer())
    world, settings, total = trainer.world, trainer.settings, trainer.plan.steps
    log = Log(run.log) if world.main else None
    begun, before, saved = time.monotonic(), state["elapsed"], time.monotonic()

    def write(event: str, **values: Any) -> None:
        if log:
            log.write(event, **values)

    def save() -> None:
        nonlocal saved
        saved = time.monotonic()
        if world.main:
            path = run.checkpoints / f"step-{state['step']:08d}"
            checkpoint.write(path, save_model, trainer.optimizers.state(), state)
            checkpoint.prune(run.checkpoints, settings.keep)
            write("checkpoint", step=state["step"], path=path.name)
        world.barrier()

    def evaluate() -> None:
        values: dict[str, Any] = {}
        for track in tracks:
            found = trainer.evaluate(track.batches, track.objective)
            values |= {track.key: found} if track.name else found
        state["evaluation"] = {"step": state["step"], **values}
        write("eval", step=state["step"], elapsed=round(state["elapsed"], 2), **values)
        best = state["best"]
        if "loss" in values and (best is None or values["loss"] < best["loss"]):
            state["best"] = state["evaluation"]
            if world.main and state["step"] < total:  # at the end the model itself is the best one
                checkpoint.write(run.checkpoints / "best", save_model, None, state)
        console.say(f"  step {state['step']:,}/{total:,}  held-out " + describe(values))

    try:
        with stop_signals() as stopped, console.bar(title) as update:
            if not resume and tracks:
                evaluate()
            for done in trainer.run(loader, state["step"]):
                state["step"], state["tokens"] = done.step + 1, state["tokens"] + done.tokens
                state["elapsed"] = before + time.monotonic() - begun
                if state["step"] % settings.log_every == 0 or state["step"] == total:
                    write("train", **line(done, state))
                update(state["step"], total, brief(done))
                for text in health.check(done.step, done.values) if health else []:
                    write("warning", step=state["step"], text=text)
                    console.warn(text)
                if tracks and (state["step"] % eval_every(settings, total) == 0 or state["step"] == total):
                    evaluate()
                    state["elapsed"] = before + time.monotonic() - begun
                stop, overdue = world.sum(
                    [stopped.is_set(), time.monotonic() - saved > 60 * settings.checkpoint_minutes]
                )
                if state["step"] % settings.checkpoint_every == 0 or stop or overdue or state["step"] == total:
                    save()
                if stop and state["step"] < total:
                    raise Interrupted(
                        f"stopped at step {state['step']:,} of {total:,}; everything up to here is saved",
                        fix=f"unmask {title} --resume {run.path}",
                    )
    except NonFinite as error:
        write("error", step=state["step"], text=str(error))
        raise UserError(
            f"training stopped: {error}. Nothing of that step was kept; the last checkpoint is whole",
            valid="a finite loss; usual causes: a learning rate too high, or bf16 on a device that is poor at it",
            fix="--set train.lr=… and train.muon_lr=… at half their value (or --precision fp32), in a new run",
        ) from error
    finally:
        if log:
            log.close()
    return state


def eval_every(settings: Any, total: int) -> int:
    return settings.eval_every or max(1, math.ceil(total / max(1, settings.evaluations)))


def line(done: Step, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "step": state["step"],
        **done.values,
        "tokens": done.tokens,
        "tokens_per_second": round(done.tokens / done.seconds, 1),
        "elapsed": round(state["elapsed"], 2),
    }


def brief(done: Step) -> str:
    return f"loss {done.values['loss']:.3f}  {done.tokens / done.seconds:,.0f} tokens/s"


def describe(values: dict[str, Any]) -> str:
    """Evaluation values in one line: loss first, shares as per cent, then the same of mixed texts.

    >>> describe({"loss": 3.0, "mlm_accuracy": 0.5, "heldout[news]": {"loss": 2.0}})
    'loss 3.000  mlm accuracy 50.0%  | news: loss 2.000'
    """
    parts = [f"loss {values['loss']:.3f}"] if "loss" in values else []
    parts += [f"perplexity {values['perplexity']:.1f}"] if "perplexity" in values else []
    parts += [f"{k.removesuffix('_accuracy')} accuracy {v:.1%}" for k, v in values.items() if k.endswith("_accuracy")]
    parts += [f"| {key[8:-1]}: {describe(v)}" for key, v in values.items() if key.startswith("heldout[")]
    return "  ".join(parts)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C or SIGTERM; a second one acts as usual."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: Any) -> None:
        stopped.set()
        signal.signal(number, before[signal.Signals(number)])

    for s in before:
        signal.signal(s, handle)
    try:
        yield stopped
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
