"""Resuming a fine-tuning run raises if its teacher or its augmented records have changed."""

from pathlib import Path

import pytest
from runs.tiny import labeled, model_folder

from unmask import UserError, api
from unmask.model import hf
from unmask.model.model import Model
from unmask.runs import finetune
from unmask.text.tokenizer import Tokenizer
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")

SETS = ["train.steps=6", "train.batch_size=4", "train.save_steps=2", "task.patience=0", "seed=1"]


def crashed_run(start: Path, file: Path, out: Path, **options: str) -> Run:
    """Train a run that crashes before it finishes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune.Finetune, "finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            api.finetune(start, train=file, out=out, overrides=SETS, **options)  # type: ignore[arg-type]
    return Run(out)


def test_resume_with_a_changed_teacher_raises(tmp_path: Path) -> None:
    start, file = model_folder(tmp_path / "start"), labeled(tmp_path / "train.csv", 30)
    teacher = api.finetune(start, train=file, out=tmp_path / "teacher", overrides=SETS).model
    run = crashed_run(start, file, tmp_path / "run", teacher=str(teacher))
    before = {path: path.read_bytes() for path in teacher.iterdir() if path.is_file()}
    loaded = hf.load(teacher)
    changed = Model(loaded.config, tuple(loaded.model.heads)).init(5)
    hf.save(changed, tmp_path / "other", Tokenizer.load(teacher))
    (teacher / "model.safetensors").write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"task\.teacher.* has changed"):
        api.resume(run.path)
    for path, content in before.items():
        path.write_bytes(content)
    assert api.resume(run.path).read_json("results.json")["step"] == 6


def test_resume_with_changed_augmented_records_raises(tmp_path: Path) -> None:
    start, file = model_folder(tmp_path / "start"), labeled(tmp_path / "train.csv", 30)
    run = crashed_run(start, file, tmp_path / "run", augment_mlm=0.5)
    rewritten = run.path / "augmented.jsonl"
    before = rewritten.read_text()
    rewritten.write_text("".join(before.splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match=r"augmented\.jsonl.* has changed"):
        api.resume(run.path)
    rewritten.write_text(before)
    assert api.resume(run.path).read_json("results.json")["step"] == 6
