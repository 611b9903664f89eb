"""Distillation: teacher logits only at the loss positions, student layers initialized from the teacher, teacher
weights unchanged."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from objectives.rows import TOKENIZER, row

import unmask
from unmask.batch import StepConfig, collate
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import ModelConfig, preset
from unmask.model.model import Model
from unmask.objectives.distill import Distill, init_from_teacher
from unmask.objectives.objective import build
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.seeds import generator
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer

PHASE = StepConfig(0, 64, 0.15)
SHAPE = {"vocab_size": TOKENIZER.size, "hidden": 32, "heads": 2, "intermediate": 64}
STUDENT = preset("distilbert-mini", **SHAPE, layers=2, dropout=0.0, attention_dropout=0.0)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    hf.save(Model(preset("bert-tiny", **SHAPE, layers=4), ("mlm",)).init(3), folder, TOKENIZER)
    return folder


def make(teacher: Path, config: ModelConfig = STUDENT, objective: str = "distill", **settings: object):
    recipe = Recipe.build({"objective": objective, "distill": {"teacher": str(teacher), **settings}})
    built = build(recipe, TOKENIZER, config)
    return built, Model(config, built.heads).init(1)


def batch_of(objective: Distill):
    rows = [objective.corrupt(row(i, 64), generator("distill", i), PHASE) for i in range(4)]
    return collate(rows, TOKENIZER.pad)


def test_teacher_logits_are_computed_only_at_masked_positions(teacher: Path) -> None:
    objective, model = make(teacher)
    batch = batch_of(objective)
    seen: list[int] = []
    objective.teacher.heads["mlm"].register_forward_hook(lambda m, args, out: seen.append(len(out)))
    objective.loss(model.train(), batch)
    assert seen == [len(batch.labels["mlm.positions"])]
    assert seen[0] < batch.input_ids.numel() / 5


def test_three_loss_terms_match_their_definitions(teacher: Path) -> None:
    objective, model = make(teacher)
    batch = batch_of(objective)
    model.eval()
    with torch.no_grad():
        terms = objective.evaluate(model, batch)
        at = batch.labels["mlm.positions"]
        student_hidden, teacher_hidden = (m.encode(batch).flatten(0, 1)[at] for m in (model, objective.teacher))
        student, soft = model.logits("mlm", student_hidden), objective.teacher.logits("mlm", teacher_hidden)
    p = (soft / 2).softmax(-1)
    kl = (p * (p.log() - (student / 2).softmax(-1).log())).sum() * 4
    assert float(terms["distill_soft"][0]) == pytest.approx(float(kl), rel=1e-4)
    cosine = (
        1 - (student_hidden * teacher_hidden).sum(-1) / student_hidden.norm(dim=-1) / teacher_hidden.norm(dim=-1)
    ).sum()
    assert float(terms["distill_cosine"][0]) == pytest.approx(float(cosine), rel=1e-4)
    expected = F.cross_entropy(student, batch.labels["mlm.targets"], reduction="sum")
    assert float(terms["mlm"][0]) == pytest.approx(float(expected), rel=1e-5)
    assert objective.weights == {"mlm": 2.0, "distill_soft": 5.0, "distill_cosine": 1.0}
    assert objective.target_counts(batch) == dict.fromkeys(objective.terms, len(at))


def test_teacher_is_not_trained_and_not_saved(teacher: Path, tmp_path: Path) -> None:
    objective, model = make(teacher)
    total = sum(value for value, _ in objective.loss(model.train(), batch_of(objective)).values())
    total.backward()
    assert not objective.teacher.training
    assert all(p.grad is None and not p.requires_grad for p in objective.teacher.parameters())
    assert any(p.grad is not None and p.grad.any() for p in model.parameters())
    assert not any("teacher" in name for name in model.state_dict())
    hf.save(model, tmp_path, TOKENIZER)
    assert hf.load(tmp_path).model.config.layers == 2


def test_student_is_initialized_from_every_second_teacher_layer(teacher: Path) -> None:
    objective, model = make(teacher)
    note = objective.init_model(model)
    student, teacher_state = model.state_dict(), objective.teacher.state_dict()
    for i, source in ((0, 0), (1, 2)):
        for part in ("attention.qkv.weight", "mlp.up.weight", "mlp_norm.bias"):
            key = f"encoder.layers.{i}.{part}"
            assert torch.equal(student[key], teacher_state[f"encoder.layers.{source}.{part}"]), key
    assert torch.equal(student["encoder.embeddings.tokens.weight"], teacher_state["encoder.embeddings.tokens.weight"])
    assert torch.equal(student["heads.mlm.dense.weight"], teacher_state["heads.mlm.dense.weight"])
    n = len(list(model.parameters()))
    assert note == [f"initialized {n} of {n} parameters of the student from the teacher"]
    twelve = Model(preset("bert-tiny", **SHAPE, layers=12), ()).init(0)
    six = Model(preset("bert-tiny", **SHAPE, layers=6), ()).init(1)
    init_from_teacher(six, twelve)
    for i in range(6):
        assert torch.equal(six.encoder.layers[i].mlp.up.weight, twelve.encoder.layers[2 * i].mlp.up.weight)
    untouched, fresh = make(teacher, student_init="random"), make(teacher, student_init="random")
    assert untouched[0].init_model(untouched[1]) == []
    assert all(torch.equal(a, b) for a, b in zip(untouched[1].parameters(), fresh[1].parameters()))


def test_other_family_and_width_require_cosine_weight_zero(teacher: Path) -> None:
    narrow = preset("modernbert-mini", **SHAPE | {"hidden": 16}, layers=2)
    with pytest.raises(UserError, match=r"distill\.cosine"):
        make(teacher, narrow)
    objective, model = make(teacher, narrow, cosine_weight=0.0)
    objective.init_model(model)
    assert set(objective.loss(model, batch_of(objective))) == {"mlm", "distill_soft"} == set(objective.terms)


def test_invalid_teachers_raise(teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a teacher"):
        build(Recipe.build({"objective": "distill"}), TOKENIZER, STUDENT)
    with pytest.raises(UserError, match="both 0"):
        make(teacher, kl_weight=0.0, cosine_weight=0.0)
    with pytest.raises(UserError, match="both have the term mlm"):
        make(teacher, objective="mlm+distill")
    other = Tokenizer.train(["a"], TokenizerRecipe(type="byte", special_tokens=["<x>"]))
    recipe = Recipe.build({"objective": "distill", "distill": {"teacher": str(teacher)}})
    with pytest.raises(UserError, match="another tokenizer"):
        Distill(recipe, other)
    hf.save(Model(preset("bert-tiny", **SHAPE, layers=1), ("pooler",)).init(3), tmp_path, TOKENIZER)
    with pytest.raises(UserError, match="no MLM head"):
        make(tmp_path)


def test_distill_combines_with_sentence_pairs(teacher: Path) -> None:
    objective, model = make(teacher, preset("bert-tiny", **SHAPE, layers=2), "distill+nsp")
    assert objective.rows == "pairs"
    assert set(objective.terms) == {"mlm", "distill_soft", "distill_cosine", "nsp"}
    assert "of the student from the teacher" in " ".join(objective.init_model(model))
    batches = [
        replace(row(i, 64), token_type_ids=np.repeat([0, 1], 32), labels={"nsp": np.array([i % 2])}) for i in range(4)
    ]
    batch = collate([objective.corrupt(e, generator("distill", i), PHASE) for i, e in enumerate(batches)], 0)
    assert set(objective.loss(model, batch)) == set(objective.target_counts(batch)) == set(objective.terms)
    assert {"mlm_accuracy", "nsp_accuracy", "distill_soft"} <= set(objective.evaluate(model, batch))


def test_resume_with_a_changed_teacher_raises(store: TokenStore, tmp_path: Path) -> None:
    """A teacher with the same name, size and mtime but different bytes raises; the original one resumes."""
    folder, shape = tmp_path / "teacher", {"vocab_size": store.tokenizer.size, "hidden": 32, "heads": 2}
    hf.save(Model(preset("bert-tiny", **shape, layers=1), ("mlm",)).init(1), folder, store.tokenizer)
    recipe = {"distill": {"teacher": str(folder)}, "model": {"hidden": 32, "layers": 1, "heads": 2}}
    run = unmask.pretrain(
        store.path, recipe=recipe, objective="distill", preset="bert-tiny", steps=1, batch_size=2, max_length=32,
        overrides=["train.threads=1", "train.max_eval_examples=2"], out=tmp_path / "run",
    )  # fmt: skip
    for name in ("results.json", "report.html"):
        (run.path / name).unlink()  # as if the run had been interrupted
    for name in ("model.safetensors", "config.json"):
        file = folder / name
        before, times = file.read_bytes(), file.stat()
        other = before[:-1] + (b" " if name == "config.json" else bytes([before[-1] ^ 1]))
        file.write_bytes(other)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(UserError, match=r"distill\.teacher: .*teacher has changed since"):
            unmask.resume(run.path)
        file.write_bytes(before)
    unmask.resume(run.path)
    assert (run.path / "report.html").exists()


def test_show_batch_without_a_teacher_raises(store: TokenStore) -> None:
    """`show-batch --objective distill` used to report ". is not a model folder"."""
    with pytest.raises(UserError, match="distill needs a teacher") as error:
        unmask.show_batch(store.path, objective="distill")
    assert error.value.hint == "--set distill.teacher=FOLDER"
