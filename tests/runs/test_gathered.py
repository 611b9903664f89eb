"""In-batch negatives gathered over processes: two processes have the losses and gradients of one with the whole
batch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp
from runs.tiny import NAMES, WORDS, model_folder, plan_of

from unmask.runs.part import build_train_loader, make_recipe, prepare
from unmask.tasks.objective import objective_of
from unmask.train.distributed import World
from unmask.train.trainer import Trainer

# Of 7 rows one process has 4, the other 3. 17 rows are 7, 7 and 3: in the last step the second process has none.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "pairs": ("pairs", {"symmetric_loss": True, "matryoshka_dims": [8]}),
    "scored": ("scored", {}),
}
SETTINGS = {"epochs": 17 / 19, "batch_size": 7, "lr": 0.01, "warmup": 0, "threads": 1, "num_evals": 1}


def record(n: int, kind: str) -> dict[str, Any]:
    name, word = NAMES[n % 4], WORDS[n % 12]
    row: dict[str, Any] = {"anchor": f"{name} saw a {word}", "positive": f"a {word} and {name} number {n % 7}"}
    if kind == "pairs":
        return row | {"negatives": [f"a dull {WORDS[(n + 1) % 12]}"] * (n % 3)}
    return {"sentence1": row["anchor"], "sentence2": row["positive"], "score": (n * 7 % 5) / 4}


def steps(case: str, folder: Path, world: World, gather: bool) -> list[float]:
    """Return losses and gradient norms."""
    kind, embed = CASES[case]
    task = {"name": "embed", "train": [str(folder / f"{kind}.jsonl")], "embed": embed}
    job = prepare(make_recipe({"init_from": str(folder / "start"), "task": task, "train": SETTINGS}))
    objective = objective_of(job.task, 2 if gather else 1)
    loader = build_train_loader(job, objective=objective)
    plan = plan_of(job.recipe, int(loader.lengths.max()), len(loader.lengths))
    trainer = Trainer(job.model, objective, job.recipe.train, plan, 0, world, loader.tokens)
    return [step.values[name] for step in trainer.run(loader) for name in ("loss", "grad_norm")]


def work(rank: int, folder: Path) -> None:
    """Run one of two processes; rank 0 writes the results."""
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    results = {
        f"{case} {gather}": steps(case, folder, World(rank, 2), gather) for case in CASES for gather in (True, False)
    }
    if rank == 0:
        (folder / "two.json").write_text(json.dumps(results))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gathered")
    model_folder(folder / "start")
    for kind in ("pairs", "scored"):
        (folder / f"{kind}.jsonl").write_text("".join(json.dumps(record(n, kind)) + "\n" for n in range(19)))
    return folder


def test_two_processes_match_the_losses_of_one(folder: Path) -> None:
    mp.spawn(work, (folder,), nprocs=2)  # type: ignore[no-untyped-call]
    two = json.loads((folder / "two.json").read_text())
    for case in CASES:
        one = steps(case, folder, World(0, 1), False)
        assert len(one) == 6 and one[0] != one[2]
        assert two[f"{case} True"] == pytest.approx(one, rel=1e-4)
        assert two[f"{case} False"] != pytest.approx(one, rel=1e-2)  # each process with its local negatives only


@pytest.mark.slow
def test_run_under_torchrun_gathers_negatives_without_a_note(folder: Path, tmp_path: Path) -> None:
    launcher = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    losses = []
    for processes, prefix in ((1, []), (2, launcher)):
        out = tmp_path / str(processes)
        words = [
            "finetune",
            str(folder / "start"),
            "--train",
            str(folder / "pairs.jsonl"),
            "--steps=3",
            "--batch-size=7",
        ]
        done = subprocess.run(
            [sys.executable, *prefix, "-m", "unmask", *words, "--set=train.threads=1", "--out", str(out)],
            capture_output=True, text=True, timeout=200, check=True,
        )  # fmt: skip
        assert "in-batch negatives come from" not in done.stderr
        events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        losses.append([e["loss"] for e in events if e["event"] == "train"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4) and len(losses[0]) == 3
