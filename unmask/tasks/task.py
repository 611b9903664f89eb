"""Base class of fine-tuning tasks: encoding of records, loss, prediction and metrics.

`SPEC.data_format` reads a user's file into records. `encode` turns a record into rows, `forward` computes the model's outputs for
the rows, `decode` turns the outputs into predictions, and `score` compares the predictions with the records. `decode` uses numpy
only, so that an exported model can predict without torch.

`task_state` holds plain values that are fitted to the data: `fit_state` fits the labels to the training records, and `calibrate`
fits thresholds or a temperature to the dev set. It is saved in the model folder's unmask.json.
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
    from unmask.tasks.blend import Blend
    from unmask.tasks.terms import Term

Prediction = dict[str, Any]
Records = Sequence[Record]
Update = Callable[[float, float, str], None]  # progress callback: done, total, description
CHUNK_SIZE = 2000  # records whose rows and logits are in memory at a time
MIN_LENGTH = 8  # tokens per row, including special tokens
DEFAULT_MAX_LENGTH = 512  # tokens per row; the cost of attention is quadratic in it


class Backend(Protocol):
    """Computes the outputs of rows: a Model, or an engine of `inference/`, which may work without torch."""

    config: ModelConfig
    batch_size: int | None  # rows per forward pass; None: as many as fill TOKENS_PER_FORWARD

    def forward_rows(
        self, forward: Callable[[Any, Any], Any], examples: Sequence[Example], pad: int
    ) -> list[np.ndarray]:
        """Run a task's forward pass over one group of rows. Return the values of each row, including its padding."""
        ...


@dataclass
class Outputs:
    """The model's output values for every row of some records."""

    values: list[np.ndarray]  # per row
    examples: list[Example]
    record_index: np.ndarray  # (rows,) index of the record that each row belongs to
    unblended: Outputs | None = None  # the encoder's own, if these are blended

    def record_means(self) -> np.ndarray:
        """Return (records, …): the mean of each record's values over its windows."""
        values = np.stack(self.values).astype(np.float64)
        sums = np.zeros((int(self.record_index.max()) + 1, *values.shape[1:]))
        np.add.at(sums, self.record_index, values)
        return (sums.T / np.bincount(self.record_index)).T


@dataclass(frozen=True)
class FitContext:
    """Inputs of `fit_state` in addition to the training records."""

    recipe: Recipe
    config: ModelConfig  # of the initial model
    tokenizer: Tokenizer
    eval_records: Sequence[Record] = ()  # dev and test records: checked for errors, never used for fitting


@dataclass(frozen=True)
class DataSummary:
    """Result of `fit_state`: the task state, and facts about the training records."""

    task_state: dict[str, Any]
    strata: Sequence[str] = ()  # stratum of each record, for a stratified dev split; () = not stratified
    description: str = ""  # one line about the records: labels with their counts
    findings: Sequence[Finding] = ()


def resolve_max_length(recipe: Recipe, config: ModelConfig) -> int:
    """Return the tokens per row: --max-length, or a default."""
    length, limit = recipe.task.max_length, config.max_positions
    if length and not MIN_LENGTH <= length <= limit:
        reason = f"the model has {limit:,} positions" if length > limit else "this leaves no room for a text"
        hint = f"--max-length {limit if length > limit else MIN_LENGTH}"
        raise UserError(f"--max-length {length}: {reason}", expected=f"{MIN_LENGTH} to {limit:,}", hint=hint)
    return length or min(DEFAULT_MAX_LENGTH, limit)


class Task:
    SPEC: ClassVar[TaskSpec]
    name: str
    heads: tuple[str, ...]  # of the model; `bind` resolves "lm|mlm" to the one that the model's family has
    config: ModelConfig | None = None  # of the model; set by `bind`
    blend: Blend | None = None  # changes the outputs of the model (--blend)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "SPEC" in vars(cls):
            cls.name, cls.heads = cls.SPEC.name, cls.SPEC.heads

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, task_state: Mapping[str, Any] | None = None):
        self.recipe, self.tokenizer = recipe, tokenizer
        self.settings: TaskRecipe = recipe.task
        self.task_state: dict[str, Any] = dict(task_state or {})

    @cached_property
    def windowing(self) -> Windowing:
        """Cuts texts into rows of `task_state["length"]` tokens, and counts the texts that are longer."""
        return Windowing(
            self.tokenizer, int(self.task_state["length"]), self.settings.overflow, self.spec.truncation_note
        )

    @classmethod
    def make_spec(cls, settings: TaskRecipe, task_state: Mapping[str, Any], config: ModelConfig | None) -> TaskSpec:
        """Return SPEC bound to one model, given its settings, task state and config."""
        labels = tuple(task_state.get("labels", ()))
        return cls.SPEC.bind(labels=labels, config_overrides={"labels": labels} if labels else {})

    @property
    def spec(self) -> TaskSpec:
        """The result of `make_spec`, with the pooling of the settings."""
        spec, pooling = self.make_spec(self.settings, self.task_state, self.config), self.settings.pooling
        if spec.bound is None or spec.training.pooling != "head" or pooling == "auto":
            return spec
        return replace(
            spec, bound=replace(spec.bound, config_overrides={"pooling": pooling, **spec.bound.config_overrides})
        )

    @final
    def bind(self, config: ModelConfig) -> None:
        """Set the config of the model, and resolve the task's heads for it."""
        self.config, self.heads = config, resolve_heads(self.heads, config)

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        """Raise UserError if the task cannot work with this recipe and model. Called before weights are read."""
        check_compatibility(cls.SPEC, recipe, config)

    # ----------------------------------------------------------------------------------------------- records

    @classmethod
    def fit_state(
        cls, context: FitContext, records: Sequence[Record], previous: Mapping[str, Any] | None = None
    ) -> DataSummary:
        """Fit the task state to the training records.

        Called twice: first with all records; then, after the dev set is split off, with the remaining ones and the first result as `previous`.
        """
        if previous is not None:
            return DataSummary(dict(previous))
        labels = fixed_labels(cls.SPEC)
        return DataSummary(
            {"length": resolve_max_length(context.recipe, context.config)}
            | ({"labels": list(labels)} if labels else {})
        )

    @classmethod
    def state_from_folder(cls, folder: Path, config: ModelConfig, heads: Collection[str]) -> dict[str, Any] | None:
        """Return the task state of a model folder that another program wrote, or None if its model is not of this task."""
        return {"length": min(DEFAULT_MAX_LENGTH, config.max_positions)} if cls.name in heads else None

    # --------------------------------------------------------------------------------------------------- loss

    def loss_terms(self, model: Model, batch: Batch) -> dict[str, Term]:
        """Return the terms of the loss from one forward pass. This default has one term, computed from one head.

        The head reads the positions in the label "<term>.positions" ("<term>.decoder_positions" for a decoder) that `encode` sets. Without
        such a label it reads its own default positions.
        """
        from unmask.tasks.terms import TERMS, BinaryCrossEntropy

        (term,), head, term_class = self.SPEC.terms, self.heads[0], TERMS[self.spec.output]
        positions = batch.labels.get(f"{term}.positions")
        decoder_positions = batch.labels.get(f"{term}.decoder_positions")
        if positions is None and decoder_positions is None:
            positions = model.head_positions(head, batch)
        hidden = model.encode(batch, positions)
        if decoder_positions is not None:
            hidden = model.decode(batch, hidden, decoder_positions)
        logits = model.logits(head, hidden, batch.attention_mask)
        if self.SPEC.grouped:
            logits = logits.flatten().float()
            if batch.group_ids is None:
                term_class = BinaryCrossEntropy  # rows are independent of each other
            else:
                logits = pad_by_record(logits, batch.group_ids.bincount())
        return {
            term: term_class(
                logits=logits,
                targets=batch.labels[f"{term}.targets"],
                weights=batch.labels.get(WEIGHTS),
                class_weights=self.task_state.get("weights"),
            )
        }

    # -------------------------------------------------------------------------------------------- predictions

    def encode(self, record: Record, labeled: bool = True) -> list[Example]:
        """Return the rows of a record, with the targets as labels if `labeled`."""
        raise NotImplementedError(f"{type(self).__name__}.encode")

    def forward(self, model: Model, batch: Batch) -> torch.Tensor:
        """Return the head's output: (B, …) per row, (B, T, …) per token, or (B,) if `SPEC.grouped`."""
        values = model.head_output(self.heads[0], batch)
        return values.flatten() if self.SPEC.grouped else values

    @final
    def compute_outputs(self, model: Backend, records: Sequence[Record], update: Update | None = None) -> Outputs:
        """Compute the outputs in the order of the records. Rows of similar length share a batch; a text task generates tokens."""
        encoded = [self.encode(record, labeled=False) for record in records]
        examples = [row for rows in encoded for row in rows]
        record_index = np.repeat(np.arange(len(encoded)), [len(rows) for rows in encoded])
        if self.SPEC.output == "text":
            from unmask.model.generate import generate

            prompts, network = [e.input_ids.tolist() for e in examples], cast("Any", model)
            generated = generate(network, prompts, update=update, **self.bound.generation)
            return Outputs([np.array(ids, np.int64) for ids in generated], examples, record_index)
        values: list[np.ndarray] = [np.empty(0)] * len(examples)
        done = 0
        for group in batch_by_length([len(e) for e in examples], batch_size=model.batch_size):
            rows = model.forward_rows(self.forward, [examples[n] for n in group], self.tokenizer.pad)
            for n, value in zip(group, rows):
                values[n] = value[: len(examples[n])] if self.SPEC.output_per == "token" else value
            done += len(group)
            if update:
                update(done, len(examples), "")
        outputs = Outputs(values, examples, record_index)
        return self.blend.apply(outputs) if self.blend else outputs

    def decode(self, outputs: Outputs) -> list[Prediction]:
        """Return one prediction per record."""
        raise NotImplementedError(f"{type(self).__name__}.decode")

    @final
    def predict(self, model: Backend, records: Sequence[Record], update: Update | None = None) -> list[Prediction]:
        """Predict in the order of the records, in chunks, because the logits of a whole file may not fit into memory."""
        size = len(records) if self._needs_all_records(records) else CHUNK_SIZE
        predictions: list[Prediction] = []
        for start in range(0, len(records), max(1, size)):
            chunk = records[start : start + size]

            def update_all(done: float, total: float, text: str, start: int = start, count: int = len(chunk)) -> None:
                assert update is not None
                update(start + count * done / total, len(records), text)

            predictions += self.decode(self.compute_outputs(model, chunk, update_all if update else None))
        return predictions

    def _needs_all_records(self, records: Sequence[Record]) -> bool:
        """Whether a prediction depends on the other records, through its rank or its sampling seed, so that chunks are not possible."""
        return self.SPEC.output == "text" or any(self.SPEC.ranked_field in record for record in records)

    def calibrate(self, outputs: Outputs, records: Sequence[Record]) -> dict[str, Any]:
        """Return additions to the task state that are fitted to the dev set, such as thresholds or a temperature."""
        return {}

    @final
    def extend_predictions(
        self, model: Backend, predictions: Sequence[Prediction], records: Sequence[Record]
    ) -> list[Prediction]:
        """Add the values that only the final score needs (`SPEC.extend_predictions`). Not called during training."""
        if not self.SPEC.extend_predictions:
            return list(predictions)
        return EntryPoint(self.name, self.SPEC.extend_predictions, "").load()(self, model, predictions, records)

    def score(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, float]:
        raise NotImplementedError(f"{type(self).__name__}.score")

    def details(self, predictions: Sequence[Prediction], records: Sequence[Record]) -> dict[str, Any]:
        """Return the contents of a report in addition to the scores, as plain values (see report/page.py)."""
        return {}

    @final
    def with_overflow(self, overflow: str | None) -> Self:
        """Return a copy of the task with another `overflow` (handling of texts that are longer than a row)."""
        choices = get_args(TaskRecipe.model_fields["overflow"].annotation)
        if overflow is not None and overflow not in choices:
            raise UserError(f"invalid overflow {overflow!r}", expected=", ".join(choices))
        other = copy.copy(self)
        other.settings = self.settings.model_copy(update={} if overflow is None else {"overflow": overflow})
        vars(other).pop("windowing", None)
        return other

    # --------------------------------------------------------------------------------------------------- model

    @property
    def bound(self) -> Bound:
        """The part of the spec that belongs to this model."""
        bound = self.spec.bound
        assert bound is not None
        return bound

    def explain_target(self, outputs: Outputs, record: Record, target: str | None) -> Target:
        """Return the output value to explain for one record: that of `target`, or of the model's prediction."""
        return default_target(self, outputs, record, target)

    @final
    def with_single_row(self, length: int) -> Self:
        """Return a copy of the task with rows of `length` that rejects longer texts: an explanation covers one row."""
        other = self.with_overflow("error")
        other.task_state = self.task_state | {"length": length}
        return other


class RecordDataset:
    """Adapter that gives a list of examples the interface of `text.rows.RowDataset`, for the data loader."""

    def __init__(self, examples: Sequence[Example], pad: int):
        self.examples, self.pad = examples, pad

    def count(self, length: int) -> int:
        return len(self.examples)

    def example(self, epoch: int, i: int, step_config: StepConfig) -> Example:
        return self.examples[i]
