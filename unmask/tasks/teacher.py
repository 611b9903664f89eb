"""Distillation of a fine-tuned model (`--teacher FOLDER`; Hinton et al. 1503.02531): a student learns a teacher's answers beside the labels.

| what the task gives (its spec) | what the teacher says once, before the first step | the term `teacher` (see terms.py)            |
|--------------------------------|---------------------------------------------------|----------------------------------------------|
| values of a row                | logits of each record, or its number              | KL at a temperature; of a number squared error |
| values of tokens               | logits at each position that is read, or everywhere | KL over tags, or over the row's tokens     |
| rows that are compared         | a number for each choice or passage               | KL over those of a record that are compared  |
| a vector                       | a vector of each text                             | KL over the other texts of the batch         |

Half of the loss is the labels', half the teacher's; the temperature is `distill.temperature`. Only logits and vectors are kept. What a
teacher says of a record or a text fits any student, vectors of any size too; what it says of tokens fits one with the same tokenizer.
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
TEACHER_WEIGHT = 0.5  # of the loss that is the teacher's


def check(recipe: Recipe, spec: TaskSpec) -> None:
    if recipe.task.teacher and not spec.training.distillable:
        told = f"unmask predict {quote(Path(recipe.task.teacher))} FILE --json, then learn what it wrote: as `target` beside each text"
        raise UserError(
            f"--teacher with the task {spec.name}",
            expected=f"one of {', '.join(tasks_with('distillable'))}",
            hint=told if spec.output == "text" else "leave it out",
        )


class WithTeacher(TaskObjective):
    """A task whose rows carry what a teacher says of them."""

    def __init__(self, task: Task):
        super().__init__(task)
        hard = {term: (1 - TEACHER_WEIGHT) * self.weights.get(term, 1.0) for term in self.terms}
        self.name, self.terms, self.weights = f"{self.name}+{TERM}", (*self.terms, TERM), {**hard, TERM: TEACHER_WEIGHT}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        own = super().target_counts(batch)
        return {**own, TERM: len(batch.labels[LOGITS]) if self.task.SPEC.output == "vector" else sum(own.values())}

    def sums(self, terms: Mapping[str, Term], batch: Batch) -> Terms:
        whole, *others = terms.values()
        if others:  # begin and end of a span: (B, terms, T)
            whole = replace(whole, logits=torch.stack([term.logits for term in terms.values()], 1))
        apart = whole.distillation_loss(self._known(batch), self.recipe.distill.temperature)
        return {**super().sums(terms, batch), TERM: (apart, self.target_counts(batch)[TERM])}

    def _known(self, batch: Batch) -> Tensor:
        """The teacher's logits; -inf where there is nothing to choose."""
        known = batch.labels[LOGITS]
        if self.task.SPEC.grouped and batch.group_ids is not None:  # (records, most rows of one)
            return pad_by_record(known, batch.group_ids.bincount())
        if POSITIONS not in batch.labels:
            return known
        everywhere = known.new_full((batch.input_ids.numel(), known.shape[1]), -torch.inf)
        everywhere[batch.labels[POSITIONS]] = known
        return everywhere.view(*batch.input_ids.shape, -1).transpose(1, 2)


def attach_teacher_logits(
    task: Task,
    teacher: Model,
    teacher_task: Task,
    records: Sequence[Record],
    encoded: Sequence[Sequence[Example]],
    update: Update | None = None,
) -> WithTeacher:
    """The objective, after the teacher has spoken: `encoded`, the rows of each record, carry its logits."""
    order: Any = [teacher_task.spec.labels.index(name) for name in task.spec.labels] or slice(None)
    if task.SPEC.output == "vector":
        _of_texts(task, teacher, teacher_task, encoded, update)
    elif task.SPEC.grouped:
        _of_groups(teacher_task.compute_outputs(teacher, records, update), encoded)
    elif task.SPEC.output_per == "token":
        _of_tokens(task, teacher, teacher_task, [row for rows in encoded for row in rows], order, update)
    else:
        said = teacher_task.compute_outputs(teacher, records, update).record_means()[:, order]
        (mean, sd), (own_mean, own_sd) = teacher_task.spec.scale, task.spec.scale
        for rows, logits in zip(encoded, ((said * sd + mean - own_mean) / own_sd).astype(np.float32), strict=True):
            for row in rows:
                row.labels = {**row.labels, LOGITS: logits[None]}
    return WithTeacher(task)


def _of_groups(said: Outputs, encoded: Sequence[Sequence[Example]]) -> None:
    """A number for each row of a record, found again by the texts that it was made from."""
    numbers: list[dict[tuple[str, ...], np.ndarray]] = [{} for _ in encoded]
    for example, value, n in zip(said.examples, said.values, said.record_index.tolist()):
        numbers[n][example.texts] = np.array([value], np.float32)
    for known, heads in zip(numbers, encoded, strict=True):
        for row in {id(row): row for head in heads for row in (head, *head.grouped_rows)}.values():
            row.labels = {**row.labels, LOGITS: known[row.texts]}


def _of_texts(
    task: Task, teacher: Model, teacher_task: Task, encoded: Sequence[Sequence[Example]], update: Update | None
) -> None:
    """A vector for the first row of each text; equal texts are asked for once."""
    rows = [row for heads in encoded for head in heads for row in (head, *head.grouped_rows)]
    texts = [row.texts[0].removeprefix(task.task_state.get("prompt", "")) for row in rows]
    asked = list(dict.fromkeys(texts))
    predictions = teacher_task.predict(teacher, [{"text": text} for text in asked], update)
    known = {text: np.array([a["vector"]], np.float32) for text, a in zip(asked, predictions)}
    for row, text in zip(rows, texts):
        if row.labels[f"{task.SPEC.terms[0]}.role"][0] >= 0:  # not a further window
            row.labels = {**row.labels, LOGITS: known[text]}


@torch.inference_mode()
def _of_tokens(
    task: Task, teacher: Model, teacher_task: Task, rows: list[Example], order: Any, update: Update | None
) -> None:
    longest, most, done = max(map(len, rows)), teacher.config.max_positions, 0
    if longest > most and teacher.config.positions != "relative":
        raise UserError(f"rows of {longest} tokens, but the teacher has {most} positions", hint=f"--max-length {most}")
    teacher.eval()
    for group in batch_by_length([len(row) for row in rows]):
        batch = collate([rows[n] for n in group], task.tokenizer.pad).to(teacher.embedding.device)
        found = teacher_task.forward(teacher, batch).float().cpu().numpy()  # (B, T, C)
        for n, logits in zip(group, found):
            row, read = rows[n], rows[n].labels.get(f"{task.SPEC.terms[0]}.positions")
            if read is None:  # the whole row is chosen from
                row.labels = {**row.labels, LOGITS: logits[: len(row)].copy(), POSITIONS: np.arange(len(row))}
            else:
                row.labels = {**row.labels, LOGITS: logits[read][:, order]}
        done += len(group)
        if update:
            update(done, len(rows), "")


def fingerprint(model: Model, task: Task) -> str:
    """Of everything that decides what a teacher says: a run that goes on has to find the same."""
    told = json.dumps([task.name, task.tokenizer.fingerprint(), task.task_state], sort_keys=True, default=str)
    found = hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def check_teacher(task: Task, teacher_task: Task) -> None:
    """Refuses a teacher that answers another question."""
    if task.name != teacher_task.name:
        raise UserError(
            f"the teacher's task is {teacher_task.name}, this one is {task.name}", expected=f"a {task.name} model"
        )
    if task.spec.output != teacher_task.spec.output:
        raise UserError(
            f"the teacher's output is {teacher_task.spec.output}, the training file asks for {task.spec.output}"
        )
    ours, known = task.spec.labels, teacher_task.spec.labels
    if set(ours) != set(known):
        lacks, more = sorted(set(ours) - set(known)), sorted(set(known) - set(ours))
        parts = [f"it does not know {', '.join(lacks[:10])}"] if lacks else []
        parts += [f"it knows {', '.join(more[:10])}, which the training file has not"] if more else []
        raise UserError(
            f"the teacher has other labels: {'; '.join(parts)}",
            expected="the same labels",
            hint=f"--labels {','.join(known)}" if not lacks else None,
        )
    if task.SPEC.output_per == "token" and teacher_task.tokenizer.fingerprint() != task.tokenizer.fingerprint():
        raise UserError(
            f"the teacher has another tokenizer, and what it says of its tokens fits no token of this model's ({task.name})",
            expected="a teacher with the same tokenizer; any, with a task that reads whole texts",
        )
