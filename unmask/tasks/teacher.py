"""Distillation of a fine-tuned model (`--teacher FOLDER`; Hinton et al. 1503.02531): a student learns a teacher's answers beside the labels.

| task                     | what the teacher says once, before the first step | the term `teacher`                         |
|--------------------------|---------------------------------------------------|--------------------------------------------|
| classify, one label      | logits of each record                             | KL at a temperature, × temperature²        |
| classify, several labels | the same                                          | the same for each label by itself          |
| classify, a number       | its number                                        | squared error                              |
| tag                      | logits at each word of a row                      | KL over tags                               |
| answer                   | logits of begin and end at each token of a row    | KL over the row's tokens, of both          |
| choose, rank             | a number for each choice or passage               | KL over those of a record that are compared |
| embed                    | a vector of each text                             | for each text of a batch, KL over the others: cosine / `embed.temperature` |

Half of the loss is the labels', half the teacher's; the temperature is `distill.temperature`. Only logits and vectors are kept. What a
teacher says of a record or a text fits any student, vectors of any size too; what it says of tokens fits one with the same tokenizer.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.batch import Batch, Example, Phase, collate, groups
from unmask.errors import UserError, quote
from unmask.labels.records import Record
from unmask.model.model import Model
from unmask.objectives.objective import WEIGHT, Objective, Terms
from unmask.recipe import Recipe
from unmask.tasks import contrastive
from unmask.tasks.classify.task import Classify
from unmask.tasks.embed.task import Embed
from unmask.tasks.rows import by_record
from unmask.tasks.task import Outputs, Task, Update

TERM, LOGITS, POSITIONS = "teacher", "teacher.logits", "teacher.positions"
SHARE = 0.5  # of the loss that is the teacher's
NEVER = -1.0e4  # the logit of what is not there
GROUPED = ("choose", "rank")  # tasks that compare the rows of a record
FITTING = ("classify", "tag", "answer", *GROUPED, "embed")


def check(recipe: Recipe, task: str) -> None:
    if not recipe.task.teacher:
        return
    if task not in FITTING:
        raise UserError(
            f"--teacher with the task {task}",
            valid=f"one of {', '.join(FITTING)}",
            fix=f"unmask predict {quote(Path(recipe.task.teacher))} FILE --json, then learn what it wrote: as `target` beside each text",
        )
    if task == "rank" and recipe.task.rank.loss == "point":
        raise UserError(
            "--teacher with task.rank.loss=point: its scores say which passage is better, not how relevant one is",
            fix="leave task.rank.loss out",
        )


class Taught(Objective):
    """A task whose rows carry what a teacher says of them."""

    def __init__(self, task: Task):
        super().__init__(task.recipe, task.tokenizer)
        self.task, self.heat = task, task.recipe.distill.temperature
        self.name, self.terms, self.variants = f"{task.name}+{TERM}", (*task.terms, TERM), task.variants
        hard = {term: (1 - SHARE) * task.weights.get(term, 1.0) for term in task.terms}
        self.weights = {**hard, TERM: SHARE}
        # A number is aimed at, several labels each have a chance of their own, all else is a choice.
        self.target = task.learnt.get("target", "one") if isinstance(task, Classify) else "one"

    def corrupt(self, example: Example, rng: np.random.Generator, phase: Phase) -> Example:
        return self.task.corrupt(example, rng, phase)

    def counts(self, batch: Batch) -> dict[str, int]:
        own, known = self.task.counts(batch), len(batch.labels[LOGITS])
        if self.task.name in GROUPED:
            known = own[self.task.name]
        return {**own, TERM: 2 * batch.rows if POSITIONS in batch.labels else known}

    def loss(self, model: Model, batch: Batch) -> Terms:
        if isinstance(self.task, Embed):
            vectors = contrastive.texts(self.task.forward(model, batch), batch.labels["embed.role"])
            far = contrastive.unlike(vectors, batch.labels[LOGITS], self.task.temperature)
            return {**self.task.near(vectors, batch), TERM: (far, self.counts(batch)[TERM])}
        hidden = model.encode(batch, self.task.reads(model, batch))
        outputs = self.task.outputs(model, hidden, batch)  # once: both terms are of the same draw of dropout
        weight = batch.labels.get(WEIGHT)
        terms, known = dict(self.task.compare(outputs, weight=weight)), batch.labels[LOGITS]
        ours = [logits.float() for logits, _ in outputs.values()]
        logits = ours[0]
        if self.task.name in GROUPED:  # (records, most rows of one)
            assert batch.groups is not None
            known = by_record(known, batch.groups.bincount(), NEVER)
            logits = logits.masked_fill(logits == -torch.inf, NEVER)
        if POSITIONS in batch.labels:  # begin and end, each a choice among a row's tokens: (B, 2, T)
            logits = torch.stack(ours, 1)
            said = torch.full((batch.ids.numel(), known.shape[1]), NEVER, device=known.device)
            said[batch.labels[POSITIONS]] = known
            known = said.view(*batch.ids.shape, -1).transpose(1, 2)
            logits = logits if batch.mask is None else logits.masked_fill(~batch.mask[:, None], NEVER)
        terms[TERM] = (self.apart(logits, known, weight), self.counts(batch)[TERM])
        return terms

    def apart(self, logits: Tensor, known: Tensor, rows: Tensor | None = None) -> Tensor:
        """How far the student is from the teacher, summed; 0 where they say the same. `rows` (B,): what each counts, if not 1."""
        how = "sum" if rows is None else "none"
        if self.target == "number":
            far = F.mse_loss(logits, known, reduction=how)
        else:
            if self.target == "several":  # a label and its absence are a choice of two
                logits, known = (torch.stack([x, torch.zeros_like(x)], -1) for x in (logits, known))
            ours, theirs = (logits / self.heat).log_softmax(-1), (known / self.heat).log_softmax(-1)
            far = self.heat**2 * F.kl_div(ours, theirs, reduction=how, log_target=True)
        return far if rows is None else (far.flatten(1).sum(-1) * rows).sum()


def teach(
    task: Task,
    teacher: Model,
    theirs: Task,
    records: Sequence[Record],
    encoded: Sequence[Sequence[Example]],
    update: Update | None = None,
) -> Taught:
    """The objective, after the teacher has spoken: `encoded`, the rows of each record, carry its logits."""
    order = [theirs.learnt["labels"].index(name) for name in task.learnt.get("labels", ())]
    if isinstance(task, Classify) and isinstance(theirs, Classify):
        said = theirs.pooled(theirs.compute(teacher, records, update))[:, order]
        if task.learnt.get("target") == "number":  # learnt in standard deviations from the mean
            (mean, sd), (own_mean, own_sd) = theirs.goal.scale, task.goal.scale  # type: ignore[attr-defined]
            said = (said * sd + mean - own_mean) / own_sd
        for rows, logits in zip(encoded, said.astype(np.float32), strict=True):
            for row in rows:
                row.labels = {**row.labels, LOGITS: logits[None]}
        return Taught(task)
    if isinstance(task, Embed) and isinstance(theirs, Embed):
        _of_texts(task, teacher, theirs, encoded, update)
        return Taught(task)
    if task.name in GROUPED:
        _of_groups(theirs.compute(teacher, records, update), encoded)
        return Taught(task)
    _of_tokens(task, teacher, theirs, [row for rows in encoded for row in rows], order, update)
    return Taught(task)


def _of_groups(said: Outputs, encoded: Sequence[Sequence[Example]]) -> None:
    """A number for each row of a record: `about` is what it is of, for teacher and student alike."""
    numbers: list[dict[Any, np.ndarray]] = [{} for _ in encoded]
    for example, value, n in zip(said.examples, said.values, said.record.tolist()):
        numbers[n][example.about] = np.array([value], np.float32)
    for known, heads in zip(numbers, encoded, strict=True):
        for row in {id(row): row for head in heads for row in (head, *head.more)}.values():
            row.labels = {**row.labels, LOGITS: known[row.about]}


def _of_texts(
    task: Embed, teacher: Model, theirs: Embed, encoded: Sequence[Sequence[Example]], update: Update | None
) -> None:
    """A vector for the first row of each text; equal texts are asked for once."""
    rows = [row for heads in encoded for head in heads for row in (head, *head.more)]
    texts = [row.about[1].removeprefix(task.learnt["prompt"]) for row in rows]
    asked = list(dict.fromkeys(texts))
    answers = theirs.answer(teacher, [{"text": text} for text in asked], update)
    known = {text: np.array([a["vector"]], np.float32) for text, a in zip(asked, answers)}
    for row, text in zip(rows, texts):
        if row.labels["embed.role"][0] >= 0:  # not a further window
            row.labels = {**row.labels, LOGITS: known[text]}


@torch.inference_mode()
def _of_tokens(
    task: Task, teacher: Model, theirs: Task, rows: list[Example], order: list[int], update: Update | None
) -> None:
    longest, most, done = max(map(len, rows)), teacher.config.max_positions, 0
    if longest > most and teacher.config.positions != "relative":
        raise UserError(f"rows of {longest} tokens, but the teacher has {most} positions", fix=f"--length {most}")
    teacher.eval()
    for group in groups([len(row) for row in rows]):
        batch = collate([rows[n] for n in group], task.tokenizer.pad).to(teacher.embedding.device)
        found = theirs.forward(teacher, batch).float().cpu().numpy()  # (B, T, C)
        for n, logits in zip(group, found):
            row, read = rows[n], rows[n].labels.get(f"{task.name}.positions")
            if read is None:  # the whole row is chosen from
                row.labels = {**row.labels, LOGITS: logits[: len(row)].copy(), POSITIONS: np.arange(len(row))}
            else:
                row.labels = {**row.labels, LOGITS: logits[read][:, order]}
        done += len(group)
        if update:
            update(done, len(rows), "")


def fingerprint(model: Model, task: Task) -> str:
    """Of everything that decides what a teacher says: a run that goes on has to find the same."""
    told = json.dumps([task.name, task.tokenizer.fingerprint(), task.learnt], sort_keys=True, default=str)
    found = hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def same(task: Task, theirs: Task) -> None:
    """Refuses a teacher that answers another question."""
    if task.name != theirs.name:
        raise UserError(f"the teacher's task is {theirs.name}, this one is {task.name}", valid=f"a {task.name} model")
    kinds = [t.learnt.get("target", "one") for t in (task, theirs)]
    if kinds[0] != kinds[1]:
        raise UserError(f"the teacher answers with target {kinds[1]}, the training file asks for {kinds[0]}")
    ours, known = (list(t.learnt.get("labels", ())) for t in (task, theirs))
    if set(ours) != set(known):
        lacks, more = sorted(set(ours) - set(known)), sorted(set(known) - set(ours))
        parts = [f"it does not know {', '.join(lacks[:10])}"] if lacks else []
        parts += [f"it knows {', '.join(more[:10])}, which the training file has not"] if more else []
        raise UserError(
            f"the teacher has other labels: {'; '.join(parts)}",
            valid="the same labels",
            fix=f"--labels {','.join(known)}" if not lacks else None,
        )
    if task.SPEC.reads == "tokens" and theirs.tokenizer.fingerprint() != task.tokenizer.fingerprint():
        raise UserError(
            f"the teacher has another tokenizer, and what it says of its tokens fits no token of this model's ({task.name})",
            valid="a teacher with the same tokenizer; with classify, any",
        )
