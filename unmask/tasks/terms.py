"""Term: logits and targets of one term of a task's loss. It computes the loss, and the distillation loss for a teacher's logits.

| term                 | logits              | targets                   | loss                | distillation loss                    |
|----------------------|---------------------|---------------------------|---------------------|--------------------------------------|
| `CrossEntropy`       | (N, classes)        | (N,) class                | cross-entropy       | KL at a temperature, × temperature²  |
| `BinaryCrossEntropy` | (N,) or (N, labels) | the same shape, 0 to 1    | BCE                 | the same, each label independently   |
| `SquaredError`       | (N, 1)              | (N,)                      | squared error       | squared error                        |
| `Contrastive`        | (texts, D)          | (N,) similarity of a pair | in-batch, or CoSENT | KL over each text's cosines with the others |

Losses are sums: the trainer divides by the number of targets. `TERMS` maps `SPEC.output` to the class of the term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.tasks import all_gather, contrastive

PADDING_LOGIT = -1.0e4  # replaces -inf in a KL divergence, where 0 · inf would be NaN


@dataclass(frozen=True, kw_only=True, eq=False)
class Term:
    logits: Tensor
    targets: Tensor
    weights: Tensor | None = None  # (N,) weights of the targets, if not 1
    class_weights: Sequence[float] | None = None  # weights of the classes, if not 1

    def loss(self) -> Tensor:
        """Return the sum over the targets."""
        return self._sum(self._loss("none" if self.weights is not None else "sum"))

    def distillation_loss(self, teacher_logits: Tensor, temperature: float) -> Tensor:
        """Return the summed distance to the teacher's logits; 0 if they are the same."""
        return self._sum(self._distance(teacher_logits, temperature, "none" if self.weights is not None else "sum"))

    def _loss(self, reduction: str) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._loss")

    def _distance(self, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
        return kl_divergence(self.logits.float(), teacher_logits, temperature, reduction)

    def _class_weights(self) -> Tensor | None:
        return None if self.class_weights is None else torch.tensor(self.class_weights, device=self.logits.device)

    def _sum(self, values: Tensor) -> Tensor:
        if self.weights is None:
            return values
        return (values.reshape(len(self.weights), -1).sum(-1) * self.weights).sum()


class CrossEntropy(Term):
    """One choice among classes, rows of a record, or tokens. Padding logits are -inf."""

    def _loss(self, reduction: str) -> Tensor:
        return F.cross_entropy(self.logits.float(), self.targets, self._class_weights(), reduction=reduction)


class BinaryCrossEntropy(Term):
    """An independent yes or no for each label or row."""

    def _loss(self, reduction: str) -> Tensor:
        logits = self.logits.float()
        targets = self.targets.to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, targets, self._class_weights(), reduction=reduction)

    def _distance(self, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
        """Treat each label as two classes, present and absent."""
        student, teacher = (torch.stack([x, torch.zeros_like(x)], -1) for x in (self.logits.float(), teacher_logits))
        return kl_divergence(student, teacher, temperature, reduction)


class SquaredError(Term):
    def _loss(self, reduction: str) -> Tensor:
        return F.mse_loss(self.logits.float().squeeze(-1), self.targets, reduction=reduction)

    def _distance(self, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
        return F.mse_loss(self.logits.float(), teacher_logits, reduction=reduction)


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrastive(Term):
    """Vectors of texts: the anchor of a record, followed by its other texts. A target is the similarity of anchor and positive."""

    role: Tensor  # (texts,) role of a text in its record: 0 anchor, 1 positive, 2 negative
    key: Tensor  # (texts,) equal for equal texts
    temperature: float
    sizes: tuple[int, ...] = ()  # Matryoshka: also add the loss of the first `size` dimensions
    both: bool = False  # also train each positive to retrieve its anchor
    scored: bool = False  # order the pairs by their targets (CoSENT); else each anchor retrieves its positive

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
        """Compare each text's cosines with the others, at the temperature of the loss. Teacher vectors may have another size."""
        diagonal = torch.eye(len(self.logits), dtype=torch.bool, device=self.logits.device)
        units = (F.normalize(vectors, dim=-1) for vectors in (self.logits, teacher_logits.float()))
        student, teacher = ((unit @ unit.T / self.temperature).masked_fill(diagonal, -torch.inf) for unit in units)
        return kl_divergence(student, teacher, 1.0, "sum")

    def all_gathered(self) -> Self:
        """Return the term with the texts of all processes."""
        logits, targets, role, key = map(all_gather.gather, (self.logits, self.targets, self.role, self.key))
        return replace(self, logits=logits, targets=targets, role=role, key=key)

    @staticmethod
    def join_all_gather(device: torch.device) -> None:
        """Take part in the communication of `all_gathered` in a process without a batch."""
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        for tensor in (torch.zeros(0, 0, device=device), empty.double(), empty, empty):
            all_gather.gather(tensor)


TERMS: dict[str, type[Term]] = {
    "choice": CrossEntropy,
    "span": CrossEntropy,
    "text": CrossEntropy,
    "binary": BinaryCrossEntropy,
    "number": SquaredError,
    "vector": Contrastive,
}


def kl_divergence(logits: Tensor, teacher_logits: Tensor, temperature: float, reduction: str) -> Tensor:
    """Return the KL divergence from the teacher's distribution, × temperature² (Hinton et al. 1503.02531)."""
    scaled = (x.masked_fill(x == -torch.inf, PADDING_LOGIT) / temperature for x in (logits, teacher_logits))
    student, teacher = (x.log_softmax(-1) for x in scaled)
    return temperature**2 * F.kl_div(student, teacher, reduction=reduction, log_target=True)
