"""What every objective is: a corruption of rows, and terms of a loss.

`corrupt` is pure and runs on the CPU: same example, same address, same result. `outputs` gives, per term, logits and
targets at the positions that the loss reads, and no others: unless an objective says otherwise, those of one head at the labels
"<term>.positions", "<term>.targets" that `corrupt` made. Losses are sums with counts: the trainer divides each term once, by its
count over all micro-batches and processes, and weighs it.

An objective says what it needs of a model and a recipe (`check`) and why it cannot be added to others (`alone`), so that what cannot
work is refused before the text is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from unmask.batch import Batch, Example, StepConfig
from unmask.errors import UserError, nearest
from unmask.model.config import ModelConfig, preset, presets
from unmask.model.families import FAMILIES
from unmask.model.head_spec import HEADS
from unmask.recipe import Recipe
from unmask.registry import OBJECTIVES
from unmask.text.rows import Kind
from unmask.text.store import Split
from unmask.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from unmask.model.model import Model

Terms: TypeAlias = "dict[str, tuple[torch.Tensor, int]]"  # term → (sum over its items, number of items)
LogitsAndTargets: TypeAlias = "Mapping[str, tuple[torch.Tensor, torch.Tensor]]"  # term → (logits (N, C), targets (N,))


class Objective:
    name: str
    terms: tuple[str, ...] = ()  # names of its loss's terms
    heads: tuple[str, ...] = ()  # heads of the model that its loss reads; "lm|mlm" = the one that the family has
    weights: Mapping[str, float] = MappingProxyType({})  # of the terms in the loss, where not 1
    rows: Kind = "stream"  # which rows of the store it needs
    num_static_variants: int = 0  # how many different versions of an example there are; 0 = a new one each epoch
    standalone_reason: str = ""  # why it cannot be added to another objective; empty = it can
    needs_decoder: bool = False  # whether its loss is read at a decoder
    encoder_types: tuple[str, ...] = ("transformer",)  # the kinds of encoder that it trains
    logit_position: str = "same"  # where the logits of a token stand; "next" = at the token before it
    bidirectional: bool = True  # whether a token has to see what stands after it

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        self.recipe, self.tokenizer = recipe, tokenizer

    @classmethod
    def mismatch_reason(cls, config: ModelConfig) -> str:
        """Why this objective cannot train such a model; empty when it can."""
        if config.encoder not in cls.encoder_types:
            return (
                f"its encoder has to be of the kind {' or '.join(cls.encoder_types)}, and this one is {config.encoder}"
            )
        if cls.needs_decoder and not config.decoder_layers:
            return "it writes its answer with a decoder, and this model has none"
        if config.decoder_layers and not cls.needs_decoder:
            return "it reads the encoder alone, and this model answers with its decoder"
        if config.causal and cls.bidirectional:
            return "it needs both sides of a token, and this model sees only what stands before it"
        return ""

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        """Everything that can be wrong with a recipe for this objective, before the text is read."""
        unknown = [name for head in cls.heads for name in head.split("|") if name not in HEADS]
        if unknown:
            raise UserError(
                f"objective {cls.name} reads the head {unknown[0]!r}, which does not exist{nearest(unknown[0], list(HEADS))}",
                expected=", ".join(HEADS),
                hint="a new head is a line in HEADS of unmask/model/head_spec.py, or an entry point in unmask.heads",
            )
        reason = cls.mismatch_reason(config)
        if reason:
            fitting = [name for name in presets() if not cls.mismatch_reason(preset(name))]
            raise UserError(
                f"objective {cls.name} does not fit a {config.family} model: {reason}",
                expected=f"--preset {', '.join(fitting)}" if fitting else None,
                hint=f"--objective {config.default_objective}, which is {config.family}'s own",
            )
        if recipe.train.document_attention == "same_document" and (
            cls.needs_decoder or cls.rows != "stream" or config.encoder != "transformer"
        ):
            raise UserError(
                f"train.document_attention=same_document with the objective {cls.name} and a {config.family} model: only attention over "
                "rows that are runs of documents can keep them apart",
                hint="leave train.document_attention out",
            )

    def bind(self, config: ModelConfig) -> None:
        """What the objective reads from the model's config: which of its heads the family has."""
        self.heads = resolve_heads(self.heads, config)

    @classmethod
    def external_files(cls, recipe: Recipe) -> dict[str, list[Path]]:
        """Files outside the run that it reads, by the setting that names them: to go on, they must be as they were."""
        return {}

    def init_model(self, model: Model) -> list[str]:
        """Change a new model's first weights, and say how."""
        return []

    def check_corpus(self, splits: Sequence[Split]) -> list[str]:
        """What a person should know of these texts before the training; what cannot be trained on is refused."""
        return []

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        return example

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor | None:
        """Positions of the flattened batch whose hidden states `outputs` wants (N,); None = all of them, as (B, T, D)."""
        return batch.labels.get(f"{self.terms[0]}.positions")

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        """From the hidden states at `reads`: (N, D), or (B, T, D)."""
        (term,) = self.terms
        return {term: (model.logits(self.heads[0], hidden), batch.labels[f"{term}.targets"])}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        """Items per term, known before the forward pass."""
        return {term: len(batch.labels[f"{term}.targets"]) for term in self.terms}

    def loss(self, model: Model, batch: Batch) -> Terms:
        return self._terms(model, batch)

    def join_collectives(self, device: torch.device) -> None:
        """Called instead of `loss` while other processes compute theirs: for losses that exchange something."""

    def evaluate(self, model: Model, batch: Batch) -> Terms:
        """The loss's terms, and beside each the number of right answers."""
        return self._terms(model, batch, accuracy=True)

    def terms_from_hidden(self, model: Model, hidden: torch.Tensor, batch: Batch, accuracy: bool = False) -> Terms:
        """The terms of the loss from the hidden states at `reads`. Override it for a loss that is not cross-entropy."""
        return cross_entropy_terms(self.logits_and_targets(model, hidden, batch), accuracy)

    def _terms(self, model: Model, batch: Batch, accuracy: bool = False) -> Terms:
        return self.terms_from_hidden(model, self._hidden(model, batch), batch, accuracy)

    def _hidden(self, model: Model, batch: Batch) -> torch.Tensor:
        """The hidden states at `reads`."""
        return model.encode(batch, self.loss_positions(model, batch))


def resolve_heads(wanted: Sequence[str], config: ModelConfig) -> tuple[str, ...]:
    """The heads that a model is made with: of "lm|mlm" the one that its family has."""
    family = FAMILIES[config.family]
    choices = [head.split("|") for head in wanted]
    heads = tuple(next((head for head in c if head in family.heads), c[-1]) for c in choices)
    have = {*heads, *(need for head in heads for need in HEADS[head].requires)}
    classes = list(family.architectures.values())
    if not any(set(held) <= have for held in classes):  # BertModel has a pooler, and every folder opens somewhere
        heads += classes[-1]
    return heads


def cross_entropy_terms(outputs: LogitsAndTargets, accuracy: bool = False) -> Terms:
    """Logits and targets → the terms, with `accuracy` the number of right answers beside each."""
    terms: Terms = {}
    for name, (logits, targets) in outputs.items():
        assert logits.ndim == 2, (
            f"term {name}: cross-entropy needs logits (N, classes), but its head gave {tuple(logits.shape)}; "
            "choose another head, or compute the loss in `terms_from_hidden` (unmask/objectives/objective.py)"
        )
        terms[name] = (cross_entropy(logits, targets), len(targets))
        if accuracy:
            terms[f"{name}_accuracy"] = ((logits.argmax(-1) == targets).sum(), len(targets))
    return terms


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.cross_entropy(logits.float(), targets, reduction="sum")  # half precision would round the sum


class SumObjective(Objective):
    """The sum of several objectives over the same rows: BERT is SumObjective(MLM, NSP)."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, parts: list[Objective]):
        super().__init__(recipe, tokenizer)
        self.parts = parts
        self.name = "+".join(p.name for p in parts)
        self.terms = tuple(t for p in parts for t in p.terms)
        self.heads = tuple(dict.fromkeys(h for p in parts for h in p.heads))
        self.weights = {t: w for p in parts for t, w in p.weights.items()}
        self.rows = next((p.rows for p in parts if p.rows != "stream"), "stream")
        self.num_static_variants = max(p.num_static_variants for p in parts)

    def bind(self, config: ModelConfig) -> None:
        super().bind(config)
        for part in self.parts:
            part.bind(config)

    def init_model(self, model: Model) -> list[str]:
        return [text for part in self.parts for text in part.init_model(model)]

    def check_corpus(self, splits: Sequence[Split]) -> list[str]:
        return [text for part in self.parts for text in part.check_corpus(splits)]

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        for part in self.parts:
            example = part.corrupt(example, rng, phase)
        return example

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor | None:
        """The parts' positions, one after the other; everything when one part reads everything."""
        return _together(self._wanted(model, batch))

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        shares = _shares(hidden, self._wanted(model, batch))
        found = [p.logits_and_targets(model, share, batch) for p, share in zip(self.parts, shares, strict=True)]
        return {name: pair for outputs in found for name, pair in outputs.items()}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {name: n for p in self.parts for name, n in p.target_counts(batch).items()}

    def _wanted(self, model: Model, batch: Batch) -> list[torch.Tensor | None]:
        return [p.loss_positions(model, batch) for p in self.parts]

    def _terms(self, model: Model, batch: Batch, accuracy: bool = False) -> Terms:
        wanted = self._wanted(model, batch)  # asked for once, for the encoder and for the parts
        shares = _shares(model.encode(batch, _together(wanted)), wanted)
        terms: Terms = {}
        for part, share in zip(self.parts, shares, strict=True):
            terms.update(part.terms_from_hidden(model, share, batch, accuracy))
        return terms


def _shares(hidden: torch.Tensor, wanted: list[torch.Tensor | None]) -> Sequence[torch.Tensor]:
    """Each part's hidden states, out of those at all parts' positions (N, D), or everywhere (B, T, D)."""
    if hidden.ndim == 2:
        return hidden.split([len(w) for w in wanted if w is not None])
    from unmask.model.layers import select_positions

    return [select_positions(hidden, w) for w in wanted]


def _together(wanted: list[torch.Tensor | None]) -> torch.Tensor | None:
    import torch

    return None if any(w is None for w in wanted) else torch.cat(wanted)  # type: ignore[arg-type]


def build(recipe: Recipe, tokenizer: Tokenizer, config: ModelConfig | None = None) -> Objective:
    """`mlm`, `nsp` or a sum such as `mlm+nsp` → the objective, bound to the model's `config` where one is given."""
    if config:
        check(recipe, config)
    parts = [kind(recipe, tokenizer) for kind in parse(recipe.objective)]
    objective = parts[0] if len(parts) == 1 else SumObjective(recipe, tokenizer, parts)
    if config:
        objective.bind(config)
    return objective


def check(recipe: Recipe, config: ModelConfig) -> None:
    for kind in parse(recipe.objective):
        kind.check(recipe, config)


def parse(text: str) -> list[type[Objective]]:
    """The classes of `mlm+nsp`; what cannot be combined is refused with the reason."""
    names = text.split("+")
    once = list(dict.fromkeys(names))
    if names != once:
        raise UserError(f"objective {text} names a part twice", hint=f"--objective {'+'.join(once)}")
    kinds: list[type[Objective]] = [OBJECTIVES[name] for name in names]
    if len(kinds) == 1:
        return kinds
    for kind in kinds:
        if kind.standalone_reason:
            raise UserError(
                f"objective {text}: {kind.name} stands alone: {kind.standalone_reason}", hint=f"--objective {kind.name}"
            )
    special = [k for k in kinds if k.rows != "stream"]
    if len({k.rows for k in special}) > 1:
        raise UserError(
            f"objective {text}: {' and '.join(k.name for k in special)} need different rows: each says by itself "
            "what the second half is",
            hint=f"--objective {'+'.join(n for n in names if n not in {k.name for k in special[1:]})}",
        )
    terms = [t for k in kinds for t in k.terms]
    twice = next((t for t in terms if terms.count(t) > 1), None)
    if twice:
        both = [k.name for k in kinds if twice in k.terms]
        raise UserError(
            f"objective {text}: {' and '.join(both)} both have the term {twice}", hint=f"--objective {both[-1]}"
        )
    return kinds
