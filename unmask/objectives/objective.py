"""What every pre-training objective is: a corruption of rows, and terms of a loss.

`corrupt` is pure and runs on the CPU: same example, same address, same result. `outputs` gives, per term, logits and
targets at the positions that the loss reads, and no others. Losses are sums with counts: the trainer divides each term
once, by its count over all micro-batches and processes.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from unmask.batch import Batch, Example, Phase
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UserError
from unmask.model.layers import picked
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.registry import OBJECTIVES

Terms = dict[str, tuple[torch.Tensor, int]]  # term → (sum over its items, number of items)


class Objective:
    name: str
    terms: tuple[str, ...] = ()  # names of its loss's terms
    heads: tuple[str, ...] = ()  # heads of the model that its loss reads
    rows: Literal["stream", "pairs"] = "stream"  # which rows of the store it needs
    variants: int = 0  # how many different versions of an example there are; 0 = a new one each epoch

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        self.recipe, self.tokenizer = recipe, tokenizer

    def corrupt(self, example: Example, rng: np.random.Generator, phase: Phase) -> Example:
        return example

    def reads(self, model: Model, batch: Batch) -> torch.Tensor | None:
        """Positions of the flattened batch whose hidden states `outputs` wants (N,); None = all of them, as (B, T, D)."""
        return None

    def outputs(
        self, model: Model, hidden: torch.Tensor, batch: Batch
    ) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
        """Term → (logits (N, C), targets (N,)) from the hidden states at `reads`: (N, D), or (B, T, D)."""
        raise NotImplementedError(f"{type(self).__name__}.outputs")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Items per term, known before the forward pass."""
        raise NotImplementedError(f"{type(self).__name__}.counts")

    def loss(self, model: Model, batch: Batch) -> Terms:
        return {name: (_cross_entropy(*pair), len(pair[1])) for name, pair in self._forward(model, batch).items()}

    def evaluate(self, model: Model, batch: Batch) -> Terms:
        """The loss's terms, and beside each the number of right answers."""
        terms: Terms = {}
        for name, (logits, targets) in self._forward(model, batch).items():
            terms[name] = (_cross_entropy(logits, targets), len(targets))
            terms[f"{name}_accuracy"] = ((logits.argmax(-1) == targets).sum(), len(targets))
        return terms

    def _forward(self, model: Model, batch: Batch) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
        return self.outputs(model, model.encode(batch, self.reads(model, batch)), batch)


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float(), targets, reduction="sum")  # half precision would round the sum


class Joint(Objective):
    """The sum of several objectives over the same rows: BERT is Joint(MLM, NSP)."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, parts: list[Objective]):
        super().__init__(recipe, tokenizer)
        self.parts = parts
        self.name = "+".join(p.name for p in parts)
        self.terms = tuple(t for p in parts for t in p.terms)
        self.heads = tuple(dict.fromkeys(h for p in parts for h in p.heads))
        self.rows = "pairs" if any(p.rows == "pairs" for p in parts) else "stream"
        self.variants = max(p.variants for p in parts)

    def corrupt(self, example: Example, rng: np.random.Generator, phase: Phase) -> Example:
        for part in self.parts:
            example = part.corrupt(example, rng, phase)
        return example

    def reads(self, model: Model, batch: Batch) -> torch.Tensor | None:
        """The parts' positions, one after the other; everything when one part reads everything."""
        wanted = [p.reads(model, batch) for p in self.parts]
        return None if any(w is None for w in wanted) else torch.cat(wanted)  # type: ignore[arg-type]

    def outputs(
        self, model: Model, hidden: torch.Tensor, batch: Batch
    ) -> Mapping[str, tuple[torch.Tensor, torch.Tensor]]:
        wanted = [p.reads(model, batch) for p in self.parts]
        shares: Sequence[torch.Tensor]
        if hidden.ndim == 2:  # at the positions of `reads`
            shares = hidden.split([len(w) for w in wanted if w is not None])
        else:
            shares = [picked(hidden, w) for w in wanted]
        out: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for part, share in zip(self.parts, shares, strict=True):
            out.update(part.outputs(model, share, batch))
        return out

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: n for p in self.parts for name, n in p.counts(batch).items()}


def build(recipe: Recipe, tokenizer: Tokenizer) -> Objective:
    """`mlm`, `nsp` or a sum such as `mlm+nsp` → the objective."""
    names = recipe.objective.split("+")
    once = list(dict.fromkeys(names))
    if names != once:
        raise UserError(f"objective {recipe.objective} names a part twice", fix=f"--objective {'+'.join(once)}")
    parts = [OBJECTIVES[name](recipe, tokenizer) for name in names]
    return parts[0] if len(parts) == 1 else Joint(recipe, tokenizer, parts)
