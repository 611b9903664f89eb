"""Two processes match one: the same examples and masks per global batch, the same losses, and the number of
processes can change on resume."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unmask.text.store import TokenStore

SHAPE = [
    "--set=model.hidden=32", "--set=model.heads=2", "--set=model.intermediate=64", "--set=model.dropout=0.0",
    "--set=model.attention_dropout=0.0", "--max-length=32", "--set=train.threads=1", "--set=train.max_eval_examples=8",
]  # fmt: skip


def pretrain(processes: int, *arguments: str) -> None:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    if processes > 1:
        launcher += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "unmask", "pretrain", *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def losses(run: Path, terms: tuple[str, ...]) -> list[float]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [e[t] for e in events if e["event"] == "train" for t in terms]


# 13 rows are split into 7 and 6. With bernoulli masks at 2% of rows of 32, ranks often have no masked token in a step.
CASES = {
    "muon": ["--preset=modernbert-mini", "--batch-size=13", "--set=train.optimizer=muon"],
    "adamw": ["--preset=bert-tiny", "--objective=mlm+nsp", "--batch-size=13", "--set=train.optimizer=adamw"],
    "no masked token": [
        "--preset=bert-tiny",
        "--objective=mlm",
        "--batch-size=3",
        "--mask-rate=0.02",
        "--set=mlm.sampling=bernoulli",
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_losses_of_20_steps_agree(case: str, store: TokenStore, tmp_path: Path) -> None:
    budget = ["--steps=20", "--set=model.layers=2"]
    for processes in (1, 2):
        pretrain(processes, str(store.path), *SHAPE, *CASES[case], *budget, "--out", str(tmp_path / f"run{processes}"))
    one, two = losses(tmp_path / "run1", ("loss",)), losses(tmp_path / "run2", ("loss",))
    assert len(one) == len(two) == 20
    assert two == pytest.approx(one, rel=1e-5, abs=1e-9)
    if case == "no masked token":
        assert 0.0 in one, "no batch without masked tokens was tested"
        assert len([x for x in one if x]) > 5, "no batch was tested in which a rank may have no masked token"


def test_replay_rows_do_not_depend_on_the_number_of_processes(store: TokenStore, tmp_path: Path) -> None:
    """Replay rows, their masks and both held-out losses are equal. The text is prepared by one process for both
    runs."""
    text = tmp_path / "news.txt"
    text.write_text("\n\n".join(f"The king number {n} of the house has a list of {n % 7} names." for n in range(300)))
    arguments = [
        str(store.path),
        *SHAPE,
        "--preset=bert-tiny",
        "--objective=mlm",
        "--batch-size=7",
        f"--replay={text}:0.3",
    ]
    runs = [tmp_path / f"run{processes}" for processes in (1, 2)]
    for processes, run in enumerate(runs, 1):
        pretrain(processes, *arguments, "--steps=8", "--set=model.layers=1", "--out", str(run))
    one, two = (losses(run, ("loss", "tokens")) for run in runs)
    assert len(one) == len(two) == 2 * 8
    assert two == pytest.approx(one, rel=1e-5)
    heldout = [
        [(e["loss"], e["heldout[news]"]["loss"]) for e in map(json.loads, (run / "log.jsonl").read_text().splitlines())
         if e["event"] == "eval"]
        for run in runs
    ]  # fmt: skip
    assert heldout[0] and heldout[0][0][0] != heldout[0][0][1]
    assert np.array(heldout[1]) == pytest.approx(np.array(heldout[0]), rel=1e-5)


def test_resume_with_another_number_of_processes(store: TokenStore, tmp_path: Path) -> None:
    """Two processes for 12 of 20 steps, then one: the losses equal those of one process throughout, also for a last
    batch of 5 rows."""
    arguments = [
        str(store.path),
        *SHAPE,
        "--preset=bert-tiny",
        "--objective=mlm",
        "--batch-size=13",
        "--set=train.micro_batch_size=4",
    ]
    rows = store.train.tokens.shape[0] // 30
    epochs = f"--epochs={(19 * 13 + 5) / rows:.9f}"
    pretrain(1, *arguments, epochs, "--out", str(tmp_path / "one"))
    pretrain(
        2,
        *arguments,
        epochs,
        "--set=train.save_steps=12",
        "--set=train.save_total_limit=9",
        "--out",
        str(tmp_path / "two"),
    )
    plan = json.loads((tmp_path / "two" / "plan.json").read_text())
    assert plan["length_phases"][0]["rows"] == 19 * 13 + 5
    # back to step 12, as after a kill
    shutil.rmtree(tmp_path / "two" / "checkpoints" / "step-00000020")
    shutil.rmtree(tmp_path / "two" / "model")
    pretrain(1, "--resume", str(tmp_path / "two"))
    one, two = losses(tmp_path / "one", ("loss",)), losses(tmp_path / "two", ("loss",))
    assert len(one) == len(two) == 20
    assert two == pytest.approx(one, rel=1e-5)
