"""Auxiliary MLM loss of a task: a masked copy of the input, a weight and a logged term. The task's input is
unmasked, and the MLM head is removed at the end."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from unmask import api
from unmask.batch import StepConfig, collate
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.registry import TASKS
from unmask.tasks import aux_mlm
from unmask.tasks.classify.task import Classify
from unmask.tasks.objective import objective_of
from unmask.text.tokenizer import Tokenizer
from unmask.train.fit import TrainingInterrupted

pytestmark = pytest.mark.usefixtures("no_report")
WORDS = "good bad fine poor film book the a of is was very long short plot end".split()  # noqa: SIM905


def sentence(rng: np.random.Generator, label: str) -> str:
    return f"the {label} {' '.join(rng.choice(WORDS[4:], 6))}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with an MLM head, one without, and a labeled file."""
    folder, rng = tmp_path_factory.mktemp("aux"), np.random.default_rng(0)
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 3, TokenizerRecipe(min_frequency=1))
    shape = {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 64, "vocab_size": tokenizer.size}
    for name, heads in (("mlm", ["mlm"]), ("bare", ["pooler"])):
        hf.save(Model(preset("bert-tiny", **shape, **tokenizer.config_ids()), heads).init(0), folder / name, tokenizer)
    rows = [(sentence(rng, label), label) for label in ["good", "bad"] * 12]
    (folder / "train.csv").write_text("text,label\n" + "".join(f"{t},{y}\n" for t, y in rows))
    return folder


def task_of(folder: Path, weight: float = 0.3) -> tuple[Classify, aux_mlm.WithAuxMLM]:
    recipe = Recipe.build({"task": {"aux_mlm": weight}})
    task = Classify(
        recipe, Tokenizer.load(folder / "mlm"), {"labels": ["good", "bad"], "length": 32, "target": "single_label"}
    )
    task.bind(hf.config_of(folder / "mlm"))
    objective = aux_mlm.add_aux_mlm(objective_of(task))
    assert isinstance(objective, aux_mlm.WithAuxMLM)
    return task, objective


def test_copy_is_masked_and_input_is_not(folder: Path) -> None:
    task, objective = task_of(folder)
    rng = np.random.default_rng(0)
    rows = [task.encode({"text": sentence(rng, "good"), "label": "good"})[0] for _ in range(50)]
    masked_rows = [objective.corrupt(row, np.random.default_rng(n), StepConfig(0, 32)) for n, row in enumerate(rows)]
    assert all(a.input_ids.tolist() == b.input_ids.tolist() for a, b in zip(rows, masked_rows))
    batch = collate(masked_rows, task.tokenizer.pad)
    copy = aux_mlm.masked_copy(batch)
    assert torch.equal(batch.input_ids, collate(rows, task.tokenizer.pad).input_ids)
    at = batch.labels["mlm.positions"]
    assert torch.equal(batch.input_ids.view(-1)[at], batch.labels["mlm.targets"])
    changed = (copy.input_ids != batch.input_ids).view(-1)
    assert set(changed.nonzero()[:, 0].tolist()) <= set(at.tolist()) and changed.sum() > 0.7 * len(at)
    assert (copy.input_ids.view(-1)[at] == task.tokenizer.mask).float().mean() == pytest.approx(0.8, abs=0.15)


def test_loss_is_the_weighted_sum_of_both(folder: Path) -> None:
    task, objective = task_of(folder)
    model = hf.load(folder / "mlm", ["classify", "mlm"], {"labels": ("good", "bad")}).model.eval()
    rng = np.random.default_rng(0)
    rows = [task.encode({"text": sentence(rng, "bad"), "label": "bad"})[0] for _ in range(4)]
    batch = collate([objective.corrupt(r, rng, StepConfig(0, 32)) for r in rows], task.tokenizer.pad)
    with torch.no_grad():
        terms, alone = objective.loss(model, batch), objective.task.loss(model, collate(rows, task.tokenizer.pad))
        logits = model.logits(
            "mlm", model.encode(aux_mlm.masked_copy(batch)).flatten(0, 1)[batch.labels["mlm.positions"]]
        )
    assert torch.equal(terms["classify"][0], alone["classify"][0]) and objective.weights == {"mlm": 0.3}
    assert objective.target_counts(batch) == {name: count for name, (_, count) in terms.items()}
    expected = torch.nn.functional.cross_entropy(logits, batch.labels["mlm.targets"], reduction="sum")
    assert float(terms["mlm"][0]) == pytest.approx(float(expected), rel=1e-5)


RECORDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # task → task_state and a record
    "classify": ({"labels": ["good", "bad"], "target": "single_label"}, {"text": "the film is long", "label": "bad"}),
    "tag": (
        {"labels": ["O", "B-x", "I-x"], "scheme": "BIO"},
        {"text": "the film is long", "spans": [{"start": 4, "end": 8, "label": "x"}]},
    ),
    "answer": (
        {"threshold": None},
        {"id": "1", "question": "the film", "context": "the film is long", "answers": [{"text": "long", "start": 12}]},
    ),
    "choose": ({}, {"text": "the film", "choices": ["is long", "was very short", "bad"], "label": 1}),
}


@pytest.mark.parametrize("name", RECORDS)
def test_every_supported_task_has_both_losses(name: str, folder: Path) -> None:
    """Includes records with several rows: each row has its own masked copy."""
    task_state, record = RECORDS[name]
    recipe = Recipe.build({"task": {"aux_mlm": 0.3}})
    task = TASKS[name](recipe, Tokenizer.load(folder / "mlm"), {"length": 32, **task_state})
    config = hf.config_of(folder / "mlm")
    task.bind(config)
    aux_mlm.check(recipe, config, task.SPEC)
    model = hf.load(folder / "mlm", [*task.heads, "mlm"], task.bound.config_overrides).model.eval()
    rows, objective = task.encode(record), aux_mlm.add_aux_mlm(objective_of(task))
    rng = np.random.default_rng(0)
    batch = collate([objective.corrupt(row, rng, StepConfig(0, 32)) for row in rows * 3], task.tokenizer.pad)
    flat = torch.zeros(batch.input_ids.numel(), dtype=torch.bool)
    flat[batch.labels["mlm.positions"]] = True
    assert flat.view(batch.input_ids.shape).any(1).all()  # in every row
    with torch.no_grad():
        terms, alone = (
            objective.loss(model, batch),
            objective_of(task).loss(model, collate(rows * 3, task.tokenizer.pad)),
        )
    assert set(terms) == {*alone, "mlm"} and all(torch.equal(terms[t][0], alone[t][0]) for t in alone)
    assert {t: n for t, (_, n) in terms.items()} == objective.target_counts(batch)
    aux_mlm.remove_aux_head(model, task.heads)
    assert "mlm" not in model.heads


def finetune(folder: Path, out: Path, model: str = "mlm", **more: Any) -> Any:
    sets = ["train.layerwise_lr_decay=1", "train.save_steps=3", *more.pop("sets", ())]
    return api.finetune(
        folder / model, train=folder / "train.csv", steps=8, batch_size=4, lr=1e-3, out=out, overrides=sets, **more
    )


def test_term_is_logged_and_saved_model_has_only_the_task_head(folder: Path, tmp_path: Path) -> None:
    run = finetune(folder, tmp_path / "a", aux_mlm=0.5)
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "train"]
    assert all({"mlm", "classify", "loss"} <= set(line) for line in steps)
    assert steps[0]["loss"] == pytest.approx(steps[0]["classify"] + 0.5 * steps[0]["mlm"], rel=1e-5)
    assert not (run.model / "heads.safetensors").exists()
    theirs, loading_info = transformers.AutoModelForSequenceClassification.from_pretrained(
        run.model, output_loading_info=True
    )
    assert (
        not loading_info["missing_keys"]
        and not loading_info["unexpected_keys"]
        and theirs.config.id2label == {0: "bad", 1: "good"}
    )
    plain = finetune(folder, tmp_path / "b")
    assert (plain.model / "model.safetensors").read_bytes() != (run.model / "model.safetensors").read_bytes()
    new_head = finetune(folder, tmp_path / "c", "bare", aux_mlm=0.5)
    assert not (new_head.model / "heads.safetensors").exists()


def test_resume_is_bit_exact(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = finetune(folder, tmp_path / "whole", aux_mlm=0.5)
    from unmask.train.trainer import Trainer

    step = Trainer.step

    def stop(self: Trainer, number: int, batches: Any) -> Any:
        if number == 5:
            raise TrainingInterrupted("enough", hint="go on")
        return step(self, number, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stop)
        with pytest.raises(TrainingInterrupted):
            finetune(folder, tmp_path / "cut", aux_mlm=0.5)
    last = sorted((tmp_path / "cut" / "checkpoints").glob("step-*"))[-1]
    assert (last / "model" / "heads.safetensors").exists()  # the MLM head is restored too
    run = api.resume(tmp_path / "cut")
    assert (run.model / "model.safetensors").read_bytes() == (whole.model / "model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "cut")


def test_invalid_settings_and_unsupported_models_raise(folder: Path) -> None:
    for text in ("mlm:0.1", -1, "inf", "x", float("nan")):
        with pytest.raises(UserError, match=r"task\.aux_mlm"):
            Recipe.build({"task": {"aux_mlm": text}})
    recipe = Recipe.build({"task": {"aux_mlm": 0.1}})
    with pytest.raises(UserError, match="embed") as error:
        aux_mlm.check(recipe, preset("bert-tiny"), TASKS["embed"].SPEC)
    fitting = [name for name in TASKS.names() if TASKS[name].SPEC.training.aux_mlm]
    assert str(error.value.expected) == f"one of the tasks {', '.join(fitting)}" and set(RECORDS) <= set(fitting)
    with pytest.raises(UserError, match="needs an MLM head"):
        aux_mlm.check(recipe, preset("gpt2-mini"), Classify.SPEC)
    with pytest.raises(UserError, match="freeze"):
        aux_mlm.check(Recipe.build({"task": {"aux_mlm": 0.1, "freeze": "encoder"}}), preset("bert-tiny"), Classify.SPEC)
    aux_mlm.check(Recipe(), preset("gpt2-mini"), TASKS["embed"].SPEC)  # no error if aux_mlm is not set
