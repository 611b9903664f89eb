"""Task: how records become rows, rows a loss and answers, and answers scores.

A user's file becomes records (`SPEC.form`), a record becomes rows (`rows`), what the model gives for the rows becomes an answer
(`decode`, numpy alone, so that an exported model answers without torch), and answers are compared with records (`score`).

What a task has to remember beside its settings, because it was learnt from the training records (`study`: the labels) or from
the dev set (`tune`: thresholds, a temperature), is `learnt`: plain values that go into the folder's unmask.json.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast, final, get_args

import numpy as np

from unmask.batch import Batch, Example, Phase, groups
from unmask.errors import UserError
from unmask.labels.fields import fixed_labels
from unmask.labels.records import Finding, Record
from unmask.model.config import ModelConfig
from unmask.objectives.objective import heads_of
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks.explain import Target, usual_target
from unmask.tasks.on_model import check_fit
from unmask.tasks.rows import WEIGHTS, by_record
from unmask.tasks.spec import Bound, TaskSpec
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import Windowing

if TYPE_CHECKING:
    import torch

    from unmask.model.model import Model
    from unmask.tasks.terms import Term

Answer = dict[str, Any]
Records = Sequence[Record]
Update = Callable[[float, float, str], None]  # done, total, what is going on
PART = 2000  # records whose rows and logits are held at a time
SHORTEST = 8  # tokens per row, special ones included
LONGEST = 512  # tokens per row unless more is asked for: attention costs their square


class Network(Protocol):
    """What computes an answer: a Model, or an engine of `inference/`, which may do without torch."""

    config: ModelConfig

    def run(self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int) -> list[np.ndarray]:
        """A task's forward pass over one group of rows: values per row, where padding is too."""
        ...


@dataclass
class Outputs:
    """What a model gave for every row of some records."""

    values: list[np.ndarray]  # per row
    examples: list[Example]
    record: np.ndarray  # (rows,) the number of the record that each is of

    def means(self) -> np.ndarray:
        """(records, …): of a record in several windows the mean of their values."""
        values = np.stack(self.values).astype(np.float64)
        sums = np.zeros((int(self.record.max()) + 1, *values.shape[1:]))
        np.add.at(sums, self.record, values)
        return (sums.T / np.bincount(self.record)).T


@dataclass(frozen=True)
class Given:
    """What `study` may look at beside the records."""

    recipe: Recipe
    config: ModelConfig  # of the model that the run begins with
    tokenizer: Tokenizer
    others: Sequence[Record] = ()  # of dev and test: nothing is learnt from them, but something may be wrong there


@dataclass(frozen=True)
class Study:
    """What training records say before the first step."""

    learnt: dict[str, Any]  # what the task has to remember
    strata: Sequence[str] = ()  # of each record, what a dev set should have its share of; none: all are alike
    text: str = ""  # the records in a line: labels with their counts
    findings: Sequence[Finding] = ()


def row_length(recipe: Recipe, config: ModelConfig) -> int:
    """Tokens per row: --length, or a default."""
    most = config.max_positions
    if recipe.task.length and not SHORTEST <= recipe.task.length <= most:
        what = f"the model has {most:,} positions" if recipe.task.length > most else "no room for a text"
        raise UserError(f"--length {recipe.task.length}: {what}", expected=f"{SHORTEST} to {most:,}")
    return recipe.task.length or min(LONGEST, most)


class Task:
    SPEC: ClassVar[TaskSpec]
    name: str
    heads: tuple[str, ...]  # of the model; "lm|mlm" = the one that its family has, known when it is bound
    config: ModelConfig | None = None  # of the model that it is bound to

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "SPEC" in vars(cls):
            cls.name, cls.heads = cls.SPEC.name, cls.SPEC.heads

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, learnt: Mapping[str, Any] | None = None):
        self.recipe, self.tokenizer = recipe, tokenizer
        self.settings: TaskRecipe = recipe.task
        self.learnt: dict[str, Any] = dict(learnt or {})

    @cached_property
    def windowing(self) -> Windowing:
        """How records become rows of `learnt["length"]` tokens, and what happened to those that are longer."""
        return Windowing(self.tokenizer, int(self.learnt["length"]), self.settings.long, self.spec.cut)

    @classmethod
    def specify(cls, settings: TaskRecipe, learnt: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        """SPEC bound to one model: what follows from its settings, from what was learnt, and from its config."""
        labels = tuple(learnt.get("labels", ()))
        return cls.SPEC.bind(labels=labels, config={"labels": labels} if labels else {})

    @property
    def spec(self) -> TaskSpec:
        """What `specify` says, with the pooling that the settings ask for."""
        spec, pooling = self.specify(self.settings, self.learnt, self.config), self.settings.pooling
        if spec.bound is None or spec.training.pooling != "head" or pooling == "auto":
            return spec
        return replace(spec, bound=replace(spec.bound, config={"pooling": pooling, **spec.bound.config}))

    @final
    def bind(self, config: ModelConfig) -> None:
        """Told the config of the model."""
        self.config, self.heads = config, heads_of(self.heads, config)

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        """Refuses what cannot work, before weights are read."""
        check_fit(cls.SPEC, recipe, config)

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def study(cls, given: Given, records: Sequence[Record], known: Mapping[str, Any] | None = None) -> Study:
        """What the training records say. First of all of them; then, with what is `known` from there, of those that the dev set left."""
        if known is not None:
            return Study(dict(known))
        labels = fixed_labels(cls.SPEC)
        return Study({"length": row_length(given.recipe, given.config)} | ({"labels": list(labels)} if labels else {}))

    @classmethod
    def from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        """What a model of this task in another program's folder has learnt; None: the folder is of something else."""
        return {"length": min(LONGEST, config.max_positions)} if cls.name in heads else None

    # --------------------------------------------------------------------------------------------------- loss

    def outputs(self, model: Model, batch: Batch) -> dict[str, Term]:
        """The terms of the loss, from one forward pass: here one, of one head.

        It reads the positions that `rows` has given as "<term>.positions" (in a decoder "<term>.outputs"), else what the head reads of a row.
        """
        from unmask.tasks.terms import TERMS, Binary

        (term,), head, kind = self.SPEC.terms, self.heads[0], TERMS[self.spec.output]
        at, written = (batch.labels.get(f"{term}.{name}") for name in ("positions", "outputs"))
        hidden = model.encode(batch, at if at is not None or written is not None else model.places(head, batch))
        logits = model.logits(head, hidden if written is None else model.decode(batch, hidden, written), batch.mask)
        if self.SPEC.grouped:
            logits = logits.flatten().float()
            if batch.groups is None:
                kind = Binary  # each row by itself
            else:
                logits = by_record(logits, batch.groups.bincount())
        return {
            term: kind(
                logits=logits,
                targets=batch.labels[f"{term}.targets"],
                weights=batch.labels.get(WEIGHTS),
                class_weights=self.learnt.get("weights"),
            )
        }

    # ------------------------------------------------------------------------------------------------ answers

    def rows(self, record: Record, labelled: bool = True) -> list[Example]:
        raise NotImplementedError(f"{type(self).__name__}.rows")

    def forward(self, model: Model, batch: Batch) -> torch.Tensor:
        """(B, …): what the head gives for each row, or (B, T, …) for each of its tokens; (B,) where rows are compared."""
        values = model.read(self.heads[0], batch)
        return values.flatten() if self.SPEC.grouped else values

    @final
    def compute(self, model: Network, records: Sequence[Record], update: Update | None = None) -> Outputs:
        """Rows of like length are computed together; the order of the records stays. What writes text gives its tokens."""
        encoded = [self.rows(record, labelled=False) for record in records]
        examples = [e for several in encoded for e in several]
        record = np.repeat(np.arange(len(encoded)), [len(several) for several in encoded])
        if self.SPEC.output == "text":
            from unmask.model.generate import generate

            prompts, network = [e.ids.tolist() for e in examples], cast("Any", model)
            made = generate(network, prompts, update=update, **self.bound.generation)
            return Outputs([np.array(new, np.int64) for new in made], examples, record)
        values: list[np.ndarray] = [np.empty(0)] * len(examples)
        done = 0
        for group in groups([len(e) for e in examples]):
            found = model.run(self.forward, [examples[n] for n in group], self.tokenizer.pad)
            for n, row in zip(group, found):
                values[n] = row[: len(examples[n])] if self.SPEC.reads == "tokens" else row
            done += len(group)
            if update:
                update(done, len(examples), "")
        return Outputs(values, examples, record)

    def decode(self, outputs: Outputs) -> list[Answer]:
        """An answer per record."""
        raise NotImplementedError(f"{type(self).__name__}.decode")

    @final
    def answer(self, model: Network, records: Sequence[Record], update: Update | None = None) -> list[Answer]:
        """In the order of the records; some at a time, since the logits of a whole file may not fit into memory."""
        size = len(records) if self._together(records) else PART
        answers: list[Answer] = []
        for start in range(0, len(records), max(1, size)):
            part = records[start : start + size]

            def told(done: float, total: float, what: str, start: int = start, count: int = len(part)) -> None:
                assert update is not None
                update(start + count * done / total, len(records), what)

            answers += self.decode(self.compute(model, part, told if update else None))
        return answers

    def _together(self, records: Sequence[Record]) -> bool:
        """Whether an answer depends on the other records (a place among all, a number by which chance is addressed): all are computed at once."""
        return self.SPEC.output == "text" or any(self.SPEC.ranked_among in record for record in records)

    def tune(self, outputs: Outputs, records: Sequence[Record]) -> dict[str, Any]:
        """What a dev set teaches and a loss does not (thresholds, a temperature): additions to `learnt`."""
        return {}

    @final
    def for_score(self, model: Network, answers: Sequence[Answer], records: Sequence[Record]) -> list[Answer]:
        """The answers with whatever else a final score needs of the model (`SPEC.for_score`): not asked while training."""
        if not self.SPEC.for_score:
            return list(answers)
        return EntryPoint(self.name, self.SPEC.for_score, "").load()(self, model, answers, records)

    def score(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, float]:
        raise NotImplementedError(f"{type(self).__name__}.score")

    def details(self, answers: Sequence[Answer], records: Sequence[Record]) -> dict[str, Any]:
        """What a report shows beside the scores, as plain values (see report/page.py)."""
        return {}

    @final
    def reading(self, long: str | None) -> Self:
        """The same task with another `long`: what becomes of a text that is longer than a row."""
        valid = get_args(TaskRecipe.model_fields["long"].annotation)
        if long is not None and long not in valid:
            raise UserError(f"long {long!r}", expected=", ".join(valid))
        other = copy.copy(self)
        other.settings = self.settings.model_copy(update={} if long is None else {"long": long})
        vars(other).pop("windowing", None)
        return other

    # ------------------------------------------------------------------------------------------------ its model

    @property
    def bound(self) -> Bound:
        """What the spec says of this model."""
        bound = self.spec.bound
        assert bound is not None
        return bound

    def explain_target(self, outputs: Outputs, record: Record, target: str | None) -> Target:
        """What is explained of the prediction for one record: `target`, or the model's own choice."""
        return usual_target(self, outputs, record, target)

    @final
    def at_full_length(self, length: int) -> Self:
        """The same task with rows of `length`, which refuses a longer text: what is explained is one row."""
        other = self.reading("refuse")
        other.learnt = self.learnt | {"length": length}
        return other


class RecordRows:
    """A list of examples with the face of `text.rows.Rows`: what the loader reads."""

    def __init__(self, examples: Sequence[Example], pad: int):
        self.examples, self.pad = examples, pad

    def count(self, length: int) -> int:
        return len(self.examples)

    def example(self, epoch: int, i: int, phase: Phase) -> Example:
        return self.examples[i]
