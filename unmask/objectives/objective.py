"""Base class of pre-training objectives: a corruption of rows, and the terms of a loss.

`corrupt` is pure and runs on the CPU: the same example and random generator give the same result. `logits_and_targets` computes, for
each term, logits and targets at the loss positions only. By default these are the logits of one head at the labels "<term>.positions"
and "<term>.targets" that `corrupt` sets. Losses are sums with counts: the trainer divides each term by its count over all micro-batches
and processes, and multiplies it by its weight.

`check` raises UserError for a model or recipe that does not fit, and `standalone_reason` explains why an objective cannot be combined
with others. Both are tested before the corpus is read.
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
    terms: tuple[str, ...] = ()  # names of the loss terms
    heads: tuple[str, ...] = ()  # heads of the model that the loss reads; "lm|mlm" = the one that the family has
    weights: Mapping[str, float] = MappingProxyType({})  # term → weight, 1 unless given
    rows: Kind = "stream"  # kind of rows (`text/rows.py`)
    num_static_variants: int = 0  # number of corrupted versions of an example; 0 = a new one in each epoch
    standalone_reason: str = ""  # why it cannot be combined with another objective; "" = it can
    needs_decoder: bool = False  # whether the loss reads a decoder
    encoder_types: tuple[str, ...] = ("transformer",)  # supported encoders
    logit_position: str = "same"  # position of a token's logits; "next" = at the token before it
    bidirectional: bool = True  # whether a token must attend to later tokens

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        self.recipe, self.tokenizer = recipe, tokenizer

    @classmethod
    def mismatch_reason(cls, config: ModelConfig) -> str:
        """Return the reason why this objective cannot train such a model, or ""."""
        if config.encoder not in cls.encoder_types:
            return f"it needs an encoder of type {' or '.join(cls.encoder_types)}, and this one is {config.encoder}"
        if cls.needs_decoder and not config.decoder_layers:
            return "it needs a decoder, and this model has none"
        if config.decoder_layers and not cls.needs_decoder:
            return "it trains the encoder only, and this model predicts with its decoder"
        if config.causal and cls.bidirectional:
            return "it needs bidirectional attention, and this model is causal"
        return ""

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        """Raise UserError if the recipe or the model does not fit. Called before the corpus is read."""
        unknown = [name for head in cls.heads for name in head.split("|") if name not in HEADS]
        if unknown:
            raise UserError(
                f"objective {cls.name} reads the head {unknown[0]!r}, which does not exist{nearest(unknown[0], list(HEADS))}",
                expected=", ".join(HEADS),
                hint="define a new head in HEADS of unmask/model/head_spec.py, or as an entry point in unmask.heads",
            )
        reason = cls.mismatch_reason(config)
        if reason:
            fitting = [name for name in presets() if not cls.mismatch_reason(preset(name))]
            raise UserError(
                f"objective {cls.name} does not fit a {config.family} model: {reason}",
                expected=f"--preset {', '.join(fitting)}" if fitting else None,
                hint=f"--objective {config.default_objective}, the default for {config.family}",
            )
        if recipe.train.document_attention == "same_document" and (
            cls.needs_decoder or cls.rows != "stream" or config.encoder != "transformer"
        ):
            raise UserError(
                f"the objective {cls.name} with a {config.family} model does not support train.document_attention=same_document, which "
                "needs a transformer encoder and rows that are not pairs",
                hint="remove train.document_attention",
            )

    def bind(self, config: ModelConfig) -> None:
        """Resolve the heads for the model's family."""
        self.heads = resolve_heads(self.heads, config)

    @classmethod
    def external_files(cls, recipe: Recipe) -> dict[str, list[Path]]:
        """Return {setting: files} of the files outside the run that are read. A resumed run requires them unchanged."""
        return {}

    def init_model(self, model: Model) -> list[str]:
        """Change the initial weights of a new model. Return notes for the console."""
        return []

    def check_corpus(self, splits: Sequence[Split]) -> list[str]:
        """Return notes about the corpus for the console. Raise UserError if it cannot be used."""
        return []

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        return example

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor | None:
        """Return the positions (N,) of the flattened batch that the loss reads; None = all, with hidden states (B, T, D)."""
        return batch.labels.get(f"{self.terms[0]}.positions")

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        """Compute the terms' logits from the hidden states at `loss_positions`: (N, D), or (B, T, D)."""
        (term,) = self.terms
        return {term: (model.logits(self.heads[0], hidden), batch.labels[f"{term}.targets"])}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        """Return the number of targets per term, before the forward pass."""
        return {term: len(batch.labels[f"{term}.targets"]) for term in self.terms}

    def loss(self, model: Model, batch: Batch) -> Terms:
        return self._terms(model, batch)

    def join_collectives(self, device: torch.device) -> None:
        """Take part in the communication of `loss` in a process that has no batch while others do."""

    def evaluate(self, model: Model, batch: Batch) -> Terms:
        """Return the terms of the loss, and the number of correct predictions of each."""
        return self._terms(model, batch, accuracy=True)

    def terms_from_hidden(self, model: Model, hidden: torch.Tensor, batch: Batch, accuracy: bool = False) -> Terms:
        """Compute the terms of the loss from the hidden states at `loss_positions`. Override it for other losses than cross-entropy."""
        return cross_entropy_terms(self.logits_and_targets(model, hidden, batch), accuracy)

    def _terms(self, model: Model, batch: Batch, accuracy: bool = False) -> Terms:
        return self.terms_from_hidden(model, self._hidden(model, batch), batch, accuracy)

    def _hidden(self, model: Model, batch: Batch) -> torch.Tensor:
        """Compute the hidden states at `loss_positions`."""
        return model.encode(batch, self.loss_positions(model, batch))


def resolve_heads(wanted: Sequence[str], config: ModelConfig) -> tuple[str, ...]:
    """Return the heads of a model: "lm|mlm" becomes the one that its family has."""
    family = FAMILIES[config.family]
    choices = [head.split("|") for head in wanted]
    heads = tuple(next((head for head in names if head in family.heads), names[-1]) for names in choices)
    available = {*heads, *(need for head in heads for need in HEADS[head].requires)}
    classes = list(family.architectures.values())
    if not any(set(needed) <= available for needed in classes):
        heads += classes[-1]  # heads of the base class (BertModel's pooler), so that transformers can load the folder
    return heads


def cross_entropy_terms(outputs: LogitsAndTargets, accuracy: bool = False) -> Terms:
    """Return the terms of logits and targets; with `accuracy`, also the number of correct predictions of each."""
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

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        for part in self.parts:
            example = part.corrupt(example, rng, step_config)
        return example

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor | None:
        """Return the concatenated positions of the parts, or None if one part reads all positions."""
        return _concatenate(self._part_positions(model, batch))

    def logits_and_targets(self, model: Model, hidden: torch.Tensor, batch: Batch) -> LogitsAndTargets:
        split = _split_hidden(hidden, self._part_positions(model, batch))
        outputs = [
            part.logits_and_targets(model, states, batch) for part, states in zip(self.parts, split, strict=True)
        ]
        return {name: pair for terms in outputs for name, pair in terms.items()}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {name: n for p in self.parts for name, n in p.target_counts(batch).items()}

    def _part_positions(self, model: Model, batch: Batch) -> list[torch.Tensor | None]:
        return [part.loss_positions(model, batch) for part in self.parts]

    def _terms(self, model: Model, batch: Batch, accuracy: bool = False) -> Terms:
        positions = self._part_positions(model, batch)  # computed once, for the encoder and for the parts
        split = _split_hidden(model.encode(batch, _concatenate(positions)), positions)
        terms: Terms = {}
        for part, states in zip(self.parts, split, strict=True):
            terms.update(part.terms_from_hidden(model, states, batch, accuracy))
        return terms


def _split_hidden(hidden: torch.Tensor, positions: list[torch.Tensor | None]) -> Sequence[torch.Tensor]:
    """Return the hidden states of each part, from those at all parts' positions (N, D), or at all positions (B, T, D)."""
    if hidden.ndim == 2:
        return hidden.split([len(p) for p in positions if p is not None])
    from unmask.model.layers import select_positions

    return [select_positions(hidden, p) for p in positions]


def _concatenate(positions: list[torch.Tensor | None]) -> torch.Tensor | None:
    import torch

    return None if any(p is None for p in positions) else torch.cat(positions)  # type: ignore[arg-type]


def build(recipe: Recipe, tokenizer: Tokenizer, config: ModelConfig | None = None) -> Objective:
    """Build the objective of a name such as `mlm` or `mlm+nsp`, and bind it to the model's `config` if given."""
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
    """Return the classes of `mlm+nsp`. Raise UserError with the reason if they cannot be combined."""
    names = text.split("+")
    unique = list(dict.fromkeys(names))
    if names != unique:
        raise UserError(f"objective {text} names a part twice", hint=f"--objective {'+'.join(unique)}")
    kinds: list[type[Objective]] = [OBJECTIVES[name] for name in names]
    if len(kinds) == 1:
        return kinds
    for kind in kinds:
        if kind.standalone_reason:
            raise UserError(
                f"objective {text}: {kind.name} cannot be combined with others: {kind.standalone_reason}",
                hint=f"--objective {kind.name}",
            )
    special = [k for k in kinds if k.rows != "stream"]
    if len({k.rows for k in special}) > 1:
        raise UserError(
            f"objective {text}: {' and '.join(k.name for k in special)} cannot be combined, because they need different "
            "pairs of segments",
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
