"""The training loop of every run: step, log, evaluate, warn, checkpoint, stop when asked."""

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
from unmask.train.health import Health
from unmask.train.loader import Loader
from unmask.train.log import Log, fixed_of, is_sum
from unmask.train.run import Run
from unmask.train.track import Board
from unmask.train.trainer import NonFinite, Step, Trainer

Watch = Callable[[float], None]  # gets the score that decides at each evaluation; may end training by an exception


class Interrupted(UserError):
    """Stopped by a signal, after a checkpoint was saved."""

    def __init__(self, message: str, *, hint: str, code: int = 128 + signal.SIGINT):
        super().__init__(message, hint=hint)
        self.code = code


@dataclass
class State:
    """How far a run is. A checkpoint keeps it."""

    step: int = 0
    elapsed: float = 0.0  # seconds, those before a resume among them
    tokens: int = 0
    evaluation: dict[str, Any] | None = None  # the last one
    best: dict[str, Any] | None = None
    stale: int = 0  # evaluations in a row that were worse than the best

    @classmethod
    def of(cls, last: checkpoint.Checkpoint | None) -> "State":
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in (last.state if last else {}).items() if name in known})


@dataclass(frozen=True)
class Evaluation:
    """How a run is evaluated while it trains, and which of its models is the best."""

    measure: Callable[[], dict[str, Any]]
    decides: str = "loss"  # the value that says which model is best
    higher: bool = False  # whether a higher one is better
    patience: int = 0  # evaluations without a better one after which training ends; 0 = never
    # before the first step: as any other, only logged, or not at all
    first: Literal["counts", "shown", "no"] = "counts"
    doubt: Callable[[dict[str, Any], dict[str, Any]], float] = lambda a, b: 0.0  # differences that may be chance

    def gain(self, values: dict[str, Any], best: dict[str, Any] | None) -> float | None:
        """How much better than the best, below 0 when worse; None where the score is not defined."""
        if self.decides not in values:
            return None
        if best is None:
            return math.inf
        return (values[self.decides] - best[self.decides]) * (1 if self.higher else -1)


@dataclass(frozen=True)
class Training:
    """What `fit` puts together: everything but the folder and the terminal."""

    trainer: Trainer
    loader: Loader
    save: Callable[[Path], None]  # the model, into a folder
    evaluation: Evaluation | None = None
    health: Health | None = None
    title: str = "pretrain"
    watch: Watch | None = None


def fit(run: Run, training: Training, console: Console, last: checkpoint.Checkpoint | None = None) -> State:
    """Train from the last checkpoint to the end of the plan, or of patience; the state at the end."""
    world, settings, state = training.trainer.world, training.trainer.settings, State.of(last)
    if last:
        training.trainer.optimizers.load_state(last.optimizer())
    log = open_log(run, settings, state.step) if world.main else None
    fitting = _Fit(run, training, console, state, log)
    try:
        with stop_signals() as stopped, console.bar(training.title) as update:
            fitting.train(stopped, update, fresh=last is None)
    except NonFinite as error:
        fitting.write("error", step=state.step, text=str(error))
        raise UserError(
            f"training stopped: {error}. Nothing of that step was kept; the last checkpoint is whole",
            expected="a finite loss; usual causes: a learning rate too high, or bf16 on a device that is poor at it",
            hint="--set train.lr=… and train.muon_lr=… at half their value (or --precision fp32), in a new run",
        ) from error
    finally:
        if log:
            log.close()
    evaluation = training.evaluation
    if evaluation and state.step == training.trainer.plan.steps and (text := keep_last(evaluation, state)):
        console.say(text)
    return state


class _Fit:
    """The loop of one run: step, log, evaluate, warn, save, stop."""

    def __init__(self, run: Run, training: Training, console: Console, state: State, log: Log | None):
        self.run, self.training, self.console, self.state, self.log = run, training, console, state, log
        self.trainer, self.evaluation = training.trainer, training.evaluation
        self.world, self.settings, self.total = self.trainer.world, self.trainer.settings, self.trainer.plan.steps
        self.begun = self.saved = time.monotonic()
        self.before = state.elapsed

    def train(self, stopped: list[int], update: Update, fresh: bool) -> None:
        state, evaluation = self.state, self.evaluation
        if fresh and evaluation:
            self.evaluate_first(evaluation)
        tired = evaluation.patience if evaluation and evaluation.patience else math.inf
        for done in self.trainer.run(self.training.loader, state.step) if state.stale < tired else ():
            self.count(done)
            update(state.step, self.total, brief(done))
            if evaluation and (state.step % eval_every(self.settings, self.total) == 0 or state.step == self.total):
                self.evaluate(evaluation)
            stop, overdue = self.world.sum([bool(stopped), self.overdue()])
            ended = state.step == self.total or state.stale >= tired
            if state.step % self.settings.save_steps == 0 or stop or overdue or ended:
                self.save()
            if ended:
                if state.step < self.total:
                    self.console.say(
                        f"ended at step {state.step:,} of {self.total:,}: {tired:g} evaluations without a better one"
                    )
                break
            if stop:
                raise Interrupted(
                    f"stopped at step {state.step:,} of {self.total:,}; everything up to here is saved",
                    hint=command(f"unmask {self.run.verb() or self.training.title} --resume", self.run.path),
                    code=128 + (stopped or [signal.SIGINT])[0],  # another process may have got the signal
                )

    def write(self, event: str, **values: Any) -> None:
        if self.log:
            self.log.write(event, **values)

    def clock(self) -> None:
        self.state.elapsed = self.before + time.monotonic() - self.begun

    def overdue(self) -> bool:
        return time.monotonic() - self.saved > 60 * self.settings.save_minutes

    def count(self, done: Step) -> None:
        """A step that was made: counted, logged, and looked at for signs of trouble."""
        state, health = self.state, self.training.health
        state.step, state.tokens = done.step + 1, state.tokens + done.tokens
        self.clock()
        if state.step % self.settings.logging_steps == 0 or state.step == self.total:
            self.write("train", **line(done, state))
        for text in health.check(done.step, done.values) if health else []:
            self.write("warning", step=state.step, text=text)
            self.console.warn(text)

    def evaluate_first(self, evaluation: Evaluation) -> None:
        """What the model reaches before it is trained."""
        if evaluation.first == "counts":
            self.evaluate(evaluation)
        elif evaluation.first == "shown":
            values = self.world.share(evaluation.measure())
            self.console.say(f"  before training  held-out {describe(values)}")
            self.write("eval", step=0, elapsed=0.0, **values)

    def evaluate(self, evaluation: Evaluation) -> None:
        state, watch = self.state, self.training.watch
        # last bits differ between processors, and all have to end together
        values = self.world.share(evaluation.measure())
        if watch and evaluation.decides in values:
            watch(float(values[evaluation.decides]))
        state.evaluation = {"step": state.step, **values}
        self.write("eval", step=state.step, elapsed=round(state.elapsed, 2), **values)
        gain = evaluation.gain(values, state.best)
        if gain is not None:  # a score that is not defined says nothing
            worse = gain <= -evaluation.doubt(values, state.best or values)
            state.stale = 0 if gain > 0 else state.stale + worse
        if gain is not None and gain >= 0:  # of two that are equal the later one has learnt more
            state.best = state.evaluation
            if self.world.main and state.step < self.total:  # at the end the model itself is the best one
                self.run.check_there()
                checkpoint.write(self.run.checkpoints / "best", self.training.save, None, asdict(state))
        self.console.say(f"  step {state.step:,}/{self.total:,}  held-out " + describe(values))
        if state.step:
            self.clock()

    def save(self) -> None:
        self.saved = time.monotonic()
        if self.world.main:
            self.run.check_there()
            path = self.run.checkpoints / f"step-{self.state.step:08d}"
            checkpoint.write(path, self.training.save, self.trainer.optimizers.state(), asdict(self.state))
            checkpoint.prune(self.run.checkpoints, self.settings.save_total_limit)
            self.write("checkpoint", step=self.state.step, path=path.name)
        self.world.barrier()


def open_log(run: Run, settings: Any, done: int) -> Log:
    """log.jsonl of a run that is at step `done`, and TensorBoard's events where they are asked for."""
    board = Board(run.path / "tensorboard", done + 1 if done else 0) if settings.track == "tensorboard" else None
    return Log(run.log, board)


def keep_last(evaluation: Evaluation, state: State) -> str:
    """At the end of its plan a model has learnt from everything, at falling rates. One from the midst of it whose score is higher by no more
    than the doubt was more likely lucky than better: then the last counts as the best, and why is said."""
    best, last = state.best, state.evaluation
    gain = evaluation.gain(last, best) if best and last and best["step"] < state.step else None
    if not best or not last or gain is None or -gain > (doubt := evaluation.doubt(last, best)):
        return ""
    state.best, name = last, evaluation.decides
    theirs, ours, told = (format_metric(name, value) for value in (best[name], last[name], doubt))
    return (
        f"step {best['step']:,} has {name.replace('_', ' ')} {theirs}, the last {ours}: the last is kept, as what the dev set can "
        f"tell is a difference of {told}"
    )


def doubt_of(counts: Mapping[str, int], margin: float) -> Callable[[dict[str, Any], dict[str, Any]], float]:
    """`margin` standard errors of the difference between the means of scores, each a share of so many records.

    As if both models had been judged by records of their own: those of one dev set are alike, so that it is rather less.

    >>> round(doubt_of({"f1": 100}, 1.0)({"f1": 0.8}, {"f1": 0.75}), 4)  # the root of (0.8 · 0.2 + 0.75 · 0.25) / 100
    0.0589
    """

    def variance(values: dict[str, Any]) -> float:
        shares = [(values[name], n) for name, n in counts.items() if values.get(name) is not None]
        return sum(max(0.0, share * (1 - share)) / n for share, n in shares) / max(1, len(shares)) ** 2

    return lambda a, b: margin * math.sqrt(variance(a) + variance(b))


def eval_every(settings: Any, total: int) -> int:
    return settings.eval_steps or max(1, math.ceil(total / max(1, settings.num_evals)))


def line(done: Step, state: State) -> dict[str, Any]:
    return {
        "step": state.step,
        **done.values,
        "tokens": done.tokens,
        "tokens_per_second": round(done.tokens / done.seconds, 1),
        "elapsed": round(state.elapsed, 2),
    }


def brief(done: Step) -> str:
    mlm = f" (mlm {done.values['mlm']:.3f})" if is_sum(done.values) else ""
    return f"loss {done.values['loss']:.3f}{mlm}  {done.tokens / done.seconds:,.0f} tokens/s"


def describe(values: dict[str, Any]) -> str:
    """Evaluation values in one line: loss first, shares as per cent, then the fixed masking and mixed texts.

    Where the loss is a sum, the part that perplexity is made of stands before it.

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
    parts += [f"mlm loss {values['mlm']:.3f}"] if is_sum(values) else []
    parts += [f"perplexity {values['perplexity']:.1f}"] if "perplexity" in values else []
    terms = {k.removesuffix("_accuracy") for k in values if k.endswith("_accuracy")}
    said = {"loss", "perplexity", *(terms if "loss" in values else ())}
    shown = {k: v for k, v in values.items() if k not in said and isinstance(v, float)}
    parts += [f"{k.replace('_', ' ')} {format_metric(k, v)}" for k, v in shown.items()]
    parts += [f"| fixed masking: mlm loss {fixed['mlm']:.3f}"] if (fixed := fixed_of(values)) else []
    parts += [f"| {key[8:-1]}: {describe(v)}" for key, v in values.items() if key.startswith("heldout[")]
    return "  ".join(parts)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The first Ctrl-C or SIGTERM is put into the list; a second one acts as usual."""
    stopped: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: Any) -> None:
        stopped.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for s in before:
        signal.signal(s, handle)
    try:
        yield stopped
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
