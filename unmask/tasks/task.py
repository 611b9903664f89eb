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

from unmask.batch import Batch, Example, StepConfig, batch_by_length
from unmask.errors import UserError
from unmask.labels.fields import fixed_labels
from unmask.labels.records import Finding, Record
from unmask.model.config import ModelConfig
from unmask.objectives.objective import resolve_heads
from unmask.recipe import Recipe, TaskRecipe
from unmask.tasks.explain import Target, default_target
from unmask.tasks.on_model import check_compatibility
from unmask.tasks.rows import WEIGHTS, pad_by_record
from unmask.tasks.spec import Bound, TaskSpec
from unmask.text.tokenizer import Tokenizer
from unmask.text.windows import Windowing

if TYPE_CHECKING:
    import torch

    from unmask.model.model import Model
    from unmask.tasks.terms import Term

Prediction = dict[str, Any]
Records = Sequence[Record]
Update = Callable[[float, float, str], None]  # done, total, what is going on
CHUNK_SIZE = 2000  # records whose rows and logits are held at a time
MIN_LENGTH = 8  # tokens per row, special ones included
DEFAULT_MAX_LENGTH = 512  # tokens per row unless more is asked for: attention costs their square


class Backend(Protocol):
    """What computes an answer: a Model, or an engine of `inference/`, which may do without torch."""

    config: ModelConfig

    def forward_rows(
        self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        """A task's forward pass over one group of rows: values per row, where padding is too."""
        ...


@dataclass
class Outputs:
    """What a model gave for every row of some records."""

    values: list[np.ndarray]  # per row
    examples: list[Example]
    record_index: np.ndarray  # (rows,) the number of the record that each is of

    def record_means(self) -> np.ndarray:
        """(records, …): of a record in several windows the mean of their values."""
        values = np.stack(self.values).astype(np.float64)
        sums = np.zeros((int(self.record_index.max()) + 1, *values.shape[1:]))
        np.add.at(sums, self.record_index, values)
        return (sums.T / np.bincount(self.record_index)).T


@dataclass(frozen=True)
class FitContext:
    """What `study` may look at beside the records."""

    recipe: Recipe
    config: ModelConfig  # of the model that the run begins with
    tokenizer: Tokenizer
    eval_records: Sequence[
        Record
    ] = ()  # of dev and test: nothing is learnt from them, but something may be wrong there


@dataclass(frozen=True)
class DataSummary:
    """What training records say before the first step."""

    task_state: dict[str, Any]  # what the task has to remember
    strata: Sequence[str] = ()  # of each record, what a dev set should have its share of; none: all are alike
    description: str = ""  # the records in a line: labels with their counts
    findings: Sequence[Finding] = ()


def resolve_max_length(recipe: Recipe, config: ModelConfig) -> int:
    """Tokens per row: --max-length, or a default."""
    most = config.max_positions
    if recipe.task.max_length and not MIN_LENGTH <= recipe.task.max_length <= most:
        what = f"the model has {most:,} positions" if recipe.task.max_length > most else "no room for a text"
        raise UserError(f"--max-length {recipe.task.max_length}: {what}", expected=f"{MIN_LENGTH} to {most:,}")
    return recipe.task.max_length or min(DEFAULT_MAX_LENGTH, most)


class Task:
    SPEC: ClassVar[TaskSpec]
    name: str
    heads: tuple[str, ...]  # of the model; "lm|mlm" = the one that its family has, known when it is bound
    config: ModelConfig | None = None  # of the model that it is bound to

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "SPEC" in vars(cls):
            cls.name, cls.heads = cls.SPEC.name, cls.SPEC.heads

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, task_state: Mapping[str, Any] | None = None):
        self.recipe, self.tokenizer = recipe, tokenizer
        self.settings: TaskRecipe = recipe.task
        self.task_state: dict[str, Any] = dict(task_state or {})

    @cached_property
    def windowing(self) -> Windowing:
        """How records become rows of `task_state["length"]` tokens, and what happened to those that are longer."""
        return Windowing(
            self.tokenizer, int(self.task_state["length"]), self.settings.overflow, self.spec.truncation_note
        )

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        """SPEC bound to one model: what follows from its settings, from what was learnt, and from its config."""
        labels = tuple(task_state.get("labels", ()))
        return cls.SPEC.bind(labels=labels, config_overrides={"labels": labels} if labels else {})

    @property
    def spec(self) -> TaskSpec:
        """What `make_spec` says, with the pooling that the settings ask for."""
        spec, pooling = self.make_spec(self.settings, self.task_state, self.config), self.settings.pooling
        if spec.bound is None or spec.training.pooling != "head" or pooling == "auto":
            return spec
        return replace(
            spec, bound=replace(spec.bound, config_overrides={"pooling": pooling, **spec.bound.config_overrides})
        )

    @final
    def bind(self, config: ModelConfig) -> None:
        """Told the config of the model."""
        self.config, self.heads = config, resolve_heads(self.heads, config)

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        """Refuses what cannot work, before weights are read."""
        check_compatibility(cls.SPEC, recipe, config)

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        """Fit the task state to the training records: first to all of them; then, with the result as `previous`, to those not in the dev set."""
        if previous is not None:
            return DataSummary(dict(previous))
        labels = fixed_labels(cls.SPEC)
        return DataSummary(
            {"length": resolve_max_length(context.recipe, context.config)}
            | ({"labels": list(labels)} if labels else {})
        )

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        """What a model of this task in another program's folder has learnt; None: the folder is of something else."""
        return {"length": min(DEFAULT_MAX_LENGTH, config.max_positions)} if cls.name in heads else None

    # --------------------------------------------------------------------------------------------------- loss

    def loss_terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """The terms of the loss, from one forward pass: here one, of one head.

        It reads the positions that `encode` has given as "<term>.positions" (in a decoder "<term>.decoder_positions"), else what the head reads of a row.
        """
        from unmask.tasks.terms import TERMS, BinaryCrossEntropy

        (term,), head, kind = self.SPEC.terms, self.heads[0], TERMS[self.spec.output]
        at, written = (batch.labels.get(f"{term}.{name}") for name in ("positions", "decoder_positions"))
        hidden = model.encode(batch, at if at is not None or written is not None else model.head_positions(head, batch))
        logits = model.logits(
            head, hidden if written is None else model.decode(batch, hidden, written), batch.attention_mask
        )
        if self.SPEC.grouped:
            logits = logits.flatten().float()
            if batch.group_ids is None:
                kind = BinaryCrossEntropy  # each row by itself
            else:
                logits = pad_by_record(logits, batch.group_ids.bincount())
        return {
            term: kind(
                logits=logits,
                targets=batch.labels[f"{term}.targets"],
                weights=batch.labels.get(WEIGHTS),
                class_weights=self.task_state.get("weights"),
            )
        }

    # ------------------------------------------------------------------------------------------------ answers

    def encode(self, record: Record, labelled: bool = True) -> list[Example]:
        raise NotImplementedError(f"{type(self).__name__}.encode")

    def forward(self, model: Model, batch: Batch) -> torch.Tensor:
        """(B, …): what the head gives for each row, or (B, T, …) for each of its tokens; (B,) where rows are compared."""
        values = model.head_output(self.heads[0], batch)
        return values.flatten() if self.SPEC.grouped else values

    @final
    def compute_outputs(self, model: Backend, records: Sequence[Record], update: Update | None = None) -> Outputs:
        """Rows of like length are computed together; the order of the records stays. What writes text gives its tokens."""
        encoded = [self.encode(record, labelled=False) for record in records]
        examples = [e for several in encoded for e in several]
        record = np.repeat(np.arange(len(encoded)), [len(several) for several in encoded])
        if self.SPEC.output == "text":
            from unmask.model.generate import generate

            prompts, network = [e.input_ids.tolist() for e in examples], cast("Any", model)
            made = generate(network, prompts, update=update, **self.bound.generation)
            return Outputs([np.array(new, np.int64) for new in made], examples, record)
        values: list[np.ndarray] = [np.empty(0)] * len(examples)
        done = 0
        for group in batch_by_length([len(e) for e in examples]):
            found = model.forward_rows(self.forward, [examples[n] for n in group], self.tokenizer.pad)
            for n, row in zip(group, found):
                values[n] = row[: len(examples[n])] if self.SPEC.output_per == "token" else row
            done += len(group)
            if update:
                update(done, len(examples), "")
        return Outputs(values, examples, record)

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """An answer per record."""
        raise NotImplementedError(f"{type(self).__name__}.decode")

    @final
    def predict(self, model: Backend, records: Sequence[Record], update: Update | None = None) -> list[Prediction]:
        """In the order of the records; some at a time, since the logits of a whole file may not fit into memory."""
        size = len(records) if self._needs_all_records(records) else CHUNK_SIZE
        predictions: list[Prediction] = []
        for start in range(0, len(records), max(1, size)):
            part = records[start : start + size]

            def told(done: float, total: float, what: str, start: int = start, count: int = len(part)) -> None:
                assert update is not None
                update(start + count * done / total, len(records), what)

            predictions += self.decode(self.compute_outputs(model, part, told if update else None))
        return predictions

    def _needs_all_records(self, records: Sequence[Record]) -> bool:
        """Whether an answer depends on the other records (a place among all, a number by which chance is addressed): all are computed at once."""
        return self.SPEC.output == "text" or any(self.SPEC.ranked_field in record for record in records)

    def calibrate(self, outputs: Outputs, records: Sequence[Record]) -> dict[str, Any]:
        """What a dev set teaches and a loss does not (thresholds, a temperature): additions to `learnt`."""
        return {}

    @final
    def extend_predictions(
        self, model: Backend, predictions: Sequence[Prediction], records: Sequence[Record]
    ) -> list[Prediction]:
        """The answers with whatever else a final score needs of the model (`SPEC.extend_predictions`): not asked while training."""
        if not self.SPEC.extend_predictions:
            return list(predictions)
        return EntryPoint(self.name, self.SPEC.extend_predictions, "").load()(self, model, predictions, records)

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        raise NotImplementedError(f"{type(self).__name__}.score")

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        """What a report shows beside the scores, as plain values (see report/page.py)."""
        return {}

    @final
    def with_overflow(self, overflow: str | None) -> Self:
        """Return the same task with another `overflow`: what happens to a text that is longer than a row."""
        choices = get_args(TaskRecipe.model_fields["overflow"].annotation)
        if overflow is not None and overflow not in choices:
            raise UserError(f"overflow {overflow!r}", expected=", ".join(choices))
        other = copy.copy(self)
        other.settings = self.settings.model_copy(update={} if overflow is None else {"overflow": overflow})
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
        return default_target(self, outputs, record, target)

    @final
    def with_single_row(self, length: int) -> Self:
        """The same task with rows of `length`, which refuses a longer text: what is explained is one row."""
        other = self.with_overflow("error")
        other.task_state = self.task_state | {"length": length}
        return other


class RecordDataset:
    """A list of examples with the face of `text.rows.Rows`: what the loader reads."""

    def __init__(self, examples: Sequence[Example], pad: int):
        self.examples, self.pad = examples, pad

    def count(self, length: int) -> int:
        return len(self.examples)

    def example(self, epoch: int, i: int, phase: StepConfig) -> Example:
        return self.examples[i]
