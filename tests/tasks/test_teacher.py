"""Distillation of fine-tuned models: teacher predictions are computed once and the student is compared with them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from near import near

from unmask import api
from unmask.batch import collate
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.registry import TASKS
from unmask.tasks import teacher, terms
from unmask.tasks.objective import objective_of
from unmask.tasks.task import Task
from unmask.text.tokenizer import Tokenizer

TEXTS = ["the cat sat on the mat", "a dog ran to the river of the town", "it rained", "the old king and the sea"]
TASK_STATES: dict[str, dict[str, Any]] = {
    "one": {"labels": ["x", "y", "z"], "target": "single_label"},
    "several": {"labels": ["x", "y", "z"], "target": "multi_label"},
    "number": {"labels": ["value"], "target": "regression", "mean": 2.0, "sd": 4.0},
    "tag": {"labels": ["O", "B-a", "I-a"], "scheme": "BIO"},
    "answer": {"threshold": None},
    "choose": {},
    "rank": {"most": 1.0},
    "embed": {"pooling": "mean", "normalised": True, "lower": False, "prompt": "", "loss": "pairs"},
}
RECORDS: dict[str, list[dict[str, Any]]] = {
    "choose": [
        {"location": f"f:{n}", "text": t, "choices": TEXTS[n:] + TEXTS[: 1 + n // 2], "label": 0}
        for n, t in enumerate(TEXTS)
    ],
    "rank": [
        {
            "location": f"f:{n}",
            "query": t,
            "passages": TEXTS,
            "relevance": [2.0 if m == n else float(m == 3) for m in range(4)],
        }
        for n, t in enumerate(TEXTS[:3])
    ],
    "embed": [
        {"location": f"f:{n}", "text": t, "positive": TEXTS[n - 1], "negatives": ["the old king", "it rained"][: n % 3]}
        for n, t in enumerate(TEXTS)
    ]
    + [{"location": "f:4", "text": " ".join(TEXTS * 3), "positive": "it rained", "negatives": []}],  # several windows
}
LABELS: dict[str, list[Any]] = {
    "one": ["x", "y", "z", "x"],
    "several": [["x"], ["x", "y"], [], ["z"]],
    "number": [1.0, 2.0, 3.0, 4.0],
}


def tokenizer_of(texts: list[str]) -> Tokenizer:
    return Tokenizer.train(texts * 3, TokenizerRecipe(min_frequency=1))


def task_of(kind: str, tokenizer: Tokenizer, **task_state: Any) -> tuple[Task, Model]:
    name = "classify" if kind in LABELS else kind
    task: Task = TASKS[name](Recipe(), tokenizer, {"length": 32, **TASK_STATES[kind], **task_state})
    shape = {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 64, "vocab_size": tokenizer.size, "dropout": 0.0}
    config = preset("bert-tiny", attention_dropout=0.0, **shape, **tokenizer.config_ids())
    task.bind(config)
    from unmask.model.config import change

    return task, Model(change(config, **task.bound.config_overrides), task.heads).init(len(task_state))


def records_of(kind: str) -> list[dict[str, Any]]:
    if kind in RECORDS:
        return RECORDS[kind]
    if kind == "tag":
        return [
            {"location": f"f:{n}", "text": t, "spans": [{"start": 0, "end": 3, "label": "a"}]}
            for n, t in enumerate(TEXTS)
        ]
    if kind == "answer":
        answers = [{"text": t.split()[1], "start": t.index(t.split()[1])} for t in TEXTS]
        return [
            {
                "location": f"f:{n}",
                "id": str(n),
                "question": "the cat",
                "context": t,
                "answers": [a],
                "impossible": False,
            }
            for n, (t, a) in enumerate(zip(TEXTS, answers))
        ]
    return [{"location": f"f:{n}", "text": t, "label": y} for n, (t, y) in enumerate(zip(TEXTS, LABELS[kind]))]


@pytest.mark.parametrize("kind", TASK_STATES)
def test_term_is_zero_for_equal_predictions_and_training_reduces_it(kind: str) -> None:
    tokenizer = tokenizer_of(TEXTS)
    task, teacher_model = task_of(kind, tokenizer)
    other, student = task_of(kind, tokenizer, more=1)  # different initial weights
    assert not torch.equal(teacher_model.embedding, student.embedding)
    with torch.no_grad():
        for value in teacher_model.heads.parameters():
            value.mul_(30)  # a teacher with confident predictions
    encoded = [other.encode(r) for r in records_of(kind)]
    objective = teacher.attach_teacher_logits(other, teacher_model, task, records_of(kind), encoded)
    batch = collate([e for rows in encoded for e in rows], tokenizer.pad)
    same, count = objective.loss(teacher_model, batch)["teacher"]
    assert float(same.detach()) == near(0.0, 1e-4) and count == objective.target_counts(batch)["teacher"] > 0
    optimizer, before = torch.optim.Adam(student.parameters(), 1e-2), 0.0
    for _ in range(30):
        divergence = objective.loss(student, batch)["teacher"][0]
        before = before or float(divergence.detach())
        optimizer.zero_grad()
        divergence.backward()
        optimizer.step()
    assert float(objective.loss(student, batch)["teacher"][0].detach()) < 0.2 * before
    hard = objective_of(other).loss(student, batch)
    both = objective.loss(student, batch)
    assert all(float(both[t][0].detach()) == pytest.approx(float(hard[t][0].detach()), rel=1e-5) for t in hard)
    assert sum(objective.weights.values()) == pytest.approx(
        0.5 + 0.5 * sum(other.SPEC.training.loss_weights.get(t, 1.0) for t in other.SPEC.terms)
    )


@pytest.mark.parametrize("kind", [kind for kind in TASK_STATES if kind != "embed"])
def test_both_terms_use_one_forward_pass(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_of(TEXTS)
    task, teacher_model = task_of(kind, tokenizer)
    encoded = [task.encode(r) for r in records_of(kind)]
    objective = teacher.attach_teacher_logits(task, teacher_model, task, records_of(kind), encoded)
    runs: list[str] = []
    logits = Model.logits
    monkeypatch.setattr(Model, "logits", lambda self, head, *args: runs.append(head) or logits(self, head, *args))
    objective.loss(teacher_model, collate([e for rows in encoded for e in rows], tokenizer.pad))
    assert runs == [task.heads[0]]


def test_divergence_matches_hinton_et_al() -> None:
    temperature = 2.5
    a, b = torch.randn(5, 3), torch.randn(5, 3)
    p, q = (b / temperature).softmax(-1), (a / temperature).softmax(-1)
    assert float(terms.CrossEntropy(logits=a, targets=a).distillation_loss(b, temperature)) == pytest.approx(
        float(temperature**2 * (p * (p / q).log()).sum()), rel=1e-5
    )
    p, q = (b / temperature).sigmoid(), (a / temperature).sigmoid()
    expected = temperature**2 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).sum()
    assert float(terms.BinaryCrossEntropy(logits=a, targets=a).distillation_loss(b, temperature)) == pytest.approx(
        float(expected), rel=1e-5
    )
    v, none = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), torch.zeros(3)
    vectors = terms.Contrastive(logits=v, targets=none, role=none, key=none, temperature=0.5)
    assert float(vectors.distillation_loss(3 * v.flip(1), temperature)) == near(0.0, 1e-6)  # the same cosines
    assert float(vectors.distillation_loss(v.flip(0), temperature)) > 0.1


def test_teacher_with_another_tokenizer_works_only_for_record_level_tasks() -> None:
    ours, theirs = tokenizer_of(TEXTS), tokenizer_of([t[::-1] for t in TEXTS] + TEXTS)
    task, _ = task_of("one", ours)
    teacher_task, teacher_model = task_of("one", theirs, labels=["z", "x", "y"])
    encoded = [task.encode(r) for r in records_of("one")]
    teacher.attach_teacher_logits(task, teacher_model, teacher_task, records_of("one"), encoded)
    teacher_scores = [a["scores"] for a in teacher_task.predict(teacher_model, records_of("one"))]
    teacher_logits = np.stack([rows[0].labels["teacher.logits"][0] for rows in encoded]).astype(np.float64)
    probabilities = np.exp(teacher_logits) / np.exp(teacher_logits).sum(-1, keepdims=True)
    assert probabilities == near(
        np.array([[s[name] for name in task.task_state["labels"]] for s in teacher_scores]), 1e-5
    )
    for kind in ("choose", "rank", "embed"):  # also with a student of another size
        task, _ = task_of(kind, ours)
        teacher_task, teacher_model = task_of(kind, theirs)
        encoded = [task.encode(r) for r in records_of(kind)]
        teacher.attach_teacher_logits(task, teacher_model, teacher_task, records_of(kind), encoded)
        for heads, record, answer in zip(
            encoded, records_of(kind), teacher_task.predict(teacher_model, records_of(kind))
        ):
            rows = [row for head in heads for row in (head, *head.grouped_rows)]
            teacher_logits = {
                row.metadata: row.labels["teacher.logits"][0] for row in rows if "teacher.logits" in row.labels
            }
            if kind == "embed":
                a, b = teacher_logits[0, record["text"]], teacher_logits[1, record["positive"]]
                assert float(a @ b) == near(answer["similarity"], 1e-5)
                assert len(teacher_logits) == 2 + len(record["negatives"])
                assert all((row.labels["embed.role"][0] < 0) != ("teacher.logits" in row.labels) for row in rows)
            elif kind == "choose":
                exponentials = np.exp([teacher_logits[choice] for choice in record["choices"]])
                assert exponentials / exponentials.sum() == near(answer["scores"], 1e-5)
            else:
                assert {n: answer["scores"][n] for n in teacher_logits} == near(teacher_logits, 1e-5) and len(
                    teacher_logits
                ) > 2
    for kind in ("tag", "answer"):
        task, _ = task_of(kind, ours)
        with pytest.raises(UserError, match="another tokenizer"):
            teacher.check_teacher(task, task_of(kind, theirs)[0])


def test_regression_targets_match_the_teacher_at_any_scale() -> None:
    tokenizer = tokenizer_of(TEXTS)
    task, _ = task_of("number", tokenizer)
    teacher_task, teacher_model = task_of("number", tokenizer, mean=0.0, sd=1.0)  # as in a finished model
    encoded = [task.encode(r) for r in records_of("number")]
    teacher.attach_teacher_logits(task, teacher_model, teacher_task, records_of("number"), encoded)
    for rows, answer in zip(encoded, teacher_task.predict(teacher_model, records_of("number"))):
        assert 4.0 * rows[0].labels["teacher.logits"][0, 0] + 2.0 == near(answer["value"], 1e-5)


def test_teacher_with_other_labels_raises_and_names_them() -> None:
    tokenizer = tokenizer_of(TEXTS)
    task, _ = task_of("one", tokenizer)
    for task_state, message in (
        ({"labels": ["x", "y", "w"]}, "it does not have z; the training file does not have w"),
        ({"labels": ["x", "y", "z", "w"]}, "the training file does not have w"),
        ({"target": "multi_label"}, "output is binary, but the training file needs choice"),
    ):
        with pytest.raises(UserError, match=message):
            teacher.check_teacher(task, task_of("one", tokenizer, **task_state)[0])
    with pytest.raises(UserError, match="task is tag"):
        teacher.check_teacher(task, task_of("tag", tokenizer)[0])
    with pytest.raises(UserError, match="generate") as error:
        teacher.check(Recipe.build({"task": {"teacher": "x"}}), TASKS["generate"].SPEC)
    assert "unmask predict x FILE" in str(error.value.hint)  # the suggested alternative
    with pytest.raises(UserError, match=r"rank\.loss=pointwise"):
        TASKS["rank"].check(
            Recipe.build({"task": {"teacher": "x", "rank": {"loss": "pointwise"}}}), preset("bert-tiny")
        )


def test_each_record_has_its_own_divergence_for_any_number_of_rows() -> None:
    """Padding of a record with two choices does not count."""
    tokenizer = tokenizer_of(TEXTS)
    task, teacher_model = task_of("choose", tokenizer)
    _, student = task_of("choose", tokenizer, more=1)
    with torch.no_grad():
        for n, value in enumerate(teacher_model.parameters()):
            value.normal_(0, 0.5, generator=torch.Generator().manual_seed(n))
    encoded = [task.encode(r) for r in records_of("choose")]
    objective = teacher.attach_teacher_logits(task, teacher_model, task, records_of("choose"), encoded)
    whole = objective.loss(student, collate([e for rows in encoded for e in rows], tokenizer.pad))["teacher"]
    alone = [float(objective.loss(student, collate(rows, tokenizer.pad))["teacher"][0].detach()) for rows in encoded]
    assert float(whole[0].detach()) == pytest.approx(sum(alone), rel=1e-4) and whole[1] == 4 and min(alone) > 0.01
    temperature, answers = (
        task.recipe.distill.temperature,
        [task.predict(m, records_of("choose")) for m in (teacher_model, student)],
    )
    p, q = (torch.tensor(a[0]["scores"]).log().div(temperature).softmax(-1) for a in answers)
    assert alone[0] == pytest.approx(float(temperature**2 * (p * (p / q).log()).sum()), rel=1e-3)


def test_student_learns_from_a_teacher_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A teacher with inverted labels: its fraction of the loss is visible in the student's predictions."""
    monkeypatch.setattr("unmask.report.write", lambda *_: None)
    tokenizer = tokenizer_of(TEXTS)
    shape = {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 64, "vocab_size": tokenizer.size, "dropout": 0.0}
    start = Model(preset("bert-tiny", **shape, **tokenizer.config_ids()), ["mlm"]).init(0)
    hf.save(start, tmp_path / "m", tokenizer)
    for name, labels in (("right", "xyxy"), ("wrong", "yxyx")):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(f"{t},{y}\n" for t, y in zip(TEXTS, labels)))
    settings: dict[str, Any] = {
        "batch_size": 4,
        "lr": 1e-2,
        "overrides": ["train.layerwise_lr_decay=1", "train.warmup=0"],
    }
    api.finetune(tmp_path / "m", train=tmp_path / "wrong.csv", steps=25, out=tmp_path / "wrong", **settings)
    run = api.finetune(
        tmp_path / "m", train=tmp_path / "right.csv", steps=25, teacher=str(tmp_path / "wrong"), out=tmp_path / "taught", **settings
    )  # fmt: skip
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "train"]
    assert all("teacher" in line for line in steps)
    assert steps[3]["loss"] == pytest.approx(0.5 * steps[3]["classify"] + 0.5 * steps[3]["teacher"], rel=1e-5)
    probabilities = [a["probability"] for a in api.predict(run.path, TEXTS)]
    assert max(probabilities) < 0.9  # between both targets
    with pytest.raises(UserError, match="not fine-tuned"):
        api.finetune(tmp_path / "m", train=tmp_path / "right.csv", teacher=str(tmp_path / "m"), out=tmp_path / "none")
