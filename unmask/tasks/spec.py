"""TaskSpec: everything that the rest of the program wants to know about a task, as one frozen value.

`model/families/` does the same for families. Nobody outside `tasks/` asks for a task by its name: cards, reports, the server, the
studio, exports and baselines read the spec. `SPEC` of a task's class describes the task; `task.spec` is the same value bound to one
model (`bound`): its labels, the fields it was trained on, how it pools or generates.

A third party's task gives its own `SPEC`; see CONTRIBUTING.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from unmask.json_checks import Rule
from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field
from unmask.model.sentence import SentenceTransformerConfig
from unmask.settings import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How other programs use a model of the task: the hub, transformers, sentence-transformers, HTTP clients."""

    pipeline: str = ""  # the hub's pipeline tag; "" = the hub has none
    served_pipeline: str = (
        ""  # the pipeline that the server answers at /models/NAME, with the same keys; "" = `pipeline`
    )
    library: str = "transformers"
    auto_class: str = ""  # of that library; "" = the class that config.json names
    inputs: str = ""  # code that makes the inputs of that class; "" = the tokenizer on the input fields
    result: str = "logits"  # what the class returns, or the call that returns it

    def __post_init__(self) -> None:
        object.__setattr__(self, "served_pipeline", self.served_pipeline or self.pipeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a model learns the task, and what the task can be combined with."""

    loss_weights: Mapping[str, float] = field(default_factory=dict)  # term → weight, 1 unless given
    equal_record_weights: bool = False  # a record counts the same however many windows it is read in
    in_batch_negatives: bool = False  # the loss compares the records of a batch with each other
    max_dev_records: int = (
        2000  # dev records predicted while training, unless train.max_eval_examples gives another number
    )
    pooling: Literal["head", "task", "none"] = "head"  # who makes the row's vector: the head, the task, or nobody
    token_masking: bool = False  # whether `task.token_mask_rate` masks tokens while training
    sampling_setting: str = ""  # setting of the task: how many of an example's further rows are drawn anew each epoch
    aux_mlm: bool = False  # rows are text that a mask fits into: --aux-mlm
    distillable: bool = True  # a teacher's predictions can be learnt: --teacher
    augmentable_fields: tuple[str, ...] = ()  # fields whose words may be replaced: --augment-mlm
    why_not_augmentable: str = "nobody has said which of its fields may be rewritten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The part of a spec that belongs to one model."""

    inputs: tuple[Field, ...]  # the input fields this model was trained on
    num_inputs: tuple[int, int | None]  # how many parts a person gives, at least and at most (None: any number)
    input_description: str  # what they are, with an example
    labels: tuple[str, ...] = ()
    scale: tuple[float, float] = (0.0, 1.0)  # output "number": mean and standard deviation, in which it is learnt
    text_pairs: bool = False  # a row holds two texts
    config_overrides: Mapping[str, Any] = field(
        default_factory=dict
    )  # fields of the model's config that the task decides
    pooling: str = ""  # output "vector": mean or cls
    normalize: bool = True  # output "vector": of length 1
    generation: Mapping[str, Any] = field(default_factory=dict)  # output "text": generation_config.json
    source_prefix: str = ""  # output "text": put before every text
    sentence: SentenceTransformerConfig | None = None  # output "vector": the files of sentence-transformers
    training_note: str = ""  # how it is trained, in a line; printed before training


Output = Literal["choice", "binary", "number", "span", "vector", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    name: str
    about: str  # one line: what goes in and what comes out
    data_format: DataFormat  # its files, and the fields of their records
    heads: tuple[str, ...]
    terms: tuple[str, ...]  # of the loss
    output: Output  # what the head's values mean: one of several, each yes or no, a number, a span, a vector, new text
    output_per: Literal["row", "token"] = "row"  # whether the head gives a value per row or per token
    grouped: bool = False  # the rows of a record are compared with each other
    metrics: tuple[str, ...] = ("accuracy",)  # the first that records have the field for decides which model is best
    metric_fields: Mapping[str, str] = field(default_factory=dict)  # metric → field that records need for it
    required_state: Mapping[str, Rule] = field(
        default_factory=dict
    )  # keys that the task state must have → valid values
    optional_state: Mapping[str, Rule] = field(default_factory=dict)  # keys that it may have
    group_by: str = ""  # records equal in this field stay on one side of the dev split; "" = in all inputs
    ranked_field: str = ""  # records with this field are ranked among all of them, so they are predicted together
    truncation_note: str = ""  # what becomes of a text that is longer than a row, where windows have no meaning
    view: str = "json"  # how a prediction is shown: labels, tags, span, choices, ranking, text, vector; json = a table
    settings: type[Section] | None = None  # `task.<name>` of a recipe, for a third party's task
    baseline: str = ""  # "module:function", imported when it is asked for
    extend_predictions: str = (
        ""  # "module:function": (task, model, answers, records) → answers with all that the score needs
    )
    config_json: Mapping[str, Any] = field(default_factory=dict)  # keys that other programs read in config.json
    hints: Mapping[str, str] = field(default_factory=dict)  # kind of finding → what to do about it
    usage: Usage = Usage()
    training: Training = Training()
    bound: Bound | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.data_format.fields

    @property
    def inputs(self) -> tuple[Field, ...]:
        """The fields that a model of the task reads: of one model, where the spec is bound."""
        return self.bound.inputs if self.bound else tuple(f for f in self.fields if f.use == "input")

    @property
    def labels(self) -> tuple[str, ...]:
        return self.bound.labels if self.bound else ()

    @property
    def num_inputs(self) -> tuple[int, int | None]:
        """How many parts a person gives a model of the task, at least and at most (None: any number)."""
        return self.bound.num_inputs if self.bound else self.bind().num_inputs

    @property
    def input_description(self) -> str:
        """What the parts are, with an example."""
        return self.bound.input_description if self.bound else self.bind().input_description

    @property
    def scale(self) -> tuple[float, float]:
        return self.bound.scale if self.bound else (0.0, 1.0)

    def bind(self, **values: Any) -> "TaskSpec":
        """The spec of one model: `inputs`, `parts` and `asks` follow from the fields unless given."""
        inputs = values.setdefault("inputs", self.inputs)
        required = sum(f.required for f in inputs)
        values.setdefault("num_inputs", (required, None if any(f.holds == "texts" for f in inputs) else len(inputs)))
        values.setdefault("input_description", " ".join(f.caption for f in inputs))
        return replace(self, bound=Bound(**values))

    def metric(self, records: Sequence[Mapping[str, Any]] = ()) -> str:
        """The score that decides which model is best on these records; higher is better."""
        held = {"", *(records[0] if records else self.metric_fields.values())}
        return next((name for name in self.metrics if self.metric_fields.get(name, "") in held), self.metrics[-1])

    def captions(self) -> list[str]:
        """What a person types, in order: ["QUESTION", "CONTEXT"], ["TEXT", "CHOICE", "CHOICE"]."""
        return [f.caption for f in self.inputs if f.required for _ in range(1 + (f.holds == "texts"))]
