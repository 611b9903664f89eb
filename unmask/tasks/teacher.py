"""Distillation of a fine-tuned model (`--teacher FOLDER`; Hinton et al. 1503.02531): train a student on labels and on a teacher's outputs.

| output of the task (its spec)  | computed by the teacher once, before training     | the term `teacher` (see terms.py)            |
|--------------------------------|---------------------------------------------------|----------------------------------------------|
| values per row                 | logits or the number of each record               | KL at a temperature; squared error of a number |
| values per token               | logits at the loss positions, or at all positions | KL over tags, or over the tokens of the row  |
| one value per row of a group   | a score for each choice or passage                | KL over the rows of a record                 |
| a vector                       | a vector of each text                             | KL over the other texts of the batch         |

Labels and teacher each have half of the loss weight; the temperature is `distill.temperature`. Only logits and vectors are stored. The
student may be any model, with vectors of any size; outputs per token require the same tokenizer.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.batch import Batch, Example, batch_by_length, collate
from unmask.errors import UserError, quote
from unmask.labels.records import Record
from unmask.model.model import Model
from unmask.objectives.objective import Terms
from unmask.recipe import Recipe
from unmask.tasks.objective import TaskObjective, tasks_with
from unmask.tasks.rows import pad_by_record
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import Outputs, Task, Update
from unmask.tasks.terms import Term

TERM, LOGITS, POSITIONS = "teacher", "teacher.logits", "teacher.positions"
TEACHER_WEIGHT = 0.5  # fraction of the loss


def check(recipe: Recipe, spec: TaskSpec) -> None:
    if recipe.task.teacher and not spec.training.distillable:
        predict = f"unmask predict {quote(Path(recipe.task.teacher))} FILE --json, then train on its output as the column `target`"
        raise UserError(
            f"the task {spec.name} does not support --teacher",
            expected=f"one of the tasks {', '.join(tasks_with('distillable'))}",
            hint=predict if spec.output == "text" else "remove --teacher",
        )


class WithTeacher(TaskObjective):
    """The objective of a task whose rows have the teacher's logits as labels."""

    def __init__(self, task: Task):
        super().__init__(task)
        label_weights = {term: (1 - TEACHER_WEIGHT) * self.weights.get(term, 1.0) for term in self.terms}
        self.name, self.terms = f"{self.name}+{TERM}", (*self.terms, TERM)
        self.weights = {**label_weights, TERM: TEACHER_WEIGHT}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        counts = super().target_counts(batch)
        teacher_count = len(batch.labels[LOGITS]) if self.task.SPEC.output == "vector" else sum(counts.values())
        return {**counts, TERM: teacher_count}

    def sums(self, terms: Mapping[str, Term], batch: Batch) -> Terms:
        term, *others = terms.values()
        if others:  # start and end of a span: (B, terms, T)
            term = replace(term, logits=torch.stack([each.logits for each in terms.values()], 1))
        loss = term.distillation_loss(self._teacher_logits(batch), self.recipe.distill.temperature)
        return {**super().sums(terms, batch), TERM: (loss, self.target_counts(batch)[TERM])}

    def _teacher_logits(self, batch: Batch) -> Tensor:
        """Return the teacher's logits in the shape of the student's, padded with -inf."""
        logits = batch.labels[LOGITS]
        if self.task.SPEC.grouped and batch.group_ids is not None:  # (records, max rows of a record)
            return pad_by_record(logits, batch.group_ids.bincount())
        if POSITIONS not in batch.labels:
            return logits
        padded = logits.new_full((batch.input_ids.numel(), logits.shape[1]), -torch.inf)
        padded[batch.labels[POSITIONS]] = logits
        return padded.view(*batch.input_ids.shape, -1).transpose(1, 2)


def attach_teacher_logits(
    task: Task,
    teacher: Model,
    teacher_task: Task,
    records: Sequence[Record],
    encoded: Sequence[Sequence[Example]],
    update: Update | None = None,
) -> WithTeacher:
    """Add the teacher's logits to the labels of `encoded`, the rows of each record. Return the objective."""
    order: Any = [teacher_task.spec.labels.index(name) for name in task.spec.labels] or slice(None)
    if task.SPEC.output == "vector":
        _attach_vectors(task, teacher, teacher_task, encoded, update)
    elif task.SPEC.grouped:
        _attach_group_scores(teacher_task.compute_outputs(teacher, records, update), encoded)
    elif task.SPEC.output_per == "token":
        _attach_token_logits(task, teacher, teacher_task, [row for rows in encoded for row in rows], order, update)
    else:
        outputs = teacher_task.compute_outputs(teacher, records, update).record_means()[:, order]
        (teacher_mean, teacher_std), (mean, std) = teacher_task.spec.scale, task.spec.scale
        outputs = ((outputs * teacher_std + teacher_mean - mean) / std).astype(np.float32)
        for rows, logits in zip(encoded, outputs, strict=True):
            for row in rows:
                row.labels = {**row.labels, LOGITS: logits[None]}
    return WithTeacher(task)


def _attach_group_scores(outputs: Outputs, encoded: Sequence[Sequence[Example]]) -> None:
    """Attach a score to each row of a record. A row is identified by its texts."""
    scores: list[dict[tuple[str, ...], np.ndarray]] = [{} for _ in encoded]
    for example, value, n in zip(outputs.examples, outputs.values, outputs.record_index.tolist()):
        scores[n][example.texts] = np.array([value], np.float32)
    for record_scores, examples in zip(scores, encoded, strict=True):
        for row in {id(row): row for example in examples for row in (example, *example.grouped_rows)}.values():
            row.labels = {**row.labels, LOGITS: record_scores[row.texts]}


def _attach_vectors(
    task: Task, teacher: Model, teacher_task: Task, encoded: Sequence[Sequence[Example]], update: Update | None
) -> None:
    """Attach a vector to the first row of each text. Equal texts are computed once."""
    rows = [row for examples in encoded for example in examples for row in (example, *example.grouped_rows)]
    texts = [row.texts[0].removeprefix(task.task_state.get("prompt", "")) for row in rows]
    unique = list(dict.fromkeys(texts))
    predictions = teacher_task.predict(teacher, [{"text": text} for text in unique], update)
    vectors = {text: np.array([p["vector"]], np.float32) for text, p in zip(unique, predictions)}
    for row, text in zip(rows, texts):
        if row.labels[f"{task.SPEC.terms[0]}.role"][0] >= 0:  # the first window of a text
            row.labels = {**row.labels, LOGITS: vectors[text]}


@torch.inference_mode()
def _attach_token_logits(
    task: Task, teacher: Model, teacher_task: Task, rows: list[Example], order: Any, update: Update | None
) -> None:
    max_length, limit, done = max(map(len, rows)), teacher.config.max_positions, 0
    if max_length > limit and teacher.config.positions != "relative":
        raise UserError(
            f"rows have up to {max_length} tokens, but the teacher has {limit} positions", hint=f"--max-length {limit}"
        )
    teacher.eval()
    for group in batch_by_length([len(row) for row in rows]):
        batch = collate([rows[n] for n in group], task.tokenizer.pad).to(teacher.embedding.device)
        outputs = teacher_task.forward(teacher, batch).float().cpu().numpy()  # (B, T, C)
        for n, logits in zip(group, outputs):
            row, positions = rows[n], rows[n].labels.get(f"{task.SPEC.terms[0]}.positions")
            if positions is None:  # the loss reads the whole row
                row.labels = {**row.labels, LOGITS: logits[: len(row)].copy(), POSITIONS: np.arange(len(row))}
            else:
                row.labels = {**row.labels, LOGITS: logits[positions][:, order]}
        done += len(group)
        if update:
            update(done, len(rows), "")


def fingerprint(model: Model, task: Task) -> str:
    """Hash everything that determines a teacher's outputs: a resumed run needs the same teacher."""
    metadata = json.dumps([task.name, task.tokenizer.fingerprint(), task.task_state], sort_keys=True, default=str)
    digest = hashlib.blake2b(metadata.encode("utf-8", "surrogatepass"), digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def check_teacher(task: Task, teacher_task: Task) -> None:
    """Raise UserError if the teacher's task, labels or tokenizer do not match."""
    if task.name != teacher_task.name:
        raise UserError(
            f"the teacher's task is {teacher_task.name}, this one is {task.name}", expected=f"a {task.name} model"
        )
    if task.spec.output != teacher_task.spec.output:
        raise UserError(
            f"the teacher's output is {teacher_task.spec.output}, but the training file needs {task.spec.output}"
        )
    labels, teacher_labels = task.spec.labels, teacher_task.spec.labels
    if set(labels) != set(teacher_labels):
        missing, extra = sorted(set(labels) - set(teacher_labels)), sorted(set(teacher_labels) - set(labels))
        parts = [f"it does not have {', '.join(missing[:10])}"] if missing else []
        parts += [f"the training file does not have {', '.join(extra[:10])}"] if extra else []
        raise UserError(
            f"the teacher has other labels: {'; '.join(parts)}",
            expected="the same labels",
            hint=f"--labels {','.join(teacher_labels)}" if not missing else None,
        )
    if task.SPEC.output_per == "token" and teacher_task.tokenizer.fingerprint() != task.tokenizer.fingerprint():
        raise UserError(
            f"the teacher has another tokenizer, so its outputs per token cannot be used for the task {task.name}",
            expected="a teacher with the same tokenizer (tasks with one output per text accept any tokenizer)",
        )
