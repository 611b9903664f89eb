"""Term: the logits and the targets of one term of a task's loss. It knows the loss, and the distance to a teacher's logits.

| term      | logits (N, …)                  | targets (N, …)                  | loss                | of a teacher                         |
|-----------|--------------------------------|---------------------------------|---------------------|--------------------------------------|
| `Choice`  | (N, classes)                   | (N,) class                      | cross entropy       | KL at a temperature, × temperature²  |
| `Binary`  | (N,) or (N, labels)            | the same shape, 0 to 1          | BCE                 | the same, each label by itself       |
| `Number`  | (N, 1)                         | (N,)                            | squared error       | squared error                        |
| `Vectors` | (texts, D)                     | (N,) similarity of a pair       | in-batch, or CoSENT | KL over each one's cosines with the others |

Losses are sums: the trainer divides by the number of targets. What `SPEC.output` says a head's values mean decides the kind (`TERMS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.tasks import all_gather, contrastive

ABSENT = -1.0e4  # a logit that stands for -inf, where a divergence is computed: 0 · inf is no number


@dataclass(frozen=True, kw_only=True, eq=False)
class Term:
    logits: Tensor
    targets: Tensor
    weights: Tensor | None = None  # (N,) what each target counts, if not 1
    class_weights: Sequence[float] | None = None  # what each class counts, if not 1

    def loss(self) -> Tensor:
        """The sum over the targets."""
        return self._sum(self._loss("none" if self.weights is not None else "sum"))

    def distillation_loss(self, teacher_logits: Tensor, temperature: float) -> Tensor:
        """How far the logits are from a teacher's, summed; 0 where they are the same."""
        return self._sum(self._distance(teacher_logits, temperature, "none" if self.weights is not None else "sum"))

    def _loss(self, reduction: str) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._loss")

    def _distance(self, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
        return kl_divergence(self.logits.float(), teacher_logits, temperature, reduction)

    def _of_classes(self) -> Tensor | None:
        return None if self.class_weights is None else torch.tensor(self.class_weights, device=self.logits.device)

    def _sum(self, values: Tensor) -> Tensor:
        if self.weights is None:
            return values
        return (values.reshape(len(self.weights), -1).sum(-1) * self.weights).sum()


class CrossEntropy(Term):
    """One of several classes, rows of a record, or tokens: -inf where there is none."""

    def _loss(self, reduction: str) -> Tensor:
        return F.cross_entropy(self.logits.float(), self.targets, self._of_classes(), reduction=reduction)


class BinaryCrossEntropy(Term):
    """Each label, or each row, yes or no by itself."""

    def _loss(self, reduction: str) -> Tensor:
        logits = self.logits.float()
        targets = self.targets.to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, targets, self._of_classes(), reduction=reduction)

    def _distance(self, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
        """A label and its absence are a choice of two."""
        ours, theirs = (torch.stack([x, torch.zeros_like(x)], -1) for x in (self.logits.float(), teacher_logits))
        return kl_divergence(ours, theirs, temperature, reduction)


class SquaredError(Term):
    def _loss(self, reduction: str) -> Tensor:
        return F.mse_loss(self.logits.float().squeeze(-1), self.targets, reduction=reduction)

    def _distance(self, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
        return F.mse_loss(self.logits.float(), teacher_logits, reduction=reduction)


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrastive(Term):
    """Vectors of texts: those of a record follow each other, its anchor first. A target is the similarity of anchor and positive."""

    role: Tensor  # (texts,) what a text is to its record: 0 anchor, 1 positive, 2 negative
    key: Tensor  # (texts,) equal for equal texts
    temperature: float
    sizes: tuple[int, ...] = ()  # the loss is summed over the vector and its first so many numbers
    both: bool = False  # a positive has to find its anchor, too
    scored: bool = False  # pairs in the order of their targets; else each anchor has to find its positive

    def _loss(self, reduction: str) -> Tensor:
        record = (self.role == 0).cumsum(0) - 1
        total = self.logits.new_zeros(())
        for size in (self.logits.shape[1], *self.sizes):
            unit = F.normalize(self.logits[:, :size], dim=-1)
            if self.scored:
                pairs = unit[self.role == 0], unit[self.role == 1]
                total = total + contrastive.cosent_loss(*pairs, self.targets, self.temperature)
            else:
                total = total + contrastive.in_batch_loss(
                    unit, self.role, self.key, record, self.temperature, self.both
                )
        return total

    def _distance(self, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
        """KL over each one's cosines with the others, at the temperature of its own loss; the vectors may differ in width."""
        own = torch.eye(len(self.logits), dtype=torch.bool, device=self.logits.device)
        units = (F.normalize(vectors, dim=-1) for vectors in (self.logits, teacher_logits.float()))
        ours, theirs = ((unit @ unit.T / self.temperature).masked_fill(own, -torch.inf) for unit in units)
        return kl_divergence(ours, theirs, 1.0, "sum")

    def all_gathered(self) -> Self:
        """The same with the texts of all processes."""
        logits, targets, role, key = map(all_gather.gather, (self.logits, self.targets, self.role, self.key))
        return replace(self, logits=logits, targets=targets, role=role, key=key)

    @staticmethod
    def join_all_gather(device: torch.device) -> None:
        """What a process without a batch does while the others are in `gathered`."""
        none = torch.zeros(0, dtype=torch.int64, device=device)
        for own in (torch.zeros(0, 0, device=device), none.double(), none, none):
            all_gather.gather(own)


TERMS: dict[str, type[Term]] = {
    "choice": CrossEntropy,
    "span": CrossEntropy,
    "text": CrossEntropy,
    "binary": BinaryCrossEntropy,
    "number": SquaredError,
    "vector": Contrastive,
}


def kl_divergence(logits: Tensor, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
    """KL of the teacher's distribution, × temperature² (Hinton et al. 1503.02531)."""
    found = (x.masked_fill(x == -torch.inf, ABSENT) / temperature for x in (logits, teacher_logits))
    ours, theirs = (x.log_softmax(-1) for x in found)
    return temperature**2 * F.kl_div(ours, theirs, reduction=reduction, log_target=True)
