"""Training loop of pre-training and fine-tuning: logging, evaluation, checkpoints, early stopping, signal handling."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from unmask.console import Console, Update
from unmask.errors import UserError, command
from unmask.metrics import format_metric
from unmask.train import checkpoint
from unmask.train.diagnostics import LossMonitor
from unmask.train.loader import Loader
from unmask.train.log import Log, fixed_masking_values, loss_has_other_terms
from unmask.train.run import Run
from unmask.train.tensorboard import TensorBoardWriter
from unmask.train.trainer import NonFiniteLossError, Step, Trainer

EvalCallback = Callable[
    [float], None
]  # called with the selection metric after each evaluation; may raise to end training


class TrainingInterrupted(UserError):
    """Training was stopped by a signal, and a checkpoint was saved."""

    def __init__(self, progress: str, *, hint: str, code: int = 128 + signal.SIGINT):
        """`progress`: e.g. "at step 5 of 10"."""
        super().__init__(f"interrupted {progress}; checkpoint saved", hint=hint)
        self.progress, self.code = progress, code


RENAMED_STATE = {"stale": "evals_without_improvement"}  # names in checkpoints of version 0.1


@dataclass
class State:
    """Progress of a run, saved with each checkpoint."""

    step: int = 0
    elapsed: float = 0.0  # seconds, including those before a resume
    tokens: int = 0
    evaluation: dict[str, Any] | None = None  # values of the last evaluation
    best: dict[str, Any] | None = None  # values of the best evaluation
    evals_without_improvement: int = 0  # number since the last improvement

    @classmethod
    def from_checkpoint(cls, last: checkpoint.Checkpoint | None) -> "State":
        saved = {RENAMED_STATE.get(name, name): value for name, value in (last.state if last else {}).items()}
        return cls(**{f.name: saved[f.name] for f in fields(cls) if f.name in saved})


@dataclass(frozen=True)
class Evaluation:
    """Evaluation function of a run and the rule that selects its best checkpoint."""

    evaluate_fn: Callable[[], dict[str, Any]]
    metric_for_best_model: str = "loss"
    greater_is_better: bool = False
    patience: int = 0  # early stopping after this many evaluations without improvement; 0 disables it
    # Evaluation before the first step: a candidate for the best checkpoint, only logged, or skipped.
    eval_on_start: Literal["candidate", "log", "off"] = "candidate"
    # Smallest difference between two evaluations that is not noise.
    min_delta: Callable[[dict[str, Any], dict[str, Any]], float] = lambda a, b: 0.0

    def improvement(self, values: dict[str, Any], best: dict[str, Any] | None) -> float | None:
        """Return how much better than `best` the values are (negative: worse); None if the metric is undefined."""
        if self.metric_for_best_model not in values:
            return None
        if best is None:
            return math.inf
        return (values[self.metric_for_best_model] - best[self.metric_for_best_model]) * (
            1 if self.greater_is_better else -1
        )


@dataclass(frozen=True)
class Training:
    """Everything `fit` needs except the run folder and the console."""

    trainer: Trainer
    loader: Loader
    save: Callable[[Path], None]  # saves the model in a folder
    evaluation: Evaluation | None = None
    monitor: LossMonitor | None = None
    title: str = "pretrain"
    eval_callback: EvalCallback | None = None


def fit(run: Run, training: Training, console: Console, last: checkpoint.Checkpoint | None = None) -> State:
    """Train from the last checkpoint to the end of the plan or until early stopping; return the final state."""
    world, settings, state = training.trainer.world, training.trainer.settings, State.from_checkpoint(last)
    if last:
        training.trainer.optimizers.load_state(last.optimizer())
    log = open_log(run, settings, state.step) if world.is_main else None
    loop = _TrainingLoop(run, training, console, state, log)
    try:
        with catch_stop_signals() as received, console.bar(training.title) as update:
            loop.train(received, update, is_new_run=last is None)
    except NonFiniteLossError as error:
        loop.write("error", step=state.step, text=str(error))
        raise UserError(
            f"training stopped: {error}. The step was discarded; the last checkpoint is intact",
            expected="a finite loss; likely causes: learning rate too high, or bf16 on hardware without good support",
            hint="start a new run with train.lr and train.muon_lr at half their value, or with --precision fp32",
        ) from error
    finally:
        if log:
            log.close()
    evaluation = training.evaluation
    if evaluation and state.step == training.trainer.plan.steps and (text := prefer_last_checkpoint(evaluation, state)):
        console.say(text)
    return state


class _TrainingLoop:
    """The training loop of one run."""

    def __init__(self, run: Run, training: Training, console: Console, state: State, log: Log | None):
        self.run, self.training, self.console, self.state, self.log = run, training, console, state, log
        self.trainer, self.evaluation = training.trainer, training.evaluation
        self.world, self.settings, self.total = self.trainer.world, self.trainer.settings, self.trainer.plan.steps
        self.start_time = self.last_save = time.monotonic()
        self.elapsed_before = state.elapsed

    def train(self, received_signals: list[int], update: Update, is_new_run: bool) -> None:
        state, evaluation = self.state, self.evaluation
        if is_new_run and evaluation:
            self.evaluate_first(evaluation)
        patience = evaluation.patience if evaluation and evaluation.patience else math.inf
        if state.evals_without_improvement >= patience:  # a resumed run that early stopping had ended
            return
        for step in self.trainer.run(self.training.loader, state.step):
            self.record_step(step)
            update(state.step, self.total, progress_text(step))
            if evaluation and (state.step % eval_interval(self.settings, self.total) == 0 or state.step == self.total):
                self.evaluate(evaluation)
            stop, save_due = self.world.all_reduce_sum([bool(received_signals), self.save_is_due()])
            ended = state.step == self.total or state.evals_without_improvement >= patience
            if state.step % self.settings.save_steps == 0 or stop or save_due or ended:
                self.save()
            if ended:
                if state.step < self.total:
                    self.console.say(
                        f"early stopping at step {state.step:,} of {self.total:,}: no improvement in {patience:g} evaluations"
                    )
                break
            if stop:
                raise TrainingInterrupted(
                    f"at step {state.step:,} of {self.total:,}",
                    hint=command(f"unmask {self.run.command_name() or self.training.title} --resume", self.run.path),
                    code=128 + (received_signals or [signal.SIGINT])[0],  # another process may have received the signal
                )

    def write(self, event: str, **values: Any) -> None:
        if self.log:
            self.log.write(event, **values)

    def update_elapsed(self) -> None:
        self.state.elapsed = self.elapsed_before + time.monotonic() - self.start_time

    def save_is_due(self) -> bool:
        return time.monotonic() - self.last_save > 60 * self.settings.save_minutes

    def record_step(self, step: Step) -> None:
        """Count and log a finished step; print warnings about its loss."""
        state, monitor = self.state, self.training.monitor
        state.step, state.tokens = step.step + 1, state.tokens + step.tokens
        self.update_elapsed()
        if state.step % self.settings.logging_steps == 0 or state.step == self.total:
            self.write("train", **log_entry(step, state))
        for text in monitor.check(step.step, step.values) if monitor else []:
            self.write("warning", step=state.step, text=text)
            self.console.warn(text)

    def evaluate_first(self, evaluation: Evaluation) -> None:
        """Evaluate the model before the first step."""
        if evaluation.eval_on_start == "candidate":
            self.evaluate(evaluation)
        elif evaluation.eval_on_start == "log":
            values = self.world.broadcast(evaluation.evaluate_fn())
            self.console.say(f"  before training  validation {describe(values)}")
            self.write("eval", step=0, elapsed=0.0, **values)

    def evaluate(self, evaluation: Evaluation) -> None:
        state, callback = self.state, self.training.eval_callback
        # rank 0 decides: results differ in the last bits between CPUs, and all ranks must stop at the same step
        values = self.world.broadcast(evaluation.evaluate_fn())
        if callback and evaluation.metric_for_best_model in values:
            callback(float(values[evaluation.metric_for_best_model]))
        state.evaluation = {"step": state.step, **values}
        self.write("eval", step=state.step, elapsed=round(state.elapsed, 2), **values)
        improvement = evaluation.improvement(values, state.best)
        if improvement is not None:  # the metric may be undefined on these records
            worse = improvement <= -evaluation.min_delta(values, state.best or values)
            state.evals_without_improvement = 0 if improvement > 0 else state.evals_without_improvement + worse
        if improvement is not None and improvement >= 0:  # on ties prefer the later checkpoint
            state.best = state.evaluation
            if self.world.is_main and state.step < self.total:  # the final model is saved anyway
                self.run.ensure_exists()
                checkpoint.write(self.run.checkpoints / "best", self.training.save, None, asdict(state))
        self.console.say(f"  step {state.step:,}/{self.total:,}  validation " + describe(values))
        if state.step:
            self.update_elapsed()

    def save(self) -> None:
        self.last_save = time.monotonic()
        if self.world.is_main:
            self.run.ensure_exists()
            path = self.run.checkpoints / f"step-{self.state.step:08d}"
            checkpoint.write(path, self.training.save, self.trainer.optimizers.state(), asdict(self.state))
            checkpoint.prune(self.run.checkpoints, self.settings.save_total_limit)
            self.write("checkpoint", step=self.state.step, path=path.name)
        self.world.barrier()


def open_log(run: Run, settings: Any, last_step: int) -> Log:
    """Open log.jsonl of a run after step `last_step`, and TensorBoard event files if enabled."""
    if settings.track != "tensorboard":
        return Log(run.log)
    return Log(run.log, TensorBoardWriter(run.path / "tensorboard", last_step + 1 if last_step else 0))


def prefer_last_checkpoint(evaluation: Evaluation, state: State) -> str:
    """Select the last checkpoint if no earlier one is better by more than `min_delta`; return a message, or "".

    The last model has seen all data and ended at a low learning rate; a slightly higher earlier score is more likely noise.
    """
    best, last = state.best, state.evaluation
    improvement = evaluation.improvement(last, best) if best and last and best["step"] < state.step else None
    if not best or not last or improvement is None or -improvement > (min_delta := evaluation.min_delta(last, best)):
        return ""
    state.best, name = last, evaluation.metric_for_best_model
    earlier, final, margin = (format_metric(name, value) for value in (best[name], last[name], min_delta))
    return (
        f"keeping the last checkpoint: {name.replace('_', ' ')} {final}; step {best['step']:,} had {earlier}, "
        f"which is within the margin of error ({margin})"
    )


def standard_error_margin(
    counts: Mapping[str, int], margin: float
) -> Callable[[dict[str, Any], dict[str, Any]], float]:
    """Return a `min_delta` function: `margin` times the standard error of the difference between two evaluations.

    `counts`: metric → number of records it is averaged over. The formula is that for two independent samples. Both models are
    evaluated on the same dev set, so the true error is smaller.

    >>> round(standard_error_margin({"f1": 100}, 1.0)({"f1": 0.8}, {"f1": 0.75}), 4)  # the root of (0.8 · 0.2 + 0.75 · 0.25) / 100
    0.0589
    """

    def variance(values: dict[str, Any]) -> float:
        scores = [(values[name], n) for name, n in counts.items() if values.get(name) is not None]
        return sum(max(0.0, p * (1 - p)) / n for p, n in scores) / max(1, len(scores)) ** 2

    return lambda a, b: margin * math.sqrt(variance(a) + variance(b))


def eval_interval(settings: Any, total: int) -> int:
    """Return the number of steps between two evaluations."""
    return settings.eval_steps or max(1, math.ceil(total / max(1, settings.num_evals)))


def log_entry(step: Step, state: State) -> dict[str, Any]:
    return {
        "step": state.step,
        **step.values,
        "tokens": step.tokens,
        "tokens_per_second": round(step.tokens / step.seconds, 1),
        "elapsed": round(state.elapsed, 2),
    }


def progress_text(step: Step) -> str:
    mlm = f" (mlm {step.values['mlm']:.3f})" if loss_has_other_terms(step.values) else ""
    return f"loss {step.values['loss']:.3f}{mlm}  {step.tokens / step.seconds:,.0f} tokens/s"


def describe(values: dict[str, Any]) -> str:
    """Format evaluation values as one line: loss, metrics (fractions in percent), fixed masking, replay corpora.

    If the loss is a sum of terms, the MLM term that perplexity is computed from is shown too.

    >>> describe({"loss": 3.0, "mlm_accuracy": 0.5, "fixed": {"mlm": 2.9}, "heldout[news]": {"loss": 2.0}})
    'loss 3.000  mlm accuracy 50.0%  | fixed masking: mlm loss 2.900  | news: loss 2.000'
    >>> describe({"loss": 5.5, "mlm": 4.9, "mlm_accuracy": 0.2, "nsp": 0.6, "nsp_accuracy": 0.7, "perplexity": 134.3})
    'loss 5.500  mlm loss 4.900  perplexity 134.3  mlm accuracy 20.0%  nsp accuracy 70.0%'
    >>> describe({"accuracy": 0.812, "macro_f1": 0.8})
    'accuracy 81.2%  macro f1 80.0%'
    >>> describe({"r2": 0.5, "rmse": 12.25, "recall@10": 0.5, "best_exact_thresh": -1.5})
    'r2 0.5  rmse 12.25  recall@10 50.0%  best exact thresh -1.5'
    """
    parts = [f"loss {values['loss']:.3f}"] if "loss" in values else []
    parts += [f"mlm loss {values['mlm']:.3f}"] if loss_has_other_terms(values) else []
    parts += [f"perplexity {values['perplexity']:.1f}"] if "perplexity" in values else []
    terms = {k.removesuffix("_accuracy") for k in values if k.endswith("_accuracy")}
    skipped = {"loss", "perplexity", *(terms if "loss" in values else ())}
    other_metrics = {k: v for k, v in values.items() if k not in skipped and isinstance(v, float)}
    parts += [f"{k.replace('_', ' ')} {format_metric(k, v)}" for k, v in other_metrics.items()]
    parts += [f"| fixed masking: mlm loss {fixed['mlm']:.3f}"] if (fixed := fixed_masking_values(values)) else []
    parts += [f"| {key[8:-1]}: {describe(v)}" for key, v in values.items() if key.startswith("heldout[")]
    return "  ".join(parts)


@contextmanager
def catch_stop_signals() -> Iterator[list[int]]:
    """Append the first Ctrl-C or SIGTERM to the returned list; a second one has its usual effect."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    old_handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        signal.signal(number, old_handlers[signal.Signals(number)])

    for s in old_handlers:
        signal.signal(s, handle)
    try:
        yield received
    finally:
        for s, handler in old_handlers.items():
            signal.signal(s, handler)
