"""Model selection and early stopping, and that all processes agree on both."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs.tiny import labeled, model_folder

from unmask import api
from unmask.console import Console
from unmask.recipe import TrainRecipe
from unmask.runs import finetune
from unmask.tasks.classify.task import Classify
from unmask.train.distributed import World
from unmask.train.fit import Evaluation, State, Training, fit, prefer_last_checkpoint, standard_error_margin
from unmask.train.run import Run
from unmask.train.trainer import Step

EVERY = 2  # steps


class ScriptedTrainer:
    """The trainer interface that `fit` uses; its steps do nothing."""

    def __init__(self, steps: int, world: World):
        self.world, self.plan = world, SimpleNamespace(steps=steps)
        self.settings = TrainRecipe(eval_steps=EVERY, save_steps=1000, logging_steps=1)
        self.optimizers = SimpleNamespace(state=dict, load_state=lambda _: None)

    def run(self, loader: Any, start: int) -> Iterator[Step]:
        yield from (Step(n, {"loss": 1.0}, 1, 1.0) for n in range(start, self.plan.steps))


def saved(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model").write_text("")


def run_scripted(
    path: Path, scores: list[float], patience: int = 0, greater_is_better: bool = True, world: World | None = None
) -> State:
    """Return the final state of a run whose evaluations return `scores` in order."""
    left = iter(scores)
    evaluation = Evaluation(lambda: {"score": next(left)}, "score", greater_is_better, patience, eval_on_start="off")
    trainer: Any = ScriptedTrainer(EVERY * len(scores), world or World(0, 1))
    run = Run.create(path, "finetune", "scripted")
    return fit(run, Training(trainer, None, saved, evaluation), Console(quiet=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("greater_is_better", [True, False])
def test_patience_stops_training_without_improvement(greater_is_better: bool, tmp_path: Path) -> None:
    sign = 1 if greater_is_better else -1
    ended = run_scripted(tmp_path / "a", [sign * s for s in (0.5, 0.7, 0.6, 0.6, 0.9)], 2, greater_is_better)
    assert ended.step == 4 * EVERY and ended.best["step"] == 2 * EVERY and ended.evals_without_improvement == 2
    never = run_scripted(tmp_path / "b", [sign * s for s in (0.5, 0.7, 0.6, 0.6, 0.9)], 0, greater_is_better)
    assert never.step == 5 * EVERY == never.best["step"]


def test_patience_stops_training_on_ties(tmp_path: Path) -> None:
    """Among equal models the later one is kept, but a tie does not reset patience."""
    ended = run_scripted(tmp_path / "run", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0], patience=2)
    assert ended.step == 4 * EVERY and ended.best["step"] == 4 * EVERY
    assert (tmp_path / "run" / "checkpoints" / "best").is_dir()


class SecondRank(World):
    """Rank 1 of two without a rank 0: `sent` contains the values that rank 0 would broadcast."""

    def __init__(self, sent: list[float]):
        super().__init__(1, 2)
        self.sent = iter(sent)

    def all_reduce_sum(self, values: Any, device: Any = "cpu") -> list[float]:
        return list(values)

    def broadcast(self, value: Any) -> Any:
        return {"score": next(self.sent)}

    def barrier(self) -> None:
        pass


def test_all_ranks_use_the_scores_of_rank_0(tmp_path: Path) -> None:
    """The last bits differ between CPUs: a rank that decided for itself could wait forever."""
    first = [0.5, 0.7, 0.6, 0.6, 0.9]
    ended = run_scripted(tmp_path / "run", [0.5, 0.7, 0.7001, 0.8, 0.9], patience=2, world=SecondRank(first))
    assert ended.step == 4 * EVERY and ended.best == {"step": 2 * EVERY, "score": 0.7}


# ------------------------------------------------------------------------------------------------------ fine-tuning


def scripted(patch: pytest.MonkeyPatch, scores: list[float]) -> None:
    """Replace the first scores of classify by these; later ones are real."""
    left, real = iter(scores), Classify.score

    def score(self: Classify, answers: Any, records: Any) -> dict[str, float]:
        return {**real(self, answers, records), **({"accuracy": s} if (s := next(left, None)) is not None else {})}

    patch.setattr(Classify, "score", score)
    patch.setattr("unmask.report.write", lambda run: None)


def test_best_model_is_kept_and_resume_after_early_stopping_does_not_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, file = model_folder(tmp_path / "start"), labeled(tmp_path / "train.csv", 30)
    out, sets = (
        tmp_path / "run",
        ["train.steps=12", f"train.eval_steps={EVERY}", "train.batch_size=4", "task.patience=2"],
    )
    with monkeypatch.context() as patch:
        scripted(patch, [0.9, 0.5, 0.5, 1.0])
        patch.setattr(finetune.Finetune, "finish", lambda *_: 1 / 0)  # a crash after training
        with pytest.raises(ZeroDivisionError):
            api.finetune(start, train=file, out=out, overrides=sets)
    run = Run(out)
    assert [e["step"] for e in run.events() if e["event"] == "train"][-1] == 3 * EVERY
    with monkeypatch.context() as patch:
        scripted(patch, [])
        patch.setattr("unmask.train.trainer.Trainer.step", lambda *_: 1 / 0)  # no step is left
        assert api.resume(out).read_json("results.json")["best"]["step"] == EVERY
        best, last = out / "checkpoints" / "best" / "model", out / "checkpoints" / f"step-{3 * EVERY:08d}" / "model"
        weights = (run.model / "model.safetensors").read_bytes()
        assert weights == (best / "model.safetensors").read_bytes() != (last / "model.safetensors").read_bytes()
        assert run.read_json("results.json")["step"] == 3 * EVERY
        before = (out / "results.json").read_bytes()
        api.resume(out)
    assert (out / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("scores", "margin", "kept"),
    [
        ([0.5, 0.9, 0.8], 1.0, 3),  # with three dev records, 0.1 is not significant
        ([0.5, 0.9, 0.1], 1.0, 2),
        ([0.5, 0.9, 0.8], 0.0, 2),
        ([0.5, 0.9, 0.1], 9.0, 3),
        ([0.5, 0.8, 0.9], 1.0, 3),
    ],
)
def test_earlier_model_is_kept_if_significantly_better_than_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: list[float], margin: float, kept: int
) -> None:
    start, file = model_folder(tmp_path / "start"), labeled(tmp_path / "train.csv", 30)
    sets = [
        f"train.steps={3 * EVERY}",
        f"train.eval_steps={EVERY}",
        "train.batch_size=4",
        f"task.selection_margin={margin}",
    ]
    scripted(monkeypatch, scores)
    run = api.finetune(start, train=file, out=tmp_path / "run", overrides=sets)
    assert run.read_json("results.json")["best"]["step"] == kept * EVERY
    best, last = run.checkpoints / "best" / "model", run.checkpoints / f"step-{3 * EVERY:08d}" / "model"
    weights = (run.model / "model.safetensors").read_bytes()
    assert weights == ((last if kept == 3 else best) / "model.safetensors").read_bytes()


def test_last_model_is_kept_within_the_standard_error() -> None:
    """Two accuracies over 100 records, 0.8 and 0.75: the root of 0.16 / 100 + 0.1875 / 100 is 0.0589."""

    def kept(best: float, last: float | None, count: int = 100, margin: float = 1.0) -> int:
        values = {} if last is None else {"f1": last}
        state = State(step=6, best={"step": 3, "f1": best}, evaluation={"step": 6, **values})
        note = prefer_last_checkpoint(
            Evaluation(dict, "f1", True, min_delta=standard_error_margin({"f1": count}, margin)), state
        )
        assert state.best and bool(note) == (state.best["step"] == 6)
        assert not note or "margin of error" in note
        return int(state.best["step"])

    assert kept(0.80, 0.75) == 6
    assert kept(0.80, 0.75, margin=0.8) == 3
    assert kept(0.80, 0.75, count=200) == 3
    assert kept(-0.1, -0.2) == 3  # the standard error of a negative correlation is unknown
    assert kept(0.80, None) == 3


def test_standard_error_of_a_mean_combines_all_dev_sets() -> None:
    min_delta = standard_error_margin({"a.f1": 2000, "b.f1": 20}, 1.0)
    one = {"mean": 0.5, "a.f1": 0.5, "b.f1": 0.5}
    assert min_delta(one, one) == pytest.approx((2 * (0.25 / 2000 + 0.25 / 20) / 4) ** 0.5)
    alone = standard_error_margin({"b.f1": 20}, 1.0)
    assert min_delta({"a.f1": None, "b.f1": 0.5}, {"b.f1": 0.5}) == alone({"b.f1": 0.5}, {"b.f1": 0.5})


def test_patience_counts_only_significantly_worse_scores(tmp_path: Path) -> None:
    """A score that is lower by chance does not stop training."""

    def steps(path: str, min_delta: float) -> int:
        left = iter([0.82, 0.81, 0.81, 0.80, 0.81, 0.81])
        measure = Evaluation(lambda: {"score": next(left)}, "score", True, 4, "off", lambda a, b: min_delta)
        trainer: Any = ScriptedTrainer(EVERY * 6, World(0, 1))
        run = Run.create(tmp_path / path, "finetune", "scripted")
        return fit(run, Training(trainer, None, saved, measure), Console(quiet=True)).step  # type: ignore[arg-type]

    assert steps("noise", 0.05) == 6 * EVERY
    assert steps("sure", 0.0) == 5 * EVERY
