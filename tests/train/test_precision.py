"""`train.precision: auto` on a CPU: real child processes that are faster, slower, wrong, crash or hang; and runs that keep the result."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from runs.tiny import NAMES, WORDS, labeled, model_folder
from train import precision_objectives as objectives

from unmask import api
from unmask.console import Console
from unmask.model.config import preset
from unmask.model.device import _bf16_crashes
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.runs import budget
from unmask.runs.estimate import RandomRows
from unmask.text.store import TokenStore
from unmask.train import precision
from unmask.train.distributed import World
from unmask.train.loader import Loader
from unmask.train.precision import Measurement
from unmask.train.run import Run
from unmask.train.schedule import plan
from unmask.train.trainer import Trainer

SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64}


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow more time to start a child process, because other tests run at the same time."""
    monkeypatch.setattr(precision, "TIMEOUT", 200.0)


# --------------------------------------------------------------------------------------------------------- decision


def measured(fp32: list[float], bf16: list[float], loss: float = 2.0) -> Measurement:
    return Measurement({"fp32": fp32, "bf16": bf16}, {"fp32": [2.0], "bf16": [loss]})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (measured([0.3], [0.2]), "bf16, 1.50x the speed of fp32 here"),
        (measured([0.3, 0.3, 9.0], [0.2, 7.0, 0.2]), "bf16, 1.50x the speed of fp32 here"),  # slow passes do not count
        (measured([0.21], [0.2]), "fp32, because bf16 has 1.05x its speed here"),
        (measured([0.2], [0.4]), "fp32, because bf16 has 0.50x its speed here"),
        (measured([0.3], [0.2], 2.02), "bf16, 1.50x the speed of fp32 here"),
        (measured([0.3], [0.2], 2.04), "fp32, because the losses differ: 2 in fp32, 2.04 in bf16"),
        (measured([0.3], [0.2], float("nan")), "fp32, because the losses differ: 2 in fp32, nan in bf16"),
    ],
)
def test_bf16_must_be_clearly_faster_and_have_the_same_loss(found: Measurement, expected: str) -> None:
    choice = precision.decide(found)
    assert choice.text == f"precision: {expected}" and choice.precision == expected.split(",")[0]


def test_the_update_takes_equally_long_in_both_precisions() -> None:
    """Passes of 4 s and 2 s and an update of 4 s: steps of 8 s and 6 s."""
    assert (
        precision.decide(measured([4.0], [2.0]), update_share=0.5).text
        == "precision: bf16, 1.33x the speed of fp32 here"
    )


# ---------------------------------------------------------------------------------------------------- child process


def make_trainer(store: TokenStore, name: str, **train: Any) -> tuple[Trainer, Loader, Recipe]:
    train = {"batch_size": 4, "max_length": 16, "steps": 10, "optimizer": "adamw"} | train
    recipe = Recipe.build({"preset": "bert-tiny", "objective": "mlm", "train": train})
    objective = getattr(objectives, name)(recipe, store.tokenizer)
    model = Model(preset("bert-tiny", vocab_size=store.tokenizer.size, **SHAPE), objective.heads).init(0)
    loader = Loader(RandomRows("stream", 1000, store.tokenizer), objective, 0)
    return Trainer(model, objective, recipe.train, plan(recipe, {16: 1000}), 0, World(0, 1)), loader, recipe


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Faster", "bf16, "),
        ("Slower", "fp32, because bf16 has 0."),
        ("Wrong", "fp32, because the losses differ: "),
        ("NotFinite", "fp32, because the losses differ: "),
        ("IllegalInstruction", "fp32, because the trial of bf16 crashed: Illegal instruction"),
        (
            "Unsupported",
            'fp32, because the trial of bf16 failed: RuntimeError: "some_kernel" not implemented for BFloat16',
        ),
        ("NotPicklable", "fp32, because the trial of bf16 could not start: "),
    ],
)
def test_trial_in_a_child_process(name: str, expected: str, store: TokenStore) -> None:
    trainer, loader, recipe = make_trainer(store, name)
    before = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    choice = precision.choose_by_trial(trainer, loader, recipe)
    assert choice.text.startswith(f"precision: {expected}"), choice.text
    assert choice.precision == expected.split(",")[0] and "\n" not in choice.text
    assert all(torch.equal(value, before[key]) for key, value in trainer.model.state_dict().items())
    assert not trainer.bf16


def test_child_that_hangs_is_killed(store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(precision, "TIMEOUT", 8.0)
    choice = precision.choose_by_trial(*make_trainer(store, "Hang"))
    assert choice == precision.Choice("fp32", "precision: fp32, because the trial of bf16 did not finish within 8 s")
    assert not list(tmp_path.iterdir())
    running = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in running


def test_large_batches_are_reduced(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, loader, _ = make_trainer(store, "Same", batch_size=32, micro_batch_size=16)
    assert [b.rows for b in precision.trial_batches(trainer, loader)] == [16, 16]
    one_row = precision.pass_flops(trainer.model, 16) / torch.get_num_threads()
    monkeypatch.setattr(precision, "MAX_PASS_FLOPS", 3 * one_row)
    assert [b.rows for b in precision.trial_batches(trainer, loader)] == [3, 3]
    monkeypatch.setattr(precision, "MAX_PASS_FLOPS", 0.5 * one_row)
    assert [b.rows for b in precision.trial_batches(trainer, loader)] == [1, 1]


# --------------------------------------------------------------------------------------------------------- which runs


def test_only_long_runs_with_auto_on_a_cpu_need_a_trial(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def needs_trial(**train: Any) -> bool:
        budget = {} if "minutes" in train else {"steps": 100_000}
        recipe = Recipe.build({"train": {"max_length": 16, "batch_size": 4, "device": "cpu"} | budget | train})
        timed = recipe if "minutes" not in train else budget_of_ten_steps(recipe)
        return precision.needs_trial(recipe, trainer.model, loader, plan(timed, {16: 1000}))

    budget_of_ten_steps = budget.timing_recipe
    trainer, loader, _ = make_trainer(store, "Same")
    assert needs_trial(minutes=precision.MIN_MINUTES) and not needs_trial(minutes=precision.MIN_MINUTES - 0.1)
    assert not needs_trial(minutes=60, precision="fp32") and not needs_trial(minutes=60, precision="bf16")
    step = sum(
        precision.step_flops(
            Recipe.build({"train": {"max_length": 16, "batch_size": 4}}), trainer.model, loader, trainer.plan
        )
    )
    monkeypatch.setattr(precision, "MIN_RUN_FLOPS", 1000 * step / torch.get_num_threads())
    assert needs_trial(steps=1001) and not needs_trial(steps=999)
    monkeypatch.setattr(precision, "MIN_RUN_FLOPS", 0.0)
    assert needs_trial(steps=precision.MIN_STEPS) and not needs_trial(steps=precision.MIN_STEPS - 1)
    assert not needs_trial(precision="fp32") and not needs_trial(precision="bf16")


# --------------------------------------------------------------------------------------------------------------- runs


@pytest.fixture
def every_run_tries(monkeypatch: pytest.MonkeyPatch, no_report: None) -> str:
    """Let short runs try, and accept bf16 at any speed; return the precision that this CPU must choose."""
    for name in ("MIN_STEPS", "MIN_RUN_FLOPS", "MIN_MINUTES", "MIN_SPEED"):
        monkeypatch.setattr(precision, name, 0)
    return "fp32" if _bf16_crashes() else "bf16"


class Lines(Console):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, text: str, *rest: Any) -> None:
        self.lines.append(text)


def finetune(folder: Path, name: str, *overrides: str, console: Console | None = None, **settings: Any) -> Run:
    if not (folder / "train.csv").exists():
        model_folder(folder / "start")
        labeled(folder / "train.csv", 40)
    overrides = (
        "train.batch_size=8",
        "train.save_steps=3",
        "train.save_total_limit=9",
        "train.num_evals=1",
        *overrides,
    )
    return api.finetune(
        folder / "start",
        train=folder / "train.csv",
        out=folder / name,
        overrides=overrides,
        console=console,
        **settings,
    )


def weights(run: Run) -> bytes:
    return (run.model / "model.safetensors").read_bytes()


def test_result_is_saved_in_the_recipe_and_used(tmp_path: Path, every_run_tries: str) -> None:
    console = Lines()
    run = finetune(tmp_path, "auto", "train.steps=8", console=console)
    (line,) = [line for line in console.lines if line.startswith("precision: ")]
    assert line.startswith(f"precision: {every_run_tries}, ") and run.recipe().train.precision == every_run_tries
    given = {
        name: finetune(tmp_path, name, "train.steps=8", f"train.precision={name}") for name in {"fp32", every_run_tries}
    }
    assert weights(run) == weights(given[every_run_tries])
    assert every_run_tries == "fp32" or weights(run) != weights(given["fp32"])


def test_resumed_run_keeps_the_precision(tmp_path: Path, every_run_tries: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finetune(tmp_path, "run", "train.steps=8")
    before = weights(run)
    # back to step 3, as after a kill
    for step in (6, 8):
        shutil.rmtree(run.checkpoints / f"step-{step:08d}")
    shutil.rmtree(run.model)
    (run.path / "results.json").unlink()
    monkeypatch.setattr(precision, "MIN_SPEED", 1e9)  # another trial would choose fp32
    console = Lines()
    assert weights(api.resume(run.path, console=console)) == before
    assert run.recipe().train.precision == every_run_tries
    assert any("at step 3" in line for line in console.lines) and not any("precision" in line for line in console.lines)


def test_pretraining_minutes_are_measured_in_the_chosen_precision(
    store: TokenStore, tmp_path: Path, every_run_tries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = []
    monkeypatch.setattr(budget, "seconds_per_step", lambda trainer, *_: timed.append(trainer.bf16) or 0.05)
    settings = {"preset": "bert-tiny", "model": SHAPE, "train": {"minutes": 0.005, "max_length": 32, "batch_size": 4}}
    run = api.pretrain(str(store.path), recipe=settings, out=tmp_path / "run")
    assert timed == [every_run_tries == "bf16"]
    assert run.recipe().train.precision == every_run_tries and run.recipe().train.minutes is None


def test_short_runs_and_given_precisions_start_no_child(
    tmp_path: Path, no_report: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "measure_in_child", lambda *_: pytest.fail("a trial was started"))
    assert finetune(tmp_path, "steps", "train.steps=2").recipe().train.precision == "auto"
    assert finetune(tmp_path, "minutes", "train.minutes=0.001").recipe().train.precision == "auto"
    for name in ("MIN_STEPS", "MIN_RUN_FLOPS", "MIN_MINUTES"):
        monkeypatch.setattr(precision, name, 0)
    assert finetune(tmp_path, "given", "train.steps=2", "train.precision=fp32").recipe().train.precision == "fp32"


def test_all_seeds_use_the_precision_of_the_first(tmp_path: Path, every_run_tries: str) -> None:
    console = Lines()
    run = finetune(tmp_path, "run", "train.steps=2", num_seeds=3, console=console)
    assert len([line for line in console.lines if line.startswith("precision: ")]) == 1
    assert {Run(run.path / f"seed-{n}").recipe().train.precision for n in range(3)} == {every_run_tries}
    assert run.recipe().train.precision == every_run_tries


def test_dry_run_announces_the_trial(tmp_path: Path, store: TokenStore, every_run_tries: str) -> None:
    from unmask.cli.show.tables import dry_run_text, finetune_dry_run_lines

    model_folder(tmp_path / "start")
    file = labeled(tmp_path / "train.csv", 40)
    for setting, expected in (("auto", "chosen by a trial"), ("fp32", "fp32")):
        overrides = ["train.steps=2", f"train.precision={setting}"]
        fine_tuning = api.dry_run_finetune(tmp_path / "start", train=file, overrides=overrides)
        assert expected in dict(finetune_dry_run_lines(fine_tuning))["precision"]
        shape = [f"model.{name}={value}" for name, value in SHAPE.items()]
        pretraining = api.dry_run(str(store.path), preset="bert-tiny", overrides=[*overrides, *shape])
        assert expected in next(line for line in dry_run_text(pretraining).split("\n") if line.startswith("precision"))


SCRIPT = """
import os, sys
from pathlib import Path
import unmask
from unmask.runs import lifecycle
from unmask.train import precision

folder, rank = Path(sys.argv[1]), os.environ["RANK"]
precision.MIN_STEPS = precision.MIN_RUN_FLOPS = 0
precision.TIMEOUT = 200
precision.MIN_SPEED = 0 if rank == "0" else 1e9  # rank 1 alone would choose fp32
fit = lifecycle.fit

def record(run, training, *rest):
    (folder / rank).write_text("bf16" if training.trainer.bf16 else "fp32")
    return fit(run, training, *rest)

lifecycle.fit = record
overrides = ["train.steps=3", "train.batch_size=8", "train.threads=1", "train.num_evals=1"]
unmask.finetune(folder / "start", task="embed", train=folder / "pairs.csv", out=folder / "run", overrides=overrides)
"""


def test_two_processes_use_the_precision_of_rank_0(tmp_path: Path) -> None:
    """The loss of `embed` gathers vectors over the processes, also in the child process of the trial."""
    model_folder(tmp_path / "start")
    rows = "".join(f"{NAMES[n % 4]} saw a {WORDS[n % 12]},a {WORDS[n % 12]} number {n}\n" for n in range(30))
    (tmp_path / "pairs.csv").write_text("anchor,positive\n" + rows)
    (tmp_path / "script.py").write_text(SCRIPT)
    launcher = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    done = subprocess.run(
        [sys.executable, *launcher, str(tmp_path / "script.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    expected = "fp32" if _bf16_crashes() else "bf16"
    assert [(tmp_path / rank).read_text() for rank in ("0", "1")] == [expected, expected]
    assert Run(tmp_path / "run").recipe().train.precision == expected
