"""Tasks from the trainer's view: settings that a spec supports are applied, others raise, and third-party tasks are
trained like built-in ones."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from runs.tiny import model_folder, sentence
from third_party import installed

from unmask import api
from unmask.batch import Example
from unmask.errors import UserError
from unmask.objectives.objective import Objective
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.tasks import objective
from unmask.tasks.rows import WEIGHTS, set_row_weights
from unmask.tasks.task import Task
from unmask.tasks.terms import CrossEntropy, SquaredError

THEIRS = """
import numpy as np

from unmask.batch import Example
from unmask.labels.fields import Field
from unmask.labels.data_format import DataFormat
from unmask.tasks.spec import TaskSpec, Training
from unmask.tasks.task import DataSummary, Task

FORM = DataFormat(Field("text", ("text",)), Field("mood", ("mood",), holds="label", use="target"))
TRAINING = Training(aux_mlm=True, token_masking=True)


class Mood(Task):
    "A label of a text."
    SPEC = TaskSpec(name="mood", about="", data_format=FORM, heads=("classify",), terms=("feeling",), output="choice", training=TRAINING)

    @classmethod
    def fit_state(cls, context, records, previous=None):
        return DataSummary(super().fit_state(context, records, previous).task_state | {"labels": sorted({r["mood"] for r in records})})

    def encode(self, record, labeled=True):
        ids, segments = self.tokenizer.build_inputs_with_special_tokens(self.tokenizer.encode(record["text"])[: self.windowing.max_text_tokens()])
        labels = self.targets(ids, self.task_state["labels"].index(record["mood"])) if labeled else {}
        return [Example(np.array(ids), np.array(segments), labels=labels, texts=(record["text"],))]

    def targets(self, ids, label):
        return {"feeling.targets": np.array([label])}

    def decode(self, outputs):
        return [{"mood": self.task_state["labels"][v.mean(0).argmax()]} for v in map(np.atleast_2d, outputs.values)]

    def score(self, answers, records):
        return {"accuracy": float(np.mean([a["mood"] == r["mood"] for a, r in zip(answers, records)]))}


class Moods(Mood):
    "The same, said by the third and the fourth token."
    SPEC = TaskSpec(
        name="moods", about="", data_format=FORM, heads=("tag",), terms=("feelings",), output="choice", output_per="token",
        training=Training(aux_mlm=True),
    )

    def targets(self, ids, label):
        return {"feelings.positions": np.array([2, 3]), "feelings.targets": np.array([label, label])}
"""
POINTS = {"tasks": {"mood": "theirs:Mood", "moods": "theirs:Moods"}}


@pytest.mark.parametrize("name", TASKS.names())
def test_task_is_not_an_objective_and_unsupported_settings_raise(name: str) -> None:
    kind, recipe = TASKS[name], Recipe.build({"task": {"token_mask_rate": 0.1}})
    assert issubclass(kind, Task) and not issubclass(kind, Objective)
    objective.check(Recipe(), kind.SPEC)
    if name in ("classify", "tag"):
        return objective.check(recipe, kind.SPEC)
    with pytest.raises(UserError, match=rf"the task {name} does not support task\.token_mask_rate") as error:
        objective.check(recipe, kind.SPEC)
    assert error.value.expected == "one of the tasks classify, tag"


def test_run_with_unsupported_token_mask_rate_raises(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    (tmp_path / "pairs.csv").write_text("text,positive\na film,a good film\na list,a list of numbers\n")
    with pytest.raises(UserError, match=r"the task embed does not support task\.token_mask_rate"):
        api.finetune(
            tmp_path / "model",
            train=tmp_path / "pairs.csv",
            out=tmp_path / "run",
            overrides=["task.token_mask_rate=0.2"],
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(("name", "term"), [("mood", "feeling"), ("moods", "feelings")])
def test_third_party_task_supports_teacher_aux_mlm_and_token_masking(name: str, term: str, tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    rows = [sentence(n) for n in range(12)]
    (tmp_path / "rows.csv").write_text("text,mood\n" + "".join(f"{text},{label}\n" for text, label in rows))
    settings = {"train": tmp_path / "rows.csv", "task": name, "batch_size": 6, "lr": 5e-3}
    with installed(tmp_path, {"theirs": THEIRS}, POINTS):
        api.finetune(tmp_path / "model", steps=30, out=tmp_path / "teacher", **settings)
        sets = ["task.token_mask_rate=0.1"] if name == "mood" else []
        more = {"teacher": str(tmp_path / "teacher"), "aux_mlm": 0.1, "overrides": sets}
        run = api.finetune(tmp_path / "model", steps=40, out=tmp_path / "run", **settings, **more)
        steps = [e for e in run.events() if e["event"] == "train"]
        assert all({term, "teacher", "mlm"} <= set(e) for e in steps)
        assert steps[-1]["teacher"] < 0.5 * steps[0]["teacher"] and steps[-1][term] < 0.5 * steps[0][term]
        loss = 0.5 * steps[-1][term] + 0.5 * steps[-1]["teacher"] + 0.1 * steps[-1]["mlm"]
        assert steps[-1]["loss"] == pytest.approx(loss, rel=1e-5)
        if name == "moods":
            with pytest.raises(UserError, match=r"task\.token_mask_rate") as error:
                api.finetune(
                    tmp_path / "model", out=tmp_path / "not", overrides=["task.token_mask_rate=0.1"], **settings
                )
            assert error.value.expected == "one of the tasks classify, mood, tag"
    assert json.loads((run.model / "unmask.json").read_text())["task"] == name


def test_record_weight_is_divided_over_the_targets_of_its_windows() -> None:
    spec = replace(TASKS["tag"].SPEC, training=replace(TASKS["tag"].SPEC.training, equal_record_weights=True))
    rows = [[_tagged(2)], [_tagged(3), _tagged(1)]]
    set_row_weights(spec, rows)
    assert [row.labels[WEIGHTS].tolist() for group in rows for row in group] == [[1.5, 1.5], [0.75] * 3, [0.75]]
    weights = torch.from_numpy(np.concatenate([row.labels[WEIGHTS] for group in rows for row in group]))
    logits, targets = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    each = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    loss = CrossEntropy(logits=logits, targets=targets, weights=weights).loss()
    assert float(loss) == pytest.approx(float((each * weights).sum()), rel=1e-6)
    plain = [[_tagged(2)], [_tagged(3), _tagged(1)]]
    set_row_weights(TASKS["tag"].SPEC, plain)
    assert all(WEIGHTS not in row.labels for group in plain for row in group)


def _tagged(count: int) -> Example:
    return Example(np.arange(4), labels={"tag.targets": np.zeros(count, np.int64)})


def test_absent_choices_do_not_affect_distillation_and_regression_uses_squared_error() -> None:
    logits, more = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0, -torch.inf]])
    other = torch.tensor([[0.5, -1.0]])
    absent = torch.cat([other, torch.full((1, 1), -torch.inf)], 1)
    target = torch.tensor([1])
    expected = CrossEntropy(logits=logits, targets=target).distillation_loss(other, 2.0)
    loss = CrossEntropy(logits=more, targets=target).distillation_loss(absent, 2.0)
    assert float(loss) == pytest.approx(float(expected), rel=1e-6) and float(expected) > 0.1
    number = SquaredError(logits=torch.tensor([[1.0], [4.0]]), targets=torch.tensor([0.0, 2.0]))
    assert float(number.loss()) == 5.0 and float(number.distillation_loss(torch.tensor([[1.0], [1.0]]), 2.0)) == 9.0
